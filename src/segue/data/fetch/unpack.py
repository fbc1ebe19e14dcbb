"""Unpack a tar or zip that need not be trusted: the wanted folder appears whole, or not at all.

tarfile's data filter and zipfile keep members inside the folder. On top of that no links and no devices are
taken, names that lead elsewhere are refused instead of bent, and the size is bounded.
"""

from __future__ import annotations

import os
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PureWindowsPath

from segue.core.errors import UserError
from segue.data.fetch.bars import ByteBars
from segue.data.fetch.sources import Archive

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OverflowError)
"""errors of archives that cannot be read; RuntimeError: zipfile's of encrypted and unusual ones"""

Admit = Callable[[str, int, bool], None]
"""refuses a member by name, size and whether it is a plain file or folder"""


class _Refused(Exception):
    """Why an archive is not unpacked."""


def unpack(file: Path, archive: Archive, work: Path, folder: Path, bars: ByteBars) -> None:
    """Unpack into `work`, which is temporary, then move the wanted folder of the archive to `folder`."""
    task = bars.add_task(f"Unpacking {archive.name}", total=archive.unpacked)
    total, most = 0, 2 * archive.unpacked

    def admit(name: str, size: int, plain: bool) -> None:
        nonlocal total
        windows = PureWindowsPath(name)  # also reads "C:" and "\" as other systems do
        if windows.anchor or ".." in windows.parts:
            raise _Refused(f"{name!r} leads out of the folder")
        if not plain:
            raise _Refused(f"{name!r} is neither a plain file nor a folder")
        total += size
        if size < 0 or total > most:
            raise _Refused(f"it unpacks to more than {most:,} bytes")
        bars.update(task, completed=total)

    try:
        (_unpack_zip if archive.name.endswith(".zip") else _unpack_tar)(file, work, admit)
        wanted = work / archive.top
        for name in archive.holds:
            if not (wanted / name).is_dir():
                raise _Refused(f"the folder '{archive.top}/{name}' is not in it")
    except _Refused as refused:
        raise UserError(f"{file} is not unpacked: {refused}.") from None
    except DAMAGED as error:
        raise UserError(f"{file} is not unpacked: it is damaged or no such archive ({error}).") from error
    if hasattr(os, "sync"):
        os.sync()  # a power cut after the renaming leaves no empty files
    folder.parent.mkdir(parents=True, exist_ok=True)
    os.rename(wanted, folder)
    bars.update(task, completed=archive.unpacked)


def _unpack_tar(file: Path, work: Path, admit: Admit) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise _Refused(
            f"Python {sys.version.split()[0]} has no safe way to do it (tarfile's data filter)."
            " Use Python 3.11.4, 3.12 or a later one"
        )

    def only_plain(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        admit(member.name, member.size, member.isfile() or member.isdir())
        return tarfile.data_filter(member, path)

    with tarfile.open(file) as packed:
        packed.extractall(work, filter=only_plain)


def _unpack_zip(file: Path, work: Path, admit: Admit) -> None:
    with zipfile.ZipFile(file) as packed:
        for member in packed.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            admit(member.filename, member.file_size, kind in (0, stat.S_IFREG, stat.S_IFDIR))
            packed.extract(member, work)  # never writes more than file_size
