"""`segue scenario`: manifests of a rule, and from other code bases' index lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from segue.core.errors import UserError
from segue.core.manifest import manifest, write_manifest
from segue.core.progress import Display
from segue.data.index_lists import lists_to_keys, read_index_lists
from segue.engine.build import build_scenario, index_classes, open_sets
from segue.engine.data import build_data
from segue.engine.recipe import resolve


def write_scenario(out: Path, on: str, split: str, mode: str | None, words: Sequence[str]) -> None:
    """The images that the rule of a mode gives to each step."""
    data = build_data(resolve("finetune", on, split, mode, words), Display())
    _write(out, data.manifest(), ["by the rule"] * len(data.scenario))


def import_scenario(
    folder: Path, out: Path, on: str, split: str, mode: str | None, words: Sequence[str]
) -> None:
    """The images that index lists give to each step, held against the classes in them."""
    config = resolve("finetune", on, split, mode, words)
    if getattr(config.data, "skip", None) is not None:
        raise UserError("Index lists count all images: leave out data.skip here.")
    train_set, _ = open_sets(config)
    scenario, _ = build_scenario(config, train_set)
    lists = read_index_lists(folder, len(scenario))
    keys, compared = lists_to_keys(
        train_set.keys, lists, index_classes(train_set, "train", Display()), scenario
    )
    remarks = [
        "as by the rule" if each.same else f"rule: {each.missing} missing, {each.extra} more"
        for each in compared
    ]
    _write(out, manifest(scenario, keys), remarks)


def _write(out: Path, document: Mapping[str, Any], remarks: Sequence[str]) -> None:
    write_manifest(out, document)
    table = Table(title=f"{document['dataset']}, {document['policy']['mode']}")
    for title in ("step", "classes", "images"):
        table.add_column(title, justify="right")
    table.add_column("which")
    for step, remark in zip(document["steps"], remarks, strict=True):
        table.add_row(str(step["step"]), str(len(step["new"])), f"{step['images']:,}", remark)
    console = Console()
    console.print(table)
    console.print(f"{out}: {document['hash']}", markup=False, highlight=False, soft_wrap=True)
