"""Commands on many runs: demo, ablate, compare; measurements and lists."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from segue.cli.options import ON, SPLIT, Device, ModeOption, Page, Seed, Seeds, SplitOption, Words, settings
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
    split: Annotated[str, SPLIT],
    words: Words = None,
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

    Runs that are done are not run again. KEY=VALUE settings apply to all methods.
    """
    from segue.compare import compare_methods

    names = [name.strip() for name in methods.split(",")]
    compare_methods(names, on, split, mode, words or [], seeds, out, page, device)


def run_bench(
    what: Annotated[
        Literal["caf", "methods", "data"],
        typer.Argument(
            metavar="WHAT",
            help="caf: CAF against MiB and the plain network. methods: all against fine-tuning."
            " data: reading against PIL and Python.",
        ),
    ],
    words: Words = None,
    case: Annotated[
        str | None, typer.Option("--case", help="caf: resnet101 or small; both if not given.")
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
        typer.Option(
            "--rounds", min=1, help="Measurements of each kind: 5 for caf, 15 for methods, 3 for data."
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FILE", help="methods, data: write the figures as JSON.")
    ] = None,
    device: Device = "auto",
) -> None:
    """Measure time and memory, as ratios from one run.

    segue bench caf --case small method.params.layer.bottleneck=4

    segue bench methods --methods mib,caf

    segue bench data --images 20210
    """
    options = {"--case": case, "KEY=VALUE": words, "--methods": methods, "--save": save, "--images": images}
    own = {"caf": ("--case", "KEY=VALUE"), "methods": ("--methods", "--save"), "data": ("--save", "--images")}
    if said := [name for name, value in options.items() if value and name not in own[what]]:
        raise UserError(f"{said[0]} does not go with 'segue bench {what}'.")
    if what == "data":
        from segue.bench.data import bench_data

        bench_data(images, rounds or 3, device=device, save=save)
    elif what == "methods":
        from segue.bench.methods import bench_methods

        names = [name.strip() for name in (methods or "all").split(",")]
        bench_methods(names, rounds or 15, save, device)
    else:
        from segue.bench.caf import CASES, bench_caf

        if case is not None and case not in CASES:
            raise UserError(f"There is no case '{case}': choose {' or '.join(CASES)}.")
        bench_caf([case] if case else list(CASES), words or [], rounds or 5, device)


def list_things(
    what: Annotated[
        Literal["methods", "datasets", "backbones", "recipes"],
        typer.Argument(metavar="WHAT", help="methods, datasets, backbones or recipes."),
    ],
) -> None:
    """List methods, data sets, backbones or recipes."""
    from segue.listing import LISTINGS

    Console().print(LISTINGS[what]())
