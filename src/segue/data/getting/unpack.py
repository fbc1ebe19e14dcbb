"""Unpack a tar, tar.gz or zip that need not be trusted: the whole of it appears at once, or nothing does.

Files are written into a hidden folder beside the wanted one, which then gets its name. Only plain files and
folders are written, below that folder, with plain modes. Sizes are counted while writing: headers lie.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from segue.core.errors import UserError

CHUNK = 1 << 18
MOST_MEMBERS = 500_000
MOST_HEADER = 1 << 20
"""bytes of one header in a tar: a long name, a comment"""
HEADER_ROOM = 1 << 26
"""bytes of a tar that need not be content: headers and padding"""
RATIO, SMALL = 100, 1 << 20
"""more than SMALL bytes that are more than RATIO times the archive: no image packs that well"""
LONGEST_PART, LONGEST_NAME = 255, 1024
"""bytes of a name, of one part and of all"""
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    gzip.BadGzipFile,
    EOFError,
    NotImplementedError,  # zipfile: a version or a way to pack that it does not know
    ValueError,
    OverflowError,
    RecursionError,  # tarfile: headers of headers of headers
)
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class _Refused(Exception):
    """Why an archive is not unpacked, and because of which member."""

    def __init__(self, reason: str, member: str | None = None) -> None:
        super().__init__(reason if member is None else f"{_shown(member)} {reason}")


def unpack(
    archive: str | Path,
    folder: str | Path,
    most_bytes: int,
    advance: Callable[[int, int], None] | None = None,
    *,
    top: str = "",
    expected: Sequence[str] = (),
    complete: bool = False,
) -> None:
    """Unpack into `folder`, which must not exist yet; its parents are made.

    With `top` only what lies below that folder of the archive is unpacked, without the folder itself.
    `expected` are folders that must come out. `complete`: the caller knows by a digest that nothing is cut
    off, so a tar may lack the empty block at its end, which some tools do not write. `advance(done, total)`
    counts bytes of the archive. One process at a time may unpack into a folder: the caller sees to that.
    """
    archive, folder = Path(archive), Path(folder)
    if os.path.lexists(folder):
        raise UserError(f"{folder} exists: {archive.name} is not unpacked over it. Move it, or name another.")
    work = folder.parent / f".{folder.name}.unpacking"
    try:
        with _opened(archive) as file:
            try:
                folder.parent.mkdir(parents=True, exist_ok=True)
                _remove(work)  # of a killed process
                work.mkdir(mode=0o755)
                tree = _Tree(work, most_bytes, file, top, complete)
                _read_members(file, tree, advance or (lambda done, total: None))
                _check_result(tree, top, expected)
                if hasattr(os, "sync"):
                    os.sync()  # a power cut after the renaming leaves no empty files
                os.rename(work, folder)
            finally:
                _remove(work)
    except _Refused as refused:
        raise UserError(f"{archive} is not unpacked: {refused}. Nothing was left behind.") from None
    except OSError as error:
        raise UserError(
            f"Cannot unpack {archive} into {folder}: {error.strerror or error}. Nothing was left behind."
        ) from error


def _opened(archive: Path) -> IO[bytes]:
    try:
        if archive.exists() and not archive.is_file():
            raise UserError(f"{archive} is not an ordinary file.")
        return archive.open("rb")
    except OSError as error:
        raise UserError(f"Cannot read the archive {archive}: {error.strerror}.") from error


def _remove(work: Path) -> None:
    if work.is_symlink() or work.is_file():
        work.unlink()
    elif work.exists():
        shutil.rmtree(work)


def _check_result(tree: _Tree, top: str, expected: Sequence[str]) -> None:
    if not tree.spellings:
        raise _Refused(f"it holds nothing in '{top}', so it is another archive" if top else "it is empty")
    for name in expected:
        if not (tree.root / name).is_dir():
            raise _Refused(f"the folder '{name}' is missing in it{f' below {top}' if top else ''}")


class _Tree:
    """Where members are written: none leaves its root, none is written twice, none grows too large."""

    def __init__(self, root: Path, most_bytes: int, archive: IO[bytes], top: str, complete: bool) -> None:
        self.root, self.most_bytes, self.complete = root, most_bytes, complete
        self.top = tuple(part for part in top.split("/") if part)
        self.packed = os.fstat(archive.fileno()).st_size
        self.bytes = self.members = 0
        self.spellings: dict[str, tuple[str, bool]] = {}
        """how each path was written, and whether it is a file, by what a forgiving file system sees"""

    def wants(self, name: str) -> bool:
        parts = _split(name)
        return parts[:1] != ("__MACOSX",) and parts[: len(self.top)] == self.top

    def count(self) -> None:
        self.members += 1
        if self.members > MOST_MEMBERS:
            raise _Refused(f"it has more than {MOST_MEMBERS:,} members")

    def check_growth(self, size: int, most: int) -> None:
        if size > most:
            raise _Refused(f"it unpacks to more than {most:,} bytes")
        if size > max(SMALL, RATIO * self.packed):
            raise _Refused(f"it unpacks to more than {RATIO} times its size, as only a trap does")

    def take(self, name: str, is_folder: bool, content: Iterator[bytes]) -> None:
        check_name(name)
        parts = _split(name)[len(self.top) :]
        if not parts and not is_folder:
            raise _Refused("is a file, not a folder", name)
        for depth in range(1, len(parts) + 1):
            self._enter("/".join(parts[:depth]), not is_folder and depth == len(parts), name)
        if not is_folder:
            self._write(self.root.joinpath(*parts), content)

    def _enter(self, path: str, is_file: bool, name: str) -> None:
        """Note a file, or make a folder that is not there yet."""
        key = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
        spelling, was_file = self.spellings.get(key, (None, False))
        if spelling is None:
            self.spellings[key] = path, is_file
            if not is_file:
                os.mkdir(self.root / path, 0o755)
        elif spelling != path:
            raise _Refused(f"and {_shown(spelling)} differ only in case or accents", name)
        elif is_file and was_file:
            raise _Refused("is in it twice", name)
        elif is_file or was_file:
            raise _Refused("is or lies below what is both a file and a folder", name)

    def _write(self, path: Path, content: Iterator[bytes]) -> None:
        with os.fdopen(os.open(path, NEW_FILE, 0o644), "wb") as file:
            for chunk in content:
                self.bytes += len(chunk)
                self.check_growth(self.bytes, self.most_bytes)
                file.write(chunk)


def _split(name: str) -> tuple[str, ...]:
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _shown(name: str) -> str:
    return repr(name if len(name) <= 100 else f"{name[:97]}...")


def check_name(name: str) -> None:
    """Refuse a name that means something else than a path below, here or on another system."""
    parts = _split(name)
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in name):
        raise _Refused("has invisible characters in its name", name)
    if name.startswith("/") or ".." in parts:
        raise _Refused("leads out of the folder", name)
    if "\\" in name or ":" in name or any(part != part.rstrip(". ") for part in parts):
        raise _Refused("has a name that other systems read as another path", name)
    if len(name.encode()) > LONGEST_NAME or any(len(part.encode()) > LONGEST_PART for part in parts):
        raise _Refused("has too long a name", name)


def _read_members(file: IO[bytes], tree: _Tree, advance: Callable[[int, int], None]) -> None:
    start = file.read(4)
    file.seek(0)
    try:
        if start[:2] == b"PK":
            _read_zip(file, tree, advance)
        elif start[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file) as plain:
                _read_tar(_Counted(plain, tree), file, tree, advance)
        else:
            _read_tar(_Counted(file, tree), file, tree, advance)
    except DAMAGED as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise _Refused(f"it is damaged, incomplete, or no zip, tar or tar.gz ({why})") from error
    advance(tree.packed, tree.packed)


def _read_zip(file: IO[bytes], tree: _Tree, advance: Callable[[int, int], None]) -> None:
    with zipfile.ZipFile(file) as packed:
        if len(packed.infolist()) % 65536 != (said := _zip_count(file)) != 65535:
            raise _Refused(f"it should have {said:,} members, but {len(packed.infolist()):,} are found")
        done = 0
        for info in packed.infolist():
            name, done = info.orig_filename, done + info.compress_size
            tree.count()
            if not tree.wants(name):
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG):
                raise _Refused("is neither a plain file nor a folder", name)
            if info.flag_bits & 0x41:
                raise _Refused("is encrypted", name)
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _Refused("is packed in an unusual way", name)
            if info.is_dir() and info.file_size:
                raise _Refused("is a folder with content", name)
            tree.take(name, info.is_dir(), _zip_content(packed, info))
            advance(min(done, tree.packed), tree.packed)


def _zip_count(file: IO[bytes]) -> int:
    """How many members the end of a zip names, modulo 65536; 65535: it does not say. zipfile never looks."""
    file.seek(-min(65557, os.fstat(file.fileno()).st_size), os.SEEK_END)
    tail = file.read()
    return struct.unpack_from("<H", tail, tail.rfind(b"PK\5\6") + 10)[0]


def _zip_content(packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    size = 0
    with packed.open(info) as member:
        while chunk := member.read(CHUNK):  # its end checks the CRC
            size += len(chunk)
            yield chunk
    if size != info.file_size:
        raise _Refused(f"has {size:,} bytes instead of {info.file_size:,}", info.orig_filename)


class _Counted:
    """The plain bytes of a tar for tarfile: forward only, and never many at once or in all."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, tree: _Tree) -> None:
        self.file, self.tree, self.position = file, tree, 0

    def tell(self) -> int:
        return self.position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MOST_HEADER:
            raise _Refused("it has a header of absurd size")
        data = self.file.read(size)
        self.position += len(data)
        self.tree.check_growth(self.position, self.tree.most_bytes + HEADER_ROOM)
        return data

    def seek(self, position: int) -> None:
        if position < self.position:
            raise _Refused("its headers lead backwards")
        while self.position < position and self.read(min(CHUNK, position - self.position)):
            pass


