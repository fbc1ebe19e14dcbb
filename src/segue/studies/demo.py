"""The demonstration: four methods on the embedded data set over three steps, then one more class for a model
whose images are gone; tables and two pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.engine.folder import check_folder
from segue.engine.recipe import resolve
from segue.report import results_table
from segue.report.html import render
from segue.report.page import write_page
from segue.studies.jobs import Job
from segue.studies.pool import run_all
from segue.studies.second_act import second_act

METHODS = ("finetune", "mib", "caf", "joint")
SPLIT = "5-2"
EXTENDED = "caf"
"""method whose model learns one more class in the second act"""
BESIDE = "One more class for CAF's model without the old images: before, after, verdict"


def demo(
    folder: Path,
    words: Sequence[str] = (),
    device: str = "auto",
    console: Console | None = None,
    quiet: bool = False,
) -> Path:
    """Run what is not done yet, show the table, write the page. A finished demo starts anew."""
    console = console or Console()
    display, began, page = Display(console, quiet), time.monotonic(), folder / "report.html"
    recipes = {name: resolve(name, "scenes", SPLIT, overrides=words) for name in METHODS}
    fits = all(_fits(folder / name, recipe) for name, recipe in recipes.items())
    anew = page.exists() or not fits
    display.say(
        "Segue demo: 9 classes of textured shapes arrive in 3 steps (5, then 2, then 2).\n"
        "In each step only the new classes are labelled; old ones hide in the background.\n"
        "finetune forgets, mib and caf are made to keep, joint sees everything at once."
    )
    page.unlink(missing_ok=True)
    jobs = [Job(recipe, folder / name, resume=not anew, overwrite=anew) for name, recipe in recipes.items()]
    runs = run_all(jobs, device, display)
    console.print(results_table(runs))
    data = recipes[EXTENDED].data
    verdict = second_act(folder, folder / EXTENDED, data, anew, device, display, console)
    beside = {BESIDE: verdict.relative_to(folder).as_posix()} if verdict is not None else {}
    write_page(page, render(runs, beside))
    display.say(f"{time.monotonic() - began:.0f} s in all. Pictures, curves and attention maps: {page}")
    if verdict is not None:
        display.say(f"Before, after and verdict of the second act: {verdict}")
    return page


def _fits(folder: Path, recipe: RunConfig) -> bool:
    """Whether a run in this folder can go on with this recipe."""
    try:
        check_folder(folder, recipe, resume=True, overwrite=False)
    except UserError:
        return False
    return True
