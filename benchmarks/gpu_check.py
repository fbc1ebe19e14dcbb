"""Whether all of it works on a GPU: `make gpu-check`, one command, one JSON file that can be sent to us.

No GPU was at hand when this was written. On a CPU the same checks run as a rehearsal of themselves.
"""

from __future__ import annotations

import math
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import multiprocessing
from torch.overrides import TorchFunctionMode

from benchmarks.caf import CASES, OPTIM, Case, incremental_method, random_batch
from segue.core import plugins
from segue.core.config import ModelConfig, RunConfig
from segue.core.progress import Display
from segue.core.records import read_run, write_json
from segue.engine.checkpoint import load_strictly, load_tree, save_tree
from segue.engine.device import autocast, pick_device, synchronize
from segue.engine.recipe import resolve
from segue.engine.record import versions
from segue.engine.run import run
from segue.engine.train import update
from segue.testing import CPU, TRAIN, Bench

FORMAT = "segue-gpu-check-1"
Precision = Literal["fp32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
NOT_SYNCED = 0.1
"""largest relative difference of a loss by one and by two processes on the CPU, each with its own norms"""
MORE = 10
"""factor by which a resumed run may differ more than a repeated one"""
LARGEST_DIFFERENCE = 0.02
"""of a loss on both devices after four updates, relative: rounding grows from update to update"""
TINY = Case("tiny, 32 px", ModelConfig(backbone="tiny", head="tiny", output_stride=8), 32, 4, 6, "4-2")
RUN = (
    *("data.classes=3", "data.train=32", "data.test=12", "data.size=32", "eval.samples=0"),
    *("train.crop=32", "train.batch_size=8", "train.epochs=2"),
)
Outcome = dict[str, Any]


def parity(device: torch.device, methods: list[str]) -> Outcome:
    """Losses of each method in its second step, on the CPU and here."""
    found = {}
    for name in methods:
        ours, theirs = (_losses(name, where) for where in (device, CPU))
        difference = max(_apart(ours[key], theirs[key]) for key in theirs)
        found[name] = round(difference, 6)
    return {"ok": max(found.values()) <= LARGEST_DIFFERENCE, "largest relative difference": found}


def _losses(name: str, device: torch.device) -> dict[str, float]:
    bench = Bench(plugins.find("method", name), {}, device=device)
    method = bench.method()
    *before, last = bench.scenario.steps[:2]
    with _DrawnOnCpu():
        for step in before:
            session = bench.begin(method, step)
            bench.train(session, step, range(2))
            bench.finish(session, step)
        session = bench.begin(method, last)
        bench.train(session, last, range(2))
        if not method.trains(last):
            return {"score": float(method.eval().predict(bench.batch(last, 7).images).detach().mean())}
        terms = update(session, bench.batch(last, 7), OPTIM.clip, TRAIN)
    return {key: float(value) for key, value in terms.items()}


class _DrawnOnCpu(TorchFunctionMode):
    """The same random numbers on every device: generators of two devices never agree."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if func in (torch.rand, torch.randn, torch.randint, torch.randperm) and given.get("device"):
            return func(*args, **{**given, "device": CPU}).to(given["device"])
        return func(*args, **given)


def precisions(device: torch.device, methods: list[str]) -> Outcome:
    """Two updates of each method in each of two steps and number formats: finite losses and weights."""
    bad = []
    for name in methods:
        for precision in PRECISIONS:
            if not _is_finite(name, device, precision):
                bad.append(f"{name} in {precision}")
    return {"ok": not bad, "not finite": bad}


def _is_finite(name: str, device: torch.device, precision: Precision) -> bool:
    bench, train = Bench(plugins.find("method", name), {}, device=device), replace(TRAIN, precision=precision)
    method = bench.method()
    for step in bench.scenario.steps[:2]:
        with autocast(device, precision):  # as in a run
            session = bench.begin(method, step)
        session.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
        for seed in range(2) if method.trains(step) else ():
            terms = update(session, bench.batch(step, seed), OPTIM.clip, train)
            if not all(math.isfinite(float(value)) for value in terms.values()):
                return False
        bench.finish(session, step)
    return all(bool(parameter.isfinite().all()) for parameter in method.parameters())


def resumes(device: torch.device, methods: list[str]) -> Outcome:
    """A method restored from its checkpoints goes on as if it had never stopped.

    Bit for bit, if two runs that never stopped agree: sums on a GPU may depend on the order of its threads.
    """
    found, bad = {}, []
    for name in methods:
        bench = Bench(plugins.find("method", name), {}, device=device)
        straight, again = _trained(bench), _trained(bench)
        with tempfile.TemporaryDirectory() as place:
            stopped = _trained(bench, Path(place))
        found[name] = {"resumed": _difference(stopped, straight), "repeated": _difference(again, straight)}
        resumed, repeated = found[name]["resumed"], found[name]["repeated"]
        if not math.isfinite(resumed) or resumed > MORE * repeated:
            bad.append(name)
    return {"ok": not bad, "differ": bad, "largest relative difference": found}


def _trained(bench: Bench, place: Path | None = None) -> dict[str, Any]:
    """The state after two steps; with a place, it goes through files inside the second."""
    method = bench.method()
    *before, last = bench.scenario.steps[:2]
    for step in before:
        session = bench.begin(method, step)
        bench.train(session, step, range(2))
        bench.finish(session, step)
    if place is not None:
        save_tree(place / "finished.safetensors", method.state_dict())
    session = bench.begin(method, last)
    bench.train(session, last, range(2))
    if place is not None:
        save_tree(place / "inside.safetensors", session.state_dict())
        method = bench.method()
        for step in before:
            method.pass_through(step)
        load_strictly(method, load_tree(place / "finished.safetensors"), place)
        session = bench.begin(method, last)
        session.load_state_dict(load_tree(place / "inside.safetensors"))
    bench.train(session, last, range(2, 4))
    bench.finish(session, last)
    return method.state_dict()


def _difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Of all tensors the largest difference, relative to the largest number in its tensor."""
    assert ours.keys() == theirs.keys(), "a resumed method keeps something else"
    largest = 0.0
    for name, value in theirs.items():
        a, b = ours[name].cpu().double(), value.cpu().double()
        if a.numel():
            apart = float((a - b).abs().max() / b.abs().max().clamp_min(1e-12))
            largest = max(largest, apart if math.isfinite(apart) else math.inf)
    return largest


def _apart(ours: float, theirs: float) -> float:
    """Difference of two losses, relative to the second; of a loss that is no number, infinite."""
    apart = abs(ours - theirs) / max(abs(theirs), 1e-3)
    return apart if math.isfinite(apart) else math.inf


def two_processes(device: torch.device, methods: list[str]) -> Outcome:
    """A run by two processes, with a GPU each, against the same run by one."""
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        return {"ok": True, "skipped": f"{torch.cuda.device_count()} GPU"}
    with tempfile.TemporaryDirectory() as place, socket.socket() as free:
        run(_recipe(), Path(place) / "1", device=device.type, display=Display(quiet=True))
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        # not forked from this one, which may hold a GPU already
        multiprocessing.get_context("forkserver").set_forkserver_preload([__name__])
        given = (address, str(Path(place) / "2"), device.type)
        multiprocessing.start_processes(_one_of_two, given, nprocs=2, start_method="forkserver")
        one, two = (read_run(Path(place) / str(count)).steps for count in (1, 2))
    matrices = one[-1].matrix, two[-1].matrix
    share = float(abs(matrices[0] - matrices[1]).sum() / (2 * matrices[0].sum()))
    pairs = [(step.losses[name], other.losses[name]) for step, other in zip(one, two, strict=True)
             for name in step.losses]  # fmt: skip
    apart = max(_apart(b, a) for a, b in pairs)
    return {
        "ok": share < 0.05 and apart <= (LARGEST_DIFFERENCE if device.type == "cuda" else NOT_SYNCED),
        "share of pixels that differ": round(share, 5),
        "largest relative difference of a loss": round(apart, 5),
    }


def _recipe() -> RunConfig:
    return resolve("mib", "scenes", "2-1", overrides=RUN)


def _one_of_two(rank: int, address: dict[str, str], folder: str, device: str) -> None:
    """What torchrun would start."""
    known = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "check"}
    os.environ.update(address | known)
    run(_recipe(), folder, device=device, display=Display(quiet=True))


