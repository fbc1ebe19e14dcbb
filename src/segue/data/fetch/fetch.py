"""`segue data fetch`: a data set from the web, or from archives got by hand.

Everything is made in a temporary folder inside the wanted one and moved to its place when it is whole.
A command that was stopped can be repeated: what is in place is not fetched again.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pooch
from rich.console import Console
from rich.filesize import decimal

from segue.core.errors import UserError, reason
from segue.core.ordinary import user_path
from segue.data.fetch.bars import ByteBars
from segue.data.fetch.download import download
from segue.data.fetch.sources import SBD_NOTE, SOURCES, Archive, Source
from segue.data.fetch.unpack import unpack

WORK_FOLDER = ".fetch-"
"""beginning of the name of temporary folders"""


def fetch_data(name: str, out: Path, archives: Sequence[Path] = (), mirror: str | None = None) -> Path:
    """Put the data set `name` below the folder `out`; returns its own folder.

    `archives` are files that the user downloaded; they are checked and left as they are. `mirror` is the
    address of a folder on the web that has the archives.
    """
    source, out = SOURCES[name], user_path(out)
    root = out / source.root
    local = _local_archives(source, out, archives)
    missing = _missing(source, out)
    if mirror is None:
        _check_by_hand(name, source, out, [archive for archive in missing if archive.site is None], local)
    bars = ByteBars()
    try:
        if missing:
            with bars:
                _fetch(missing, out, local, mirror, bars)
        else:
            bars.say(f"{source.title} is already there: {root}. Nothing was fetched.")
    except OSError as error:
        place = error.filename or out
        raise UserError(f"Cannot fetch {name}: {reason(error)} ({place}).") from error
    lines = [source.terms]
    if name == "voc" and not (root / "SegmentationClassAug").is_dir():
        lines.append(SBD_NOTE.format(root=root))
    Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return root


def _missing(source: Source, out: Path) -> list[Archive]:
    """Archives that are not unpacked yet. A folder appears whole, so one that is there is complete."""
    missing = []
    for archive in source.archives:
        folder = out / archive.folder
        if not os.path.lexists(folder):
            missing.append(archive)
        elif not all((folder / name).is_dir() for name in archive.holds):
            raise UserError(
                f"{folder} exists, but is not the folder of {source.title}: it lacks one of"
                f" {', '.join(archive.holds)}. Move it away, or name another folder with --out."
            )
    return missing


def _local_archives(source: Source, out: Path, files: Sequence[Path]) -> dict[Archive, Path]:
    """Archives that need no download: those in `out`, and the user's, known by size as browsers rename."""
    local = {a: out / a.name for a in source.archives if (out / a.name).is_file()}
    for file in (user_path(file) for file in files):
        if not file.is_file():
            raise UserError(f"The archive {file} {'is no file' if file.exists() else 'does not exist'}.")
        size = file.stat().st_size
        matches = [archive for archive in source.archives if archive.size == size]
        if not matches:
            wanted = " nor ".join(f"{a.name} ({a.size:,} bytes)" for a in source.archives)
            raise UserError(f"{file} ({size:,} bytes) is not {wanted}. Is the download incomplete?")
        local[matches[0]] = file
    return local


def _check_by_hand(
    name: str, source: Source, out: Path, needed: Sequence[Archive], local: dict[Archive, Path]
) -> None:
    """Say what to get by hand, and how to go on, if archives behind a login are not here."""
    absent = [archive for archive in needed if archive not in local]
    if absent:
        lines = "".join(f"  {archive.name} ({decimal(archive.size)})\n" for archive in absent)
        words = ["segue", "data", "fetch", name, "--out", str(out)]
        words += [word for a in needed for word in ("--archive", str(local.get(a, a.name)))]
        raise UserError(
            f"{source.title} can be downloaded only after a login. {source.terms}\n"
            f"Register at {source.page}, download\n{lines}and unpack with\n  {shlex.join(words)}"
        )


def _fetch(
    missing: Sequence[Archive], out: Path, local: dict[Archive, Path], mirror: str | None, bars: ByteBars
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for folder in sorted(out.glob(f"{WORK_FOLDER}*")):
        bars.say(f"{folder} was left by a command that was killed: delete it if none is running.")
    _check_space(missing, out, local)
    with TemporaryDirectory(prefix=WORK_FOLDER, dir=out) as work:
        for archive in missing:
            if archive in local:
                file = local[archive]
                _check_digest(file, archive)
            else:
                file = out / archive.name
                site = (mirror or archive.site or "").rstrip("/")
                os.replace(download(f"{site}/", archive, Path(work), bars), file)
            unpack(file, archive, Path(work, "unpacked"), out / archive.folder, bars)
            if archive not in local:
                bars.say(f"{file} ({decimal(archive.size)}) is no longer needed: delete it if you like.")


def _check_space(missing: Sequence[Archive], out: Path, local: dict[Archive, Path]) -> None:
    needed = sum(archive.unpacked + (0 if archive in local else archive.size) for archive in missing)
    free = shutil.disk_usage(out).free
    if free < needed:
        raise UserError(
            f"{' and '.join(archive.name for archive in missing)} need {decimal(needed)} in {out}, but only"
            f" {decimal(free)} are free. Make room, or name a folder on another disk with --out."
        )


def _check_digest(file: Path, archive: Archive) -> None:
    digest = pooch.file_hash(str(file))
    if digest != archive.sha256:
        raise UserError(
            f"{file} is not the published {archive.name}: its SHA-256 is {digest}, expected"
            f" {archive.sha256}. It was left as it is: delete it and download it again."
        )
