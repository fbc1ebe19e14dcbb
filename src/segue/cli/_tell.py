"""How a result is told: as text, as JSON, and with the command to type next."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from segue.core.errors import shown

if TYPE_CHECKING:
    from segue.core.config import RunConfig
    from segue.core.records import RunRecord
    from segue.report.tables import Sheet


def tell(message: str) -> None:
    Console().print(shown(message), markup=False, highlight=False, soft_wrap=True)


def tell_next(command: str, why: str = "", silent: bool = False) -> None:
    """The command to type next: on stderr, so that a result can be redirected without it."""
    if not silent:
        line = f"Next: segue {command}" + (f"  # {why}" if why else "")
        Console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)


def tell_report(runs: Iterable[RunRecord], silent: bool) -> None:
    """How to see the runs of a study's first setting on one page."""
    for run in islice(runs, 1):
        tell_next(f"report {quote(run.folder.parent)}/*-s*", "curves and pictures", silent)


def as_typed(target: str, on: str | None, split: str | None, mode: str | None, words: Sequence[str]) -> str:
    """The words of a command again, for the one that comes next."""
    options = {"--on": on, "--split": split, "--mode": mode}
    said = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join([target, *said, *words])


def with_needed(config: RunConfig, words: Sequence[str]) -> list[str]:
    """These settings, and what training asks for beside them: the data's folder, the backbone's weights."""
    root = ["data.root=FOLDER"] if getattr(config.data, "root", "none is needed") is None else []
    weights = ["model.pretrained=true"] if config.model.pretrained is None else []
    return [*words, *root, *weights]


def train_command(config: RunConfig, source: Path | None, words: Sequence[str]) -> str:
    """How to train on data that was looked at."""
    words = with_needed(config, words)
    if source is not None:
        return f"train {shlex.join([str(source), *words])}"
    split = config.scenario.split  # a list of classes came from a manifest; offline: nobody said one
    split = split if isinstance(split, str) and split != "offline" else "SPLIT"
    return f"train {as_typed('caf', config.scenario.dataset, split, None, words)}"


def quote(path: str | Path) -> str:
    return shlex.quote(str(path))


def submitted(path: Path | None) -> bool:
    """Whether the command that was typed is to be a Slurm job; it is written, with how to hand it in."""
    if path is None:
        return False
    from segue.studies.submit import write_job

    write_job(path, sys.argv[1:])
    tell(f"Slurm job: {path}. Look at its first lines, then: sbatch {quote(path)}")
    return True


def study_console(quiet: bool, as_json: bool) -> Console:
    """Where a study shows its tables: with --json not on stdout."""
    return Console(stderr=as_json, quiet=quiet and as_json)


def print_json(document: Any) -> None:
    print(json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def sheet_document(sheet: Sheet) -> dict[str, Any]:
    """A table of means and standard deviations for JSON."""
    heads = [" ".join(head) for head in sheet.heads]
    rows = [{"name": name, **dict(zip(heads, cells, strict=True))} for name, cells in sheet.rows]
    return {"title": sheet.title, "rows": rows, "notes": sheet.caption}


def print_tables(runs: list) -> None:
    from segue.report import metrics_table, results_table

    console = Console()
    console.print(results_table(runs))
    console.print(metrics_table(runs))


def _plain(value: Any) -> Any:
    """A value as JSON has it: NaN is null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # a number of numpy
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
