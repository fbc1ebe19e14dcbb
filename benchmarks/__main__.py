"""What things cost, measured side by side as ratios: `python -m benchmarks losses`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from segue.cli._tell import tell
from segue.cli.options import Device, Words
from segue.core.errors import UserError


def command(
    what: Annotated[
        Literal["losses", "step", "caf", "methods", "data", "plan", "export", "serve", "page"],
        typer.Argument(
            metavar="WHAT",
            help="losses: pixel losses against the plain way. step: an iteration against the bare network."
            " caf: CAF against MiB and the plain network. methods: all against fine-tuning. data: reading"
            " against PIL and Python. plan: planned memory against measured. export: ONNX against torch."
            " serve: a server under load against a plain one. page: docs/performance.md from stored figures.",
        ),
    ],
    words: Words = None,
    case: Annotated[
        str | None, typer.Option("--case", help="caf, step, export: resnet101 or small; both if not given.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods", metavar="NAMES", help="methods, export: those to measure, such as mib,caf."
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option("--images", min=1, help="data: files of the class index; 4,000.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="Measurements of each kind: 5; methods 15; step, data, plan 3."),
    ] = None,
    seconds: Annotated[
        int | None, typer.Option("--seconds", min=1, help="serve: time under load of each server; 60.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Write the figures as JSON; page: the page."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Measure time and memory, as ratios from one run.

    python -m benchmarks losses

    python -m benchmarks step --case small

    python -m benchmarks caf --case small method.params.layer.bottleneck=4

    python -m benchmarks methods --methods mib,caf

    python -m benchmarks data --images 20210
    """
    bench = BENCHES[what]
    given = {"--case": case, "KEY=VALUE": words, "--methods": methods, "--images": images}
    given |= {"--save": save, "--rounds": rounds, "--seconds": seconds}
    if said := [name for name, value in given.items() if value and name not in bench.takes]:
        raise UserError(f"{said[0]} does not go with 'python -m benchmarks {what}'.")
    bench.run(Asked(words or [], case, methods, images, rounds or bench.rounds, save, device, seconds))


@dataclass(frozen=True)
class Asked:
    """What was said to `python -m benchmarks`, and how many rounds there will be."""

    words: list[str]
    case: str | None
    methods: str | None
    images: int | None
    rounds: int
    save: Path | None
    device: str
    seconds: int | None = None


@dataclass(frozen=True)
class Bench:
    """How one is started, which options go with it, and its rounds if none are asked for."""

    run: Callable[[Asked], object]
    takes: set[str]
    rounds: int = 0


def _bench_losses(asked: Asked) -> None:
    from benchmarks.losses import bench_losses

    bench_losses(asked.rounds, asked.device, asked.save)


def _bench_step(asked: Asked) -> None:
    from benchmarks.step import bench_step

    bench_step(_networks(asked.case), asked.rounds, asked.device, asked.save)


def _bench_caf(asked: Asked) -> None:
    from benchmarks.caf import bench_caf

    bench_caf(_networks(asked.case), asked.words, asked.rounds, asked.device, asked.save)


def _bench_methods(asked: Asked) -> None:
    from benchmarks.methods import bench_methods

    names = [name.strip() for name in (asked.methods or "all").split(",")]
    bench_methods(names, asked.rounds, asked.save, asked.device)


def _bench_data(asked: Asked) -> None:
    from benchmarks.data import bench_data

    bench_data(asked.images, asked.rounds, device=asked.device, save=asked.save)


def _bench_plan(asked: Asked) -> None:
    from benchmarks.plan import bench_plan

    bench_plan(asked.rounds, asked.device, asked.save)


def _bench_export(asked: Asked) -> None:
    from benchmarks.export import bench_export
    from benchmarks.families import NETWORKS

    names = [name.strip() for name in (asked.methods or "all").split(",")]
    bench_export(names, _networks(asked.case), list(NETWORKS), asked.rounds, asked.save)


def _bench_serve(asked: Asked) -> None:
    from benchmarks.serve import bench_serve

    bench_serve(asked.seconds or 60, turns=asked.rounds, save=asked.save)


def _bench_page(asked: Asked) -> None:
    from benchmarks.page import write_performance

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
    "export": Bench(_bench_export, {"--case", "--methods", "--save", "--rounds"}, 5),
    "serve": Bench(_bench_serve, {"--save", "--rounds", "--seconds"}, 3),
    "page": Bench(_bench_page, {"--save"}),
}


def _networks(case: str | None) -> list[str]:
    """The networks to measure."""
    from benchmarks.caf import CASES

    if case is not None and case not in CASES:
        raise UserError(f"There is no case '{case}': choose {' or '.join(CASES)}.")
    return [case] if case else list(CASES)


if __name__ == "__main__":
    try:
        typer.run(command)
    except UserError as error:
        raise SystemExit(f"error: {error}") from error