def throughput(device: torch.device, methods: list[str]) -> Outcome:
    """Images per second in training."""
    case = CASES["small"] if device.type != "cpu" else TINY
    found: dict[str, float] = {}
    for name in ("mib", "caf"):
        session, batch = incremental_method(name, {}, case, device), random_batch(case, device)
        for rounds in (3, 10):  # the first are slower
            synchronize(device)
            began = time.perf_counter()
            for _ in range(rounds):
                update(session, batch, OPTIM.clip, case.train)
            synchronize(device)
        found[name] = round(rounds * case.batch / (time.perf_counter() - began), 2)
    return {"ok": True, "network": case.about, "images per second": found}


CHECKS: dict[str, Callable[[torch.device, list[str]], Outcome]] = {
    "parity": parity,
    "precisions": precisions,
    "resume": resumes,
    "two processes": two_processes,
    "throughput": throughput,
}


def check(device: str, save: Path | None, methods: list[str], checks: list[str]) -> bool:
    """Carry out checks; one that raises has failed, and the others go on."""
    where = pick_device(device)
    document: dict[str, Any] = {"format": FORMAT, "versions": versions(where), "checks": {}}
    for name in checks:
        began = time.perf_counter()
        try:
            outcome = CHECKS[name](where, methods)
        except Exception as error:
            outcome = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        outcome["seconds"] = round(time.perf_counter() - began, 1)
        document["checks"][name] = outcome
        print(f"{'ok    ' if outcome['ok'] else 'FAILED'} {name}: {outcome}", flush=True)
    document["ok"] = all(each["ok"] for each in document["checks"].values())
    if save is not None:
        write_json(save, document)
        print(f"Written: {save}. Please send it to us, whatever it says.")
    return bool(document["ok"])


def main(
    device: Annotated[str, typer.Option(help="cuda, or cpu for a rehearsal.")] = "auto",
    save: Annotated[Path | None, typer.Option(help="File for the JSON.")] = None,
    methods: Annotated[str, typer.Option(help="Names, such as mib,caf; all if not given.")] = "",
    checks: Annotated[str, typer.Option(help="Names of checks; all if not given.")] = "",
) -> None:
    names = methods.split(",") if methods else list(plugins.names("method"))
    raise typer.Exit(0 if check(device, save, names, checks.split(",") if checks else list(CHECKS)) else 1)


if __name__ == "__main__":
    typer.run(main)
