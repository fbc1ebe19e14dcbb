"""One iteration: accumulation, clipping, precision, batch norm, seeds."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from tiny_runs import assert_equal_runs, log_lines, quiet_run, recipe, weights

from segue.core.config import OptimConfig, TrainConfig
from segue.engine.device import autocast, pick_device
from segue.engine.seeds import derive_seed
from segue.engine.train import Session, update
from segue.methods.base import Method
from segue.methods.caf import CAF
from segue.methods.mib import MiB
from segue.testing import Bench

CPU = torch.device("cpu")
PLAIN = OptimConfig(lr_first=0.1, lr_next=0.1, momentum=0.0, weight_decay=0.0, clip=None)
"""an update moves the weights by 0.1 times the gradient"""
TRAIN = TrainConfig(batch_size=4, crop=32)


def moved(kind: type[Method], clip: float | None = None, **train: object) -> tuple[torch.Tensor, dict]:
    """How one update at step 1, where the norm is frozen, moves all weights; and its loss terms."""
    bench = Bench(kind, {"modality_dropout": 0.0} if kind is CAF else {})
    method, config = bench.method(), dataclasses.replace(TRAIN, **train)
    for step in bench.scenario[:2]:
        bench.begin(method, step)
    session = Session.start(method, step, PLAIN, config, CPU, torch.Generator().manual_seed(0))
    before = torch.cat([p.detach().flatten().clone() for p in method.parameters()])
    terms = update(session, bench.batch(step, 3), clip, config)
    after = torch.cat([p.detach().flatten() for p in method.parameters()])
    return after - before, terms


@pytest.mark.precision("float64")
@pytest.mark.parametrize("kind", [MiB, CAF])
@pytest.mark.parametrize("parts", [2, 3])
def test_accumulated_parts_equal_the_whole_batch(kind, parts):
    whole, whole_terms = moved(kind)
    split, split_terms = moved(kind, accumulate=parts)
    assert whole.norm() > 5e-3
    assert (split - whole).norm() < 1e-10 * whole.norm()
    assert split_terms.keys() == whole_terms.keys()
    for name, value in whole_terms.items():
        assert split_terms[name].item() == pytest.approx(value.item(), rel=1e-10, abs=1e-14), name


def test_clipping_bounds_the_norm_of_the_whole_gradient():
    free, _ = moved(MiB)
    assert free.norm() > 0.1 * 0.02, "the gradient is longer than the bound"
    clipped, _ = moved(MiB, clip=0.02)
    assert clipped.norm() == pytest.approx(0.1 * 0.02, rel=1e-3)
    assert torch.cosine_similarity(clipped, free, dim=0) > 0.9999, "the direction stays"
    loose, _ = moved(MiB, clip=1e6)
    assert torch.equal(loose, free)


def test_clipping_is_part_of_a_run(tmp_path):
    """At power 0 and without momentum every update moves the weights by at most rate times clip."""
    words = ["optim.clip=1.0e-3", "optim.momentum=0", "optim.weight_decay=0", "optim.poly_power=0"]
    small = ["train.epochs=1", "train.epochs_next=1", "optim.lr_next=0.5", "eval.samples=0"]
    quiet_run(recipe("finetune", *words, *small), tmp_path / "run")
    before, after = weights(tmp_path / "run", 0), weights(tmp_path / "run", 1)
    shared = [name for name in before if "running" not in name and "num_batches" not in name]
    distance = math.sqrt(
        sum((before[name] - after[name]).square().sum().item() for name in shared if name in after)
    )
    assert 0 < distance <= 2 * 0.5 * 1e-3 * (1 + 1e-5), "two iterations"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_low_precision_trains(precision, tmp_path, finished):
    record = quiet_run(recipe("caf", f"train.precision={precision}"), tmp_path / "run")
    exact = log_lines(finished("caf"))
    lines = log_lines(tmp_path / "run")
    assert record.finished and len(lines) == len(exact)
    for line, other in zip(lines, exact, strict=True):
        assert all(math.isfinite(value) for value in line["losses"].values())
        assert line["losses"]["ce"] == pytest.approx(other["losses"]["ce"], rel=0.1)
        assert line["losses"]["ce"] != other["losses"]["ce"], "nothing was rounded: autocast was off"
    for name, value in weights(tmp_path / "run", 1).items():
        assert not value.is_floating_point() or value.dtype == torch.float32, f"{name} is not a master weight"


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_autocast(precision, dtype):
    with autocast(CPU, precision):
        assert torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)).dtype == dtype


def test_gradients_are_scaled_for_fp16_only():
    bench = Bench(MiB, {})
    for precision, scaled in (("fp32", False), ("bf16", False), ("fp16", True)):
        method = bench.method()
        method.grow(bench.scenario[0])
        config = dataclasses.replace(TRAIN, precision=precision)
        session = Session.start(method, bench.scenario[0], PLAIN, config, CPU, torch.Generator())
        assert session.scaler.is_enabled() is scaled
    assert session.scaler.get_scale() > 1


def test_a_session_goes_on_with_its_loss_scale():
    """A scale that was halved by an overflow is not forgotten by a resume."""
    bench, config = Bench(MiB, {}), dataclasses.replace(TRAIN, precision="fp16")
    step, sessions = bench.scenario[0], []
    for _ in range(2):
        method = bench.method()
        method.grow(step)
        sessions.append(Session.start(method, step, PLAIN, config, CPU, torch.Generator()))
    first, second = sessions
    update(first, bench.batch(step, 0), None, config)
    first.scaler.update(512.0)
    second.load_state_dict(first.state_dict())
    assert second.scaler.get_scale() == 512.0 and second.scaler.state_dict() == first.scaler.state_dict()


def running_statistics(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in values.items() if "running_" in name or "num_batches" in name}


@pytest.mark.parametrize("method", ["mib", "caf"])
def test_frozen_norm_keeps_its_statistics(method, finished):
    before, after = (running_statistics(weights(finished(method), step)) for step in (0, 1))
    assert len(before) > 10 and before.keys() == after.keys()
    for name, value in before.items():
        assert torch.equal(after[name], value), name
    assert any(value.item() > 0 for name, value in before.items() if "num_batches" in name), (
        "step 0 learns them"
    )
    affine = "model.backbone.stages.0.1.0.weight"
    assert not torch.equal(weights(finished(method), 0)[affine], weights(finished(method), 1)[affine])


def test_norm_of_the_batch_moves_its_statistics(tmp_path):
    words = ["train.norm=batch", "train.epochs=1", "train.epochs_next=1", "eval.samples=0"]
    quiet_run(recipe("mib", *words), tmp_path / "run")
    before, after = (running_statistics(weights(tmp_path / "run", step)) for step in (0, 1))
    for name, value in before.items():
        assert not torch.equal(after[name], value), name


def test_same_seed_same_run(tmp_path, finished):
    quiet_run(recipe("caf"), tmp_path / "again")
    assert_equal_runs(tmp_path / "again", finished("caf"))


def test_number_of_workers_changes_nothing_but_the_recipe(tmp_path, finished):
    quiet_run(recipe("mib", "train.workers=2"), tmp_path / "run")
    assert log_lines(tmp_path / "run") == log_lines(finished("mib"))
    for name, value in weights(finished("mib"), 1).items():
        assert torch.equal(weights(tmp_path / "run", 1)[name], value), name


def test_other_seed_other_run(tmp_path, finished):
    words = ["train.seed=43", "eval.samples=0"]
    quiet_run(recipe("mib", *words), tmp_path / "run")
    ours, theirs = log_lines(tmp_path / "run"), log_lines(finished("mib"))
    assert [line["losses"] for line in ours] != [line["losses"] for line in theirs]
    weight = "model.backbone.stages.0.0.weight"
    assert not torch.allclose(
        weights(tmp_path / "run", 0)[weight], weights(finished("mib"), 0)[weight], atol=1e-3
    )


def test_seeds_differ_by_every_number():
    numbers = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0, 1), (42, 0, 1), (42, 1, 1), (42,), (42, 0), (42, 1)]
    seeds = [derive_seed(*each) for each in numbers]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(42, 1) == derive_seed(42, 1)


def test_device_by_name():
    assert pick_device("cpu") == CPU
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert pick_device("auto").type == expected
