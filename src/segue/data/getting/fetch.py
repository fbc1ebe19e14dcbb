"""Get a data set: download its archives or take those got by hand, check them, unpack them.

A download goes on where it stopped, even after the process was killed; what is unpacked appears whole.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from segue.core.errors import UserError, suggest
from segue.data.getting.download import download, forget, size_of
from segue.data.getting.sources import SBD_NOTE, SOURCES, Archive, Source
from segue.data.getting.unpack import unpack

CHUNK = 1 << 20

Advance = Callable[[str, int, int], None]
"""what is done ("Downloading x"), bytes done, bytes in all"""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """A data set on disk."""

    root: Path
    """for data.root"""
    new: bool
    """False: it was there already, nothing was done"""
    note: str
    """what is left to do by hand, if anything"""


def fetch(
    name: str,
    out: str | Path,
    archives: Sequence[str | Path] = (),
    *,
    base_url: str | None = None,
    advance: Advance | None = None,
    say: Say | None = None,
) -> Fetched:
    """Put the data set `name` below the folder `out`.

    `archives` are files that the user downloaded; they are checked and stay as they are. `base_url` is a
    mirror: the folder of the archives there. `say` gets a sentence whenever something noteworthy happens.
    """
    if name not in SOURCES:
        raise UserError(f"There is no source for the data set '{name}'.{suggest(name, SOURCES)}")
    source, out = SOURCES[name], Path(out).expanduser()
    advance, say = advance or (lambda *_: None), say or (lambda _: None)
    given = _assign([Path(file).expanduser() for file in archives], source)
    new = bool(_missing(source, out))
    if new:
        _check_by_hand(name, source, out, given)
        with _alone(out, name):
            missing = _missing(source, out)  # another process may just have been here
            _check_space(missing, out, given)
            for archive in missing:
                file = given.get(archive)
                if file is not None:
                    _check_file(archive, file, advance)
                else:
                    file = _obtain(archive, base_url or archive.site, out, advance, say)
                _unpack(archive, file, out, advance)
                if archive not in given:
                    say(f"{file} ({_amount(archive.size)}) is no longer needed: delete it if you like.")
    else:
        say(f"{source.title} is already there: {out / source.root}. Nothing was done.")
    root = out / source.root
    wants_sbd = name == "voc" and not (root / "SegmentationClassAug").is_dir()
    return Fetched(root, new, SBD_NOTE.format(root=root) if wants_sbd else "")


def _missing(source: Source, out: Path) -> list[Archive]:
    """What is not unpacked yet. A folder appears whole, so one that is there needs no closer look."""
    found = []
    for archive in source.archives:
        folder = out / archive.folder
        if not os.path.lexists(folder):
            found.append(archive)
        elif not all((folder / name).is_dir() for name in archive.holds):
            raise UserError(
                f"{folder} exists, but is not the folder of {source.title}: it lacks one of"
                f" {', '.join(archive.holds)}. Move it away, or name another folder with --out."
            )
    return found


def _assign(files: Sequence[Path], source: Source) -> dict[Archive, Path]:
    """Which archive each file is: by its size, as browsers rename files, else by its name."""
    given: dict[Archive, Path] = {}
    for file in files:
        try:
            if not file.is_file():
                raise UserError(f"The archive {file} {'is no file' if file.exists() else 'does not exist'}.")
            size = file.stat().st_size
        except OSError as error:
            raise UserError(f"Cannot read the archive {file}: {error.strerror}.") from error
        fits = [a for a in source.archives if a.size == size] or [
            a for a in source.archives if a.name == file.name
        ]
        if not fits:
            names = " nor ".join(f"{a.name} ({a.size:,} bytes)" for a in source.archives)
            raise UserError(f"{file} ({size:,} bytes) is not {names}. Is it a broken download?")
        if fits[0] in given:
            raise UserError(f"{given[fits[0]]} and {file} are both {fits[0].name}: name it once.")
        if fits[0].size != size:
            raise UserError(
                f"{file} has {size:,} bytes, but {fits[0].name} has {fits[0].size:,}: the download is"
                " incomplete, or it was packed anew. Download it again."
            )
        given[fits[0]] = file
    return given


def _check_by_hand(name: str, source: Source, out: Path, given: dict[Archive, Path]) -> None:
    needed = [a for a in _missing(source, out) if a.site is None]
    for archive in needed:
        if archive not in given and (out / archive.name).is_file():
            given[archive] = out / archive.name
    absent = [archive for archive in needed if archive not in given]
    if absent:
        lines = "".join(f"  {a.name} ({_amount(a.size)})\n" for a in absent)
        words = ["segue", "data", "fetch", name, "--out", str(out)]
        words += [word for a in needed for word in ("--archive", str(given.get(a, Path(a.name))))]
        raise UserError(
            f"{source.title} can be downloaded only after a login. Register at {source.page}, download\n"
            f"{lines}and unpack with\n  {shlex.join(words)}"
        )


@contextmanager
def _alone(out: Path, name: str) -> Iterator[None]:
    """One process at a time fetches a data set into a folder (where the system has file locks)."""
    path = out / f".fetch-{name}.lock"
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = _lock(path)
        if handle is None:
            raise UserError(f"Another process is fetching {name} into {out}: wait for it, or stop it.")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is locked: nobody else can have this file
            os.close(handle)
    except OSError as error:
        raise UserError(f"Cannot write {error.filename or out}: {error.strerror or error}.") from error


def _lock(path: Path) -> int | None:
    """An open file that no other process has; None if one has it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except BlockingIOError:
            os.close(handle)
            return None
        except FileNotFoundError:
            pass
        except (ImportError, OSError):  # Windows, or a file system without locks
            return handle
        os.close(handle)  # the other process ended and removed it just now


