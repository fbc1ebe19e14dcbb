"""Commands on many runs: demo, ablate, compare, tune; measurements and lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
            metavar="TABLE... [RECIPE] [KEY=VALUE]",
            help="table3, table5, table6, table7, figure6-kd, figure6-ad, variants, layers; all. Then a"
            " recipe (my.yaml) and settings for all rows.",
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

    segue ablate table3 my.yaml --on voc data.root=FOLDER

    Rows that are done are not run again. A recipe and KEY=VALUE settings may follow the tables.

    Without --split and --mode: the paper's on voc, 5-2 overlapped on scenes.
    """
    from segue.ablate import ablate

    recipe, said = recipe_and_words(tables)
    words = [word for word in said if "=" in word]
    names = [word for word in said if "=" not in word]
    ablate(names, on, split, mode, words, seeds, out, page, device, recipe=recipe)


def run_comparison(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: Annotated[
        list[str] | None,
        typer.Option("--split", help="15-5 or 'cat,dog/person'; several times: a table for each."),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", help="overlapped, disjoint, sequential or divided; several times too."),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all, or names and .py files: mib,caf,mine.py.")
    ] = "all",
    seeds: Seeds = 1,
    out: Annotated[Path, typer.Option("--out", help="Folder for the runs.")] = Path("runs/compare"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Run many methods in one setting or several: a line each, with scores, forgetting, time and memory.

    segue compare --on scenes --split 4-2 --methods all --seeds 3

    segue compare voc256.yaml --on voc --split 15-5 --split 15-1 data.root=FOLDER model.weights=FILE

    Runs that are done are not run again, and a step 0 that several methods share is trained once. KEY=VALUE
    settings apply to all methods; a recipe (.yaml) may have a section of its own for each.
    """
    from segue.compare import compare_methods

    names = [name.strip() for name in methods.split(",")]
    recipe, said = recipe_and_words(words)
    compare_methods(names, on, split or [], mode or [], said, recipe, seeds, out, page, device)


def run_tuning(
    on: Annotated[str, ON],
    words: RecipeWords = None,
    split: SplitOption = None,
    mode: ModeOption = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="all that the recipe tunes, or some: mib,caf.")
    ] = "all",
    out: Annotated[Path, typer.Option("--out", help="Folder for runs and choice.")] = Path("runs/tune"),
    page: Page = None,
    device: Device = "auto",
) -> None:
    """Choose one weight of each method on held-out training images, with equally many trials for all.

    segue tune voc256.yaml --on voc --split 15-1 data.root=FOLDER model.weights=FILE

    The recipe's section 'tune' lists the values. Runs that are done are not run again. What is chosen is
    written to choice.yaml, as a recipe's section 'methods' has it. Test images play no part.
    """
    from segue.tune import tune_methods

    names = [name.strip() for name in methods.split(",")]
    recipe, said = recipe_and_words(words)
    tune_methods(recipe, names, on, split, mode, said, out, page, device)


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
    bench = BENCHES[what]
    given = {"--case": case, "KEY=VALUE": words, "--methods": methods, "--images": images}
    given |= {"--save": save, "--rounds": rounds}
    if said := [name for name, value in given.items() if value and name not in bench.takes]:
        raise UserError(f"{said[0]} does not go with 'segue bench {what}'.")
    bench.run(Asked(words or [], case, methods, images, rounds or bench.rounds, save, device))


@dataclass(frozen=True)
class Asked:
    """What was said to `segue bench`, and how many rounds there will be."""

    words: list[str]
    case: str | None
    methods: str | None
    images: int | None
    rounds: int
    save: Path | None
    device: str


@dataclass(frozen=True)
class Bench:
    """How one is started, which options go with it, and its rounds if none are asked for."""

    run: Callable[[Asked], object]
    takes: set[str]
    rounds: int = 0


def _bench_losses(asked: Asked) -> None:
    from segue.bench.losses import bench_losses

    bench_losses(asked.rounds, asked.device, asked.save)


def _bench_step(asked: Asked) -> None:
    from segue.bench.step import bench_step

    bench_step(_networks(asked.case), asked.rounds, asked.device, asked.save)


def _bench_caf(asked: Asked) -> None:
    from segue.bench.caf import bench_caf

    bench_caf(_networks(asked.case), asked.words, asked.rounds, asked.device, asked.save)


def _bench_methods(asked: Asked) -> None:
    from segue.bench.methods import bench_methods

    names = [name.strip() for name in (asked.methods or "all").split(",")]
    bench_methods(names, asked.rounds, asked.save, asked.device)


def _bench_data(asked: Asked) -> None:
    from segue.bench.data import bench_data

    bench_data(asked.images, asked.rounds, device=asked.device, save=asked.save)


def _bench_plan(asked: Asked) -> None:
    from segue.bench.plan import bench_plan

    bench_plan(asked.rounds, asked.device, asked.save)


def _bench_page(asked: Asked) -> None:
    from segue.report.performance import write_performance

    page = asked.save or Path("docs/performance.md")
    write_performance(Path("results"), page)
    tell(f"Page: {page}")


BENCHES = {
    "losses": Bench(_bench_losses, {"--save", "--rounds"}, 5),
    "step": Bench(_bench_step, {"--case", "--save", "--rounds"}, 3),
    "caf": Bench(_bench_caf, {"--case", "KEY=VALUE", "--save", "--rounds"}, 5),
    "methods": Bench(_bench_methods, {"--methods", "--save", "--rounds"}, 15),
    "data": Bench(_bench_data, {"--images", "--save", "--rounds"}, 3),
    "plan": Bench(_bench_plan, {"--save", "--rounds"}, 3),
    "page": Bench(_bench_page, {"--save"}),
}


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