class _Header(tarfile.TarInfo):
    """tarfile takes a damaged header for the end; here only the empty block is the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> tarfile.TarInfo:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            raise
        except tarfile.EmptyHeaderError as error:
            if archive.fileobj.tree.complete:
                raise tarfile.EOFHeaderError(str(error)) from None
            raise tarfile.ReadError("its end is missing") from error
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


def _read_tar(plain: _Counted, file: IO[bytes], tree: _Tree, advance: Callable[[int, int], None]) -> None:
    with tarfile.TarFile(
        fileobj=plain, tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
    ) as packed:
        for member in packed:
            tree.count()
            if not tree.wants(member.name):
                continue
            if not (member.isdir() or member.isreg()) or member.issparse() or member.size < 0:
                raise _Refused("is neither a plain file nor a folder", member.name)
            plain.seek(member.offset_data)
            tree.take(member.name, member.isdir(), _tar_content(plain, member))
            advance(file.tell(), tree.packed)
    while plain.read(CHUNK):  # the end of a tar.gz has its CRC
        pass


def _tar_content(plain: _Counted, member: tarfile.TarInfo) -> Iterator[bytes]:
    left = member.size
    while left:
        chunk = plain.read(min(CHUNK, left))
        if not chunk:
            raise _Refused("ends too early", member.name)
        left -= len(chunk)
        yield chunk