def _check_space(missing: Sequence[Archive], out: Path, given: dict[Archive, Path]) -> None:
    needed = sum(archive.unpacked for archive in missing)
    for archive in missing:
        if archive not in given:
            got = sum(size_of(out / f"{archive.name}{ending}") for ending in ("", ".part"))
            needed += max(0, archive.size - got)
    free = shutil.disk_usage(out).free
    if free < needed:
        raise UserError(
            f"{' and '.join(archive.name for archive in missing)} need {_amount(needed)} more in {out},"
            f" but only {_amount(free)} are free. Make room, or name a folder on another disk with --out."
        )


def _amount(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _obtain(archive: Archive, site: str, out: Path, advance: Advance, say: Say) -> Path:
    """Download an archive, unless it lies there already; only what has the right digest gets its name."""
    file, part = out / archive.name, out / f"{archive.name}.part"
    if file.exists():
        _check_file(archive, file, advance)
        forget(part)
        return file
    url = f"{site.rstrip('/')}/{archive.name}"
    for _ in range(2):
        pieced = download(
            url, part, archive.size, lambda *done: advance(f"Downloading {archive.name}", *done), say
        )
        found = _digest(archive, part, advance)
        if found == archive.sha256:
            os.replace(part, file)
            forget(part)
            return file
        forget(part)
        if not pieced:
            break
        say(f"The pieces of {archive.name} do not fit together: downloading it once more as a whole.")
    raise UserError(
        f"{url} is not the published file: its SHA-256 is {found}, expected {archive.sha256}. It was removed."
        " Get the file elsewhere and name it with --archive."
    )


def _check_file(archive: Archive, file: Path, advance: Advance) -> None:
    found = _digest(archive, file, advance)
    if found != archive.sha256:
        raise UserError(
            f"{file} is not the published {archive.name}: its SHA-256 is {found}, expected {archive.sha256}."
            " Delete it and download it again; it was left as it is."
        )


def _digest(archive: Archive, file: Path, advance: Advance) -> str:
    digest, done, total = hashlib.sha256(), 0, size_of(file)
    try:
        with file.open("rb") as content:
            while chunk := content.read(CHUNK):
                digest.update(chunk)
                done += len(chunk)
                advance(f"Checking {archive.name}", done, total)
    except OSError as error:
        raise UserError(f"Cannot read {file}: {error.strerror}.") from error
    return digest.hexdigest()


def _unpack(archive: Archive, file: Path, out: Path, advance: Advance) -> None:
    unpack(
        file,
        out / archive.folder,
        2 * archive.unpacked,
        lambda *done: advance(f"Unpacking {archive.name}", *done),
        top=archive.top,
        expected=archive.holds,
        complete=True,  # by its digest
    )
