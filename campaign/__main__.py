"""`make campaign`: all classes of attack, what they found as a table, a JSON file and docs/reliability.md."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from campaign import faults, parsers, requests
from campaign.inputs import TEXTS
from campaign.models import TENSORS
from campaign.page import FORMAT, reliability_page
from campaign.small_run import Attack
from campaign.tally import LeftOut, Tally
from segue.core.records import write_json, write_text
from segue.engine.record import versions

ALL: dict[str, tuple[Attack, int]] = {
    **TEXTS,
    **TENSORS,
    "failing disk": (faults.attack, 300),
    "full disk": (faults.full_disk, 24),
    "requests": (requests.attack, 1200),
    "parsers": (parsers.attack, 32_000),
}
LONG_LIFE = Path(__file__).parents[1] / "results" / "long-life.json"
"""figures of campaign/long_life.py, which the page shows too"""
NEEDS = {"requests": "schemathesis", "parsers": "atheris"}


def campaign(names: list[str], share: float, seed: int) -> Iterator[Tally]:
    """Every class with its share of the tries; those whose tool is not installed are left out."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEGUE_CACHE"] = f"{folder}/cache"
        for name in names:
            tool = NEEDS.get(name)
            if tool is not None and importlib.util.find_spec(tool) is None:
                print(f"{name:<14} left out: {tool} is not installed")
                continue
            attack, tries = ALL[name]
            tally = Tally(name)
            try:
                with tally.timed():
                    attack(tally, max(1, round(tries * share)), seed, Path(folder))
            except LeftOut as reason:
                print(f"{name:<14} left out: {reason}")
                continue
            counts = f"{tally.tries:>6} tries, {tally.refused:>6} refused, {tally.seconds:>6.1f} s of CPU"
            print(f"{name:<14} {counts}, {tally.failures or 'no failure'}", flush=True)
            for example in tally.examples:
                print(f"  {example}")
            yield tally


def _check_same(about: dict[str, Any], path: Path) -> None:
    """Refuse to put classes beside those of a campaign with other settings."""
    stored = json.loads(path.read_text())
    for key, value in about.items():
        if stored[key] != value:
            raise typer.BadParameter(f"{path} has {key} {stored[key]}, this one {value}: leave --only out.")


def _beside_stored(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """What is stored, with the classes of a document in the place of its own, which were run again alone."""
    stored = json.loads(path.read_text())
    fresh = {tally["name"]: tally for tally in document["classes"]}
    classes = {tally["name"]: tally for tally in stored["classes"]} | fresh
    again = sorted({*stored["again"], *fresh})
    return {**stored, "again": again, "classes": [classes[name] for name in ALL if name in classes]}


def main(
    share: Annotated[float, typer.Option(help="Share of the tries of a whole campaign.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of all that is chosen.")] = 0,
    only: Annotated[str, typer.Option(help="Names of classes, such as words,records.")] = "",
    save: Annotated[Path | None, typer.Option(help="File for the JSON.")] = None,
    page: Annotated[Path | None, typer.Option(help="File for the page.")] = None,
) -> None:
    about = {"seed": seed, "share": share, "versions": versions(torch.device("cpu"))}
    beside = save if only and save is not None and save.is_file() else None
    if beside is not None:
        _check_same(about, beside)
    began, found = time.monotonic(), list(campaign(only.split(",") if only else list(ALL), share, seed))
    document: dict[str, Any] = {
        "format": FORMAT,
        **about,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "again": [],
        "classes": [asdict(tally) for tally in found],
    }
    if beside is not None:
        document = _beside_stored(document, beside)
    if save is not None:
        write_json(save, document)
    if page is not None:
        write_text(page, reliability_page(document, json.loads(LONG_LIFE.read_text())))
    failures = sum(sum(tally.failures.values()) for tally in found)
    print(f"{sum(tally.tries for tally in found):,} tries, {failures} failures")
    raise typer.Exit(1 if failures else 0)


if __name__ == "__main__":
    typer.run(main)
