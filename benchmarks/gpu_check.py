"""Whether all of it works on a GPU: `make gpu-check`, one command, one JSON file that can be sent to us.

No GPU was at hand when this was written. On a CPU the same checks run as a rehearsal of themselves.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from benchmarks.caf import CASES, OPTIM, Case, incremental_method, random_batch
from segue.core import plugins
from segue.core.config import ModelConfig, TrainConfig
from segue.core.records import read_run, write_json
from segue.engine.device import pick_device, synchronize
from segue.engine.record import versions
from segue.engine.train import update
from segue.testing import CPU, TRAIN, Bench
from segue.testing.methods import check_resume

FORMAT = "segue-gpu-check-1"
PRECISIONS = ("fp32", "bf16", "fp16")
LARGEST_DIFFERENCE = 0.02
"""of a loss on both devices after four updates, relative: rounding grows from update to update"""
TINY = Case("tiny, 32 px", ModelConfig(backbone="tiny", head="tiny", output_stride=8), 32, 4, 6, "4-2")
RUN = ("data.train=60", "data.test=20", "data.size=32", "train.crop=32", "train.epochs=2", "eval.samples=0")
Outcome = dict[str, Any]


def parity(device: torch.device, methods: list[str]) -> Outcome:
    """Losses of each method in its second step, on the CPU and here."""
    found = {}
    for name in methods:
        ours, theirs = (_losses(name, where) for where in (device, CPU))
        difference = max(abs(ours[key] - theirs[key]) / max(abs(theirs[key]), 1e-3) for key in theirs)
        found[name] = round(difference, 6)
    return {"ok": max(found.values()) <= LARGEST_DIFFERENCE, "largest relative difference": found}


def _losses(name: str, device: torch.device) -> dict[str, float]:
    bench = Bench(plugins.find("method", name), {}, device=device)
    method = bench.method()
    steps = bench.scenario.steps[:2]
    for step in steps:
        session = bench.begin(method, step)
        bench.train(session, step, range(2))
        if step is not steps[-1]:
            bench.finish(session, step)
    if not method.trains(steps[-1]):
        return {"score": float(method.eval().predict(bench.batch(steps[-1], 7).images).detach().mean())}
    terms = update(session, bench.batch(steps[-1], 7), OPTIM.clip, TRAIN)
    return {key: float(value) for key, value in terms.items()}


def precisions(device: torch.device, methods: list[str]) -> Outcome:
    """Two updates of each method in each number format: finite losses and weights."""
    bad = []
    for name in methods:
        for precision in PRECISIONS if device.type != "cpu" else PRECISIONS[:2]:
            bench = Bench(plugins.find("method", name), {}, device=device)
            method, step = bench.method(), bench.scenario[0]
            session = bench.begin(method, step)
            session.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
            train = TrainConfig(batch_size=4, crop=32, precision=precision)
            for seed in range(2):
                terms = update(session, bench.batch(step, seed), OPTIM.clip, train)
            finite = all(math.isfinite(float(value)) for value in terms.values())
            if not (finite and all(bool(p.isfinite().all()) for p in method.parameters())):
                bad.append(f"{name} in {precision}")
    return {"ok": not bad, "not finite": bad}


def resumes(device: torch.device, methods: list[str]) -> Outcome:
    """A method restored from its state goes on as if it had never stopped, bit for bit."""
    differ = {}
    for name in methods:
        try:
            check_resume(Bench(plugins.find("method", name), {}, device=device))
        except AssertionError as error:
            differ[name] = str(error)
    return {"ok": not differ, "differ": differ}


def two_processes(device: torch.device, methods: list[str]) -> Outcome:
    """A run by two processes, with a GPU each, against the same run by one."""
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        return {"ok": True, "skipped": f"{torch.cuda.device_count()} GPU"}
    with tempfile.TemporaryDirectory() as place:
        matrices = []
        for count in (1, 2):
            out = Path(place) / str(count)
            words = ["train", "mib", "--on", "scenes", "--split", "6-3", "--device", device.type, *RUN]
            torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "-m", "segue"]
            command = [sys.executable, "-m", *torchrun, *words, "--out", str(out), "--quiet"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
            if done.returncode:
                return {"ok": False, "processes": count, "said": done.stderr[-2000:]}
            matrices.append(read_run(out).steps[-1].matrix)
    share = float(abs(matrices[0] - matrices[1]).sum() / (2 * matrices[0].sum()))
    return {"ok": share < 0.05, "share of pixels that differ": round(share, 5)}


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
