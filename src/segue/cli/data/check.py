"""`segue data check`: whether training can start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from segue.cli._tell import as_typed, print_json, tell, tell_next, train_command
from segue.cli.data._recipe import data_recipe
from segue.cli.options import (
    Device,
    Json,
    Manifest,
    ModeOption,
    On,
    Quiet,
    SourceWords,
    SplitOption,
    source_and_words,
    with_manifest,
)

if TYPE_CHECKING:
    from segue.plan.checkup import Checkup

PLACE = 3


def command(
    words: SourceWords = None,
    on: On = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    manifest: Manifest = None,
    skip_bad: Annotated[
        Path | None,
        typer.Option("--skip-bad", metavar="FILE", help="Write a list of bad files, for data.skip=FILE."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option("--page", metavar="FILE", help="Also write an HTML page with plots.")
    ] = None,
    device: Device = "auto",
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Read every file once and say whether training can start.

    segue data check --on voc --split 15-5 data.root=FOLDER

    segue data check my.yaml

    Exit code 0: ready. 1: not ready. 2: the command is wrong.
    """
    from segue.core.progress import Display

    source, said = source_and_words(words)
    notes: list[str] = []
    config = data_recipe(on, split, mode, with_manifest(said, manifest), source, device, notes.append)

    from segue.plan.checkup import check_data  # torch: not before the recipe is known to be sound

    found = check_data(config, skip_bad, device, Display(quiet=quiet))
    written = [f"Page: {_write_page(page, found)}"] if page is not None else []
    ready = found.diagnosis.errors == 0
    if as_json:
        print_json({"ready": ready, **vars(found)})
    else:
        _print(found, [*notes, *written, *_advice(found, skip_bad)], quiet)
    if not ready:
        typed = [*([str(source)] if source else []), *with_manifest(said, manifest)]
        again = f"data {as_typed('check', on, split, mode, typed)}"
        tell_next(again, "once it is mended", silent=quiet or as_json)
        raise typer.Exit(1)
    skip = [f"data.skip={skip_bad}"] if skip_bad and found.bad else []
    tell_next(train_command(config, source, [*said, *skip]), silent=quiet or as_json)


def _print(found: Checkup, more: list[str], quiet: bool) -> None:
    from segue.report.checkup import checkup_tables, finding_text, verdict

    console = Console()
    if not quiet:
        console.print(checkup_tables(found.diagnosis))
    for finding in found.diagnosis.findings:
        console.print(finding_text(finding), soft_wrap=True)  # a path that is broken cannot be copied
    for line in () if quiet else (*found.notes, *found.costs, *more):
        tell(line)
    tell(verdict(found.diagnosis))


def _write_page(page: Path, found: Checkup) -> Path:
    from segue.report.checkup import write_checkup

    return write_checkup(page, found.diagnosis, found.costs)


def _advice(found: Checkup, skip_bad: Path | None) -> Iterator[str]:
    """What to do about bad files, as long as good ones are left."""
    from segue.data.doctor.diagnosis import numbered

    if not any(found.diagnosis.images.values()):
        return
    if skip_bad is not None:
        bad = numbered(found.bad, "bad image")
        yield f"{bad} found; leave out what {skip_bad} lists: data.skip={skip_bad}"
    elif found.bad:
        yield "Mend these files, or leave them out: add --skip-bad skip.json."
