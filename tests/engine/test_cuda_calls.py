"""Code for CUDA and MPS alone, which no stand-in for a device reaches: what it asks of torch.

`TESTED` is the list of it: a file that asks for the kind of a device is named there, with a test of that.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import segue
from segue.core.config import ModelConfig
from segue.data.batches import Batches, loader
from segue.data.transfer import sent
from segue.engine import device as devices
from segue.engine import processes, seeds
from segue.engine.record import versions
from segue.losses import finest

SOURCE, TESTS = Path(segue.__file__).parent, Path(__file__).parents[1]
ASKS = re.compile(r"torch\.(cuda|mps)\b|^(?!.*autocast).*(device|pick_device\(\w+\))\.type\b", re.MULTILINE)
HERE = "engine/test_cuda_calls.py"
TESTED = {
    "data/batches/loader.py": f"{HERE}::test_batches_for_cuda_are_pinned",
    "data/transfer.py": f"{HERE}::test_copies_go_by_themselves_from_pinned_memory",
    "deploy/freezing.py": "deploy/test_freezing.py",
    "engine/build.py": "engine/test_accelerator_runs.py::test_a_method_that_needs_doubles_is_refused_on_mps",
    "engine/cautions.py": "engine/test_cautions.py",
    "engine/device.py": f"{HERE}::test_calls_name_the_device",
    "engine/processes.py": f"{HERE}::test_no_process_tries_the_gpu_of_another",
    "engine/record.py": f"{HERE}::test_calls_name_the_device",
    "engine/seeds.py": f"{HERE}::test_calls_name_the_device",
    "engine/train.py": "engine/test_bad_loss.py",
    "losses/_one_pass.py": "methods/test_accelerator.py::test_whole_iterations_on_the_device_and_their_waits",
    "losses/_strips.py": f"{HERE}::test_only_mps_has_no_doubles",
    "models/_speed/depthwise.py": "models/test_depthwise.py",
    "plan/dry_run.py": "plan/test_plan.py",
    "plan/preflight.py": f"{HERE}::test_calls_name_the_device",
    "studies/pool.py": "studies/test_pool.py::test_gpus_are_those_that_the_environment_allows",
}  # fmt: skip
"""by file the test of what it does on a device that is not here; NCCL, kernels and speed: make gpu-check"""
SECOND = torch.device("cuda", 1)


def test_code_for_one_kind_of_device_is_listed_and_tested() -> None:
    asking = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if ASKS.search(path.read_text(encoding="utf-8"))
    }
    assert asking == set(TESTED)
    for file, _, name in (where.partition("::") for where in TESTED.values()):
        text = (TESTS / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text if name else text


class Noted:
    """Stands in for functions of torch: notes what they are given."""

    def __init__(self, patch: pytest.MonkeyPatch, module: Any, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        for name, answer in answers.items():
            patch.setattr(module, name, self.stand_in(name, answer))

    def stand_in(self, name: str, answer: Any) -> Any:
        return lambda *given: (self.calls.append((name, *given)), answer)[1]


def test_calls_name_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--device cuda:1` the first GPU is left alone, even by what asks for no tensor."""
    from segue.plan import preflight

    state = torch.zeros(1, dtype=torch.uint8)
    answers = {"get_rng_state": state, "set_rng_state": None, "synchronize": None, "get_device_name": "A",
               "reset_peak_memory_stats": None, "max_memory_allocated": 7,
               "mem_get_info": (5, 9)}  # fmt: skip
    noted = Noted(monkeypatch, torch.cuda, **answers)
    assert seeds.device_random_state(SECOND) == [state]
    seeds.restore_device_random_state(SECOND, [state])
    devices.synchronize(SECOND)
    devices.reset_peak_memory(SECOND)
    assert devices.peak_memory(SECOND) == 7 and preflight._free(SECOND) == 5
    assert versions(SECOND, model=ModelConfig())["device"] == "A"
    assert {call[0] for call in noted.calls} == set(answers)
    assert all(SECOND in call for call in noted.calls)


def test_a_gpu_that_is_named_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    current: list[Any] = []

    class Device:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def __enter__(self) -> None:
            current.append(self.device)

        def __exit__(self, *_: Any) -> None:
            current.pop()

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(processes, "pick_device", torch.device)
    with processes.joined("cuda:1") as group:
        assert group.device == SECOND and current == [SECOND]
    with processes.joined("cpu"):
        assert not current


def test_no_process_tries_the_gpu_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial on `cuda` would be one on the first GPU, and leave something there."""
    noted = Noted(monkeypatch, torch.cuda, device_count=4, set_device=None)
    monkeypatch.setattr(
        processes, "pick_device", lambda name: (noted.calls.append(("tried", name)), torch.device(name))[1]
    )
    launch = SimpleNamespace(rank=3, size=4, local_rank=3)
    assert processes._chosen("cuda", launch) == torch.device("cuda")
    assert [call for call in noted.calls if call[0] != "device_count"] == [
        ("set_device", 3),
        ("tried", "cuda"),
    ]
    assert processes._own_gpu(torch.device("cuda"), 3) == torch.device("cuda", 3)


def test_batches_for_cuda_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    class Loader:
        def __init__(self, *_: Any, pin_memory: bool, **__: Any) -> None:
            asked.append(pin_memory)

        def __iter__(self) -> Any:
            return iter(())

    class Nothing(list):
        def batches(self, _: int) -> Any:
            return iter(self)

    monkeypatch.setattr(loader, "DataLoader", Loader)
    for device in ("cuda", "cpu", "mps"):
        order = Nothing()
        assert list(Batches(data=[], order=order, device=torch.device(device))) == []  # type: ignore[arg-type]
    assert asked == [True, False, False]


def test_copies_go_by_themselves_from_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor:
        device, pinned = torch.device("cpu"), False

        def pin_memory(self) -> Tensor:
            self.pinned = True
            return self

        def to(self, device: torch.device, non_blocking: bool = False) -> tuple[bool, bool]:
            return self.pinned, non_blocking

    for name, expected in (("cuda", (True, True)), ("mps", (False, False)), ("cpu", (False, False))):
        assert sent(Tensor(), torch.device(name)) == expected  # type: ignore[arg-type, comparison-overlap]


def test_only_mps_has_no_doubles() -> None:
    assert [finest(torch.device(name)) for name in ("cpu", "cuda", "mps")] == [
        torch.float64, torch.float64, torch.float32,
    ]  # fmt: skip
