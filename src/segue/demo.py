"""The demonstration: four methods on the embedded data set over three steps, then a table and a page."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console

from segue.core.records import RunRecord, read_run
from segue.engine.grid import Job, run_all
from segue.engine.progress import Display
from segue.engine.recipe import resolve
from segue.report import results_table, write_report

METHODS = ("finetune", "mib", "caf", "joint")
SPLIT = "5-2"


def demo(folder: Path, seed: int = 42, device: str = "auto", console: Console | None = None) -> Path:
    """Run what is not done yet (a finished demo starts anew), show the table, write the page."""
    console = console or Console()
    display, began = Display(console), time.monotonic()
    anew = all(_finished(folder / name) for name in METHODS)
    display.say(
        "Segue demo: 9 classes of textured shapes arrive in 3 steps (5, then 2, then 2).\n"
        "In each step only the new classes are labelled; old ones hide in the background.\n"
        "finetune forgets, mib and caf are made to keep, joint sees everything at once."
    )
    recipes = {name: resolve(name, "scenes", SPLIT, overrides=[f"train.seed={seed}"]) for name in METHODS}
    jobs = [Job(recipe, folder / name, resume=not anew, overwrite=anew) for name, recipe in recipes.items()]
    runs = run_all(jobs, device, display)
    console.print(results_table(runs))
    page = write_report(runs, folder / "report.html")
    display.say(f"{time.monotonic() - began:.0f} s in all. Pictures, curves and attention maps: {page}")
    return page


def _finished(folder: Path) -> bool:
    record: RunRecord | None = read_run(folder) if (folder / "recipe.yaml").is_file() else None
    return record is not None and record.finished
