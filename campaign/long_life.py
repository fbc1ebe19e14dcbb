"""One model, extended many times in a row: `python -m campaign.long_life`. How what a step costs grows."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from campaign.jobs import new_images
from campaign.small_run import QUIET, SHORT
from segue.core.records import write_json
from segue.deploy.extend import extend
from segue.deploy.load import load
from segue.engine.recipe import resolve
from segue.engine.record import versions
from segue.engine.run import run

FORMAT = "segue-long-life-1"
ENDS = 5
"""steps at each end whose median is shown"""


@dataclass(frozen=True)
class Cost:
    """What one extension took, and what it left."""

    cpu_seconds: float
    resident_bytes: int
    model_bytes: int
    run_bytes: int


def extensions(method: str, steps: int, place: Path) -> list[Cost]:
    """The cost of each of so many extensions by one class."""
    run(resolve(method, "scenes", "2-1", overrides=SHORT), place / "run", display=QUIET)
    load(place / "run", "cpu").save(place / "0")
    data, costs = new_images(place / "images"), []
    for step in range(1, steps + 1):
        (data / "classes.txt").write_text(f"background\nnumber {step:02d}")
        before, out, began = place / f"{step - 1}", place / f"{step}", time.process_time()
        extend(before, data, out, overrides=["train.epochs_next=1"], display=QUIET, device="cpu", sure=True)
        seconds = round(time.process_time() - began, 3)
        costs.append(Cost(seconds, _resident(), _size(out), _size(place / f"{step}-run")))
    return costs


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def long_life_table(document: dict[str, Any]) -> str:
    """First and last steps side by side."""
    lines = [
        "| method | steps | CPU s a step | memory, MiB | model folder, kB | run folder, kB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for method, costs in document["methods"].items():
        for first in (0, len(costs) - ENDS):
            some = costs[first : first + ENDS]
            seconds, memory, model, folder = (
                statistics.median(cost[name] for cost in some) for name in Cost.__dataclass_fields__
            )
            where = f"{first + 1} to {first + ENDS}"
            sizes = f"{memory / 2**20:.0f} | {model / 1000:.0f} | {folder / 1000:.0f}"
            lines.append(f"| `{method}` | {where} | {seconds:.2f} | {sizes} |")
    return "\n".join(lines)


def main(
    steps: Annotated[int, typer.Option(help="Extensions in a row.")] = 60,
    methods: Annotated[str, typer.Option(help="Methods, such as caf,mib.")] = "caf,mib",
    save: Annotated[Path | None, typer.Option(help="File for the JSON.")] = None,
) -> None:
    torch.set_num_threads(1)
    found = {}
    for method in methods.split(","):
        with tempfile.TemporaryDirectory() as place:
            found[method] = [asdict(cost) for cost in extensions(method, steps, Path(place))]
    document = {"format": FORMAT, "versions": versions(torch.device("cpu")), "methods": found}
    print(long_life_table(document))
    if save is not None:
        write_json(save, document)


if __name__ == "__main__":
    typer.run(main)
