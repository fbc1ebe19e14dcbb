"""The benchmark of all methods: where they are measured, on what, and what it says and stores."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import methods as bench
from benchmarks.__main__ import command
from benchmarks.measure import in_own_process, in_turns, ratio
from segue.core.costs import read_costs
from segue.core.errors import UserError
from segue.methods.base import Method

CPU = torch.device("cpu")
GROWTH = {"finetune": [40, 10, 20], "mib": [90, 30, 20], "joint": [25, 25, 25]}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def private_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all tests of this file, so that the masks are read once."""
    monkeypatch.setenv("SEGUE_CACHE", str(cache))


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Growth of processes in MiB, without processes: they take seconds to start. The methods asked for."""
    left, asked = {name: iter(values) for name, values in GROWTH.items()}, []

    def answer(function, name: str, device: str) -> int:
        assert function is bench.extra_peak and device == "cpu"
        asked.append(name)
        return next(left[name]) * bench.MIB

    monkeypatch.setattr(bench, "in_own_process", answer)
    return asked


def test_figures_are_shown_and_stored(growth, tmp_path):
    text, file = io.StringIO(), tmp_path / "costs.json"
    console = Console(file=text, width=100)
    costs = bench.bench_methods(["mib", "joint", "mib"], 1, file, "cpu", console)
    assert list(costs.methods) == ["finetune", "mib", "joint"], "fine-tuning is measured with the others"
    assert growth == ["finetune", "mib", "joint"] * 3, "in turns"
    plain, mib, joint = costs.methods.values()
    assert (plain.time, plain.memory, plain.memory_mib, plain.kept_mib) == (1, 1, 0, 0)
    assert (mib.memory, mib.memory_mib) == (1.5, 10) and (joint.memory, joint.memory_mib) == (1.25, 5)
    assert mib.time > 0 and mib.kept_mib > 0.5 and joint.kept_mib is None
    assert read_costs(file) == costs
    assert costs.setting == "scenes 4-2, step 1, batch 16 of 64 px" and costs.threads == 1
    assert costs.command == "python -m benchmarks methods --methods mib,joint,mib --rounds 1"
    for word in ("mib", f"{mib.time:.2f}", "1.50", "10.0 MiB", f"{mib.kept_mib:.2f} MiB", costs.setting):
        assert word in text.getvalue()


def test_method_is_measured_at_its_second_step():
    subject = bench.Subject.load("caf", CPU)
    session = subject.start(CPU)
    method = session.method
    assert [step.index for step in subject.steps] == [0, 1] and method.teacher is not None
    assert method.training and method.model.norm_frozen
    assert method.config.ad_weight == 0.01, "the recipe for scenes"
    assert session.optimizer.param_groups[0]["lr"] == subject.config.optim.lr_next
    assert [len(batch) for batch in subject.batches[1]] == [16] * bench.BATCHES
    assert set(subject.batches[1][0].labels.unique().tolist()) <= {0, 5, 6, 255}
    assert method(subject.batches[1][0]).keys() == {"ce", "kd", "ad"}
    trained, fresh = method.teacher.model, bench.build_method(subject.config, CPU).model
    assert not torch.equal(next(trained.parameters()), next(fresh.parameters())), "trained in the step before"


def test_offline_method_is_measured_in_its_only_step():
    subject = bench.Subject.load("joint", CPU)
    method = subject.start(CPU).method
    assert [step.index for step in subject.steps] == [0] and not method.model.norm_frozen
    assert subject.steps[0].num_channels == 10
    batch = bench.Subject.load("finetune", CPU).batches[-1][0]
    assert method(batch)["ce"].isfinite(), "the batch of the others fits"


def test_hooks_see_the_step_and_its_batches(monkeypatch):
    calls = []
    kind = bench.plugins.find("method", "finetune")
    for name in ("begin_step", "after_backward", "end_step"):
        monkeypatch.setattr(kind, name, lambda self, *ctx, name=name: calls.append((name, *ctx)))
    bench.Subject.load("finetune", CPU).start(CPU)
    assert [name for name, *_ in calls] == [
        "begin_step", *["after_backward"] * bench.BATCHES, "end_step", "begin_step",
    ]  # fmt: skip
    contexts = [rest[0] for _, *rest in calls if rest]
    assert [context.step.index for context in contexts] == [0, 0, 1]
    for context in contexts:
        assert len(list(context.loader)) == bench.BATCHES
        largest = max(batch.labels[batch.labels < 255].max() for batch in context.loader)
        assert largest < context.step.num_channels


def test_what_is_kept_is_counted_to_the_byte():
    class Keeper(Method):
        def begin_step(self, ctx):
            pass

        def losses(self, batch):
            return {}

    model = torch.nn.Linear(5, 5)
    model.offers = Keeper.needs
    method = Keeper(None, model)
    assert bench.kept_bytes(method) == 0, "the model itself is not counted"
    method.register_buffer("importance", torch.zeros(3, 2))
    method.register_buffer("counts", torch.zeros(4, dtype=torch.int64))
    method.register_buffer("passing", torch.zeros(9), persistent=False)
    assert bench.kept_bytes(method) == 6 * 4 + 4 * 8
    teacher = torch.nn.BatchNorm1d(7)
    method.teacher = type("Teacher", (), {"model": teacher})()
    assert bench.kept_bytes(method) == 56 + 4 * 7 * 4 + 8, "weight, bias, mean, variance; number of batches"
    method.offline = True
    assert bench.kept_bytes(method) is None


def test_turns_go_around_and_the_first_is_not_counted(monkeypatch):
    clock, order = [0.0], []
    durations = {"a": iter([50, 1, 2]), "b": iter([90, 3, 4]), "c": iter([70, 5, 20])}

    def spend(name: str) -> None:
        order.append(name)
        clock[0] += next(durations[name])

    monkeypatch.setattr("benchmarks.measure.time.perf_counter", lambda: clock[0])
    times = in_turns([lambda n=name: spend(n) for name in durations], 2, CPU)
    assert times == [[1, 2], [3, 4], [5, 20]] and order == ["a", "b", "c"] * 3
    assert ratio(times[2], times[0]) == 7.5


def test_process_of_its_own_grows_by_what_training_needs():
    grown = in_own_process(bench.extra_peak, "mib", "cpu")
    assert 10 * bench.MIB < grown < 400 * bench.MIB, "not the process, which is mostly torch"


def test_unknown_method_is_refused_before_anything_is_measured(growth):
    with pytest.raises(UserError, match=r"There is no method 'mibb'\. Did you mean 'mib'"):
        bench.bench_methods(["mibb"], 1, None, "cpu", Console(quiet=True))
    assert growth == []


@pytest.mark.parametrize(
    ("what", "options", "named"),
    [
        ("methods", {"case": "small"}, "--case"),
        ("methods", {"words": ["train.epochs=1"]}, "KEY=VALUE"),
        ("caf", {"methods": "mib"}, "--methods"),
        ("caf", {"images": 9}, "--images"),
    ],
)
def test_option_of_the_other_benchmark_is_refused(what, options, named):
    with pytest.raises(UserError, match=named):
        command(what, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (["all"], 15, None, "auto")),
        ({"methods": "mib, caf", "rounds": 3}, (["mib", "caf"], 3, None, "auto")),
    ],
)
def test_command_asks_for_what_was_said(monkeypatch, options, expected):
    asked = []
    monkeypatch.setattr(bench, "bench_methods", lambda *each: asked.append(each))
    command("methods", **options)
    assert asked == [expected]


def test_all_means_every_method_with_finetune_first():
    chosen = bench._chosen(["all", "mib"])
    assert chosen[0] == "finetune" and sorted(chosen) == bench.plugins.names("method")
