"""Commands on many runs: demo, ablate, compare; measurements and lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from segue.cli.options import (
    ON,
    Device,
    ModeOption,
    Page,
    RecipeWords,
    Seed,
    Seeds,
    SplitOption,
    Words,
    recipe_and_words,
    settings,
    tell,
)
from segue.core.errors import UserError


def run_demo(
    words: Words = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for runs and page.")] = Path("demo"),
    seed: Seed = None,
    device: Device = "auto",
) -> None:
    """Show the point in a few minutes: fine-tuning forgets, MiB and CAF keep. No data needed."""
    from segue.demo import demo

    demo(out, settings(words, seed), device)


def run_ablations(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE",
            help="table3, table5, table6, table7, figure6-kd, figure6-ad, variants, layers; all.",
        ),
    ],
    on: Annotated[str, ON],
    split: SplitOption = None,
    mode: ModeOption = None,
    seeds: Seeds = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the runs.")] = Path("runs/ablations"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run the rows of the paper's ablation tables, the paper's numbers beside ours.

    segue ablate table3 --on scenes --seeds 3

    Rows that are done are not run again. KEY=VALUE settings may follow the tables.

    Without --split and --mode: the paper's on voc, 5-2 overlapped on scenes.
    """
    from segue.ablate import ablate

    words = [word for word in tables if "=" in word]
    names = [word for word in tables if "=" not in word]
    ablate(names, on, split, mode, words, seeds, out, page, device)


def run_comparison(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all, or names and .py files: mib,caf,mine.py.")
    ] = "all",
    seeds: Seeds = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the runs.")] = Path("runs/compare"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run many methods in one setting: a line each, with scores, forgetting, time and memory.

    segue compare --on scenes --split 4-2 --methods all --seeds 3

    segue compare voc256.yaml --on folder --split 6-1 data.root=FOLDER model.weights=FILE

    Runs that are done are not run again, and a step 0 that several methods share is trained once. KEY=VALUE
    settings apply to all methods; a recipe (.yaml) may have a section of its own for each.
    """
    from segue.compare import compare_methods

    names = [name.strip() for name in methods.split(",")]
    recipe, said = recipe_and_words(words)
    compare_methods(names, on, split, mode, said, recipe, seeds, out, page, device)


def run_bench(
    what: Annotated[
        Literal["losses", "step", "caf", "methods", "data", "plan", "page"],
        typer.Argument(
            metavar="WHAT",
            help="losses: pixel losses against the plain way. step: an iteration against the bare network."
            " caf: CAF against MiB and the plain network. methods: all against fine-tuning. data: reading"
            " against PIL and Python. plan: planned memory against measured. page: docs/performance.md from"
            " stored figures.",
        ),
    ],
    words: Words = None,
    case: Annotated[
        str | None, typer.Option("--case", help="caf, step: resnet101 or small; both if not given.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="NAMES", help="methods: those to measure, such as mib,caf."),
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", min=1, help="data: files of the class index; 4,000.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Measurements of each kind: 5; methods 15; step, data, plan 3."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the figures as JSON; page: the page."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Measure time and memory, as ratios from one run.

    segue bench losses

    segue bench step --case small

    segue bench caf --case small method.params.layer.bottleneck=4

    segue bench methods --methods mib,caf

    segue bench data --images 20210
    """
    given = {"--case": case, "KEY=VALUE": words, "--methods": methods, "--images": images}
    given |= {"--save": save, "--rounds": rounds}
    if said := [name for name, value in given.items() if value and name not in BENCHES[what]]:
        raise UserError(f"{said[0]} does not go with 'segue bench {what}'.")
    if what == "losses":
        from segue.bench.losses import bench_losses

        bench_losses(rounds or 5, device, save)
    elif what == "step":
        from segue.bench.step import bench_step

        bench_step(_networks(case), rounds or 3, device, save)
    elif what == "data":
        from segue.bench.data import bench_data

        bench_data(images, rounds or 3, device=device, save=save)
    elif what == "methods":
        from segue.bench.methods import bench_methods

        names = [name.strip() for name in (methods or "all").split(",")]
        bench_methods(names, rounds or 15, save, device)
    elif what == "plan":
        from segue.bench.plan import bench_plan

        bench_plan(rounds or 3, device, save)
    elif what == "page":
        from segue.report.performance import write_performance

        page = save or Path("docs/performance.md")
        write_performance(Path("results"), page)
        tell(f"Page: {page}")
    else:
        from segue.bench.caf import bench_caf

        bench_caf(_networks(case), words or [], rounds or 5, device, save)


BENCHES = {
    "losses": {"--save", "--rounds"},
    "step": {"--case", "--save", "--rounds"},
    "caf": {"--case", "KEY=VALUE", "--save", "--rounds"},
    "methods": {"--methods", "--save", "--rounds"},
    "data": {"--save", "--images", "--rounds"},
    "plan": {"--save", "--rounds"},
    "page": {"--save"},
}
"""what goes with each"""


def _networks(case: str | None) -> list[str]:
    """The networks to measure."""
    from segue.bench.caf import CASES

    if case is not None and case not in CASES:
        raise UserError(f"There is no case '{case}': choose {' or '.join(CASES)}.")
    return [case] if case else list(CASES)


def list_things(
    what: Annotated[
        Literal["methods", "datasets", "backbones", "recipes"],
        typer.Argument(metavar="WHAT", help="methods, datasets, backbones or recipes."),
    ],
) -> None:
    """List methods, data sets, backbones or recipes."""
    from segue.listing import LISTINGS

    Console().print(LISTINGS[what]())
