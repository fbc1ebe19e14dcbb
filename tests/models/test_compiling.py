"""Compiled parts: called as before, plain after a failure, plain in copies, the same names."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.models.segmenter import Segmenter, Teacher


def segmenter() -> Segmenter:
    torch.manual_seed(0)
    model = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    model.grow(Step(0, (1, 2)), balanced=False)
    return model.eval()


def pictures() -> Tensor:
    return torch.randint(0, 256, (2, 3, 32, 32), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands for the compiler, which takes a minute; notes whose code runs."""
    ran: list[str] = []

    def stand_in(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*inputs: Any) -> Any:
            ran.append(type(forward.__self__).__name__)
            return forward(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", stand_in)
    return ran


def test_backbone_and_head_are_compiled_in_student_and_teacher(compiled: list[str]) -> None:
    model, plain = segmenter(), segmenter()
    model.compile()
    assert model.state_dict().keys() == plain.state_dict().keys()
    torch.testing.assert_close(model(pictures()).logits, plain(pictures()).logits)
    assert compiled == ["Tiny", "DeepLabHead"]
    teacher = Teacher(copy.deepcopy(model))
    assert len(compiled) == 2
    teacher(pictures())
    assert compiled == ["Tiny", "DeepLabHead"] * 2


def test_copies_are_plain(compiled: list[str]) -> None:
    model = segmenter()
    model.compile()
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.backbone.stages[0][0].weight.zero_()
        assert not torch.equal(twin(pictures()).logits, segmenter()(pictures()).logits)
    assert compiled == []


def test_a_compiler_that_fails_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no compiler found\nand many more lines")

    monkeypatch.setattr(torch, "compile", lambda forward: broken)
    model = segmenter()
    model.compile()
    with pytest.warns(RuntimeWarning) as told:
        logits = model.train()(pictures()).logits
    assert [str(each.message) for each in told] == [
        f"torch.compile failed for {part} (no compiler found): going on without."
        for part in ("Tiny", "DeepLabHead")
    ]
    logits.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(pictures())


def test_an_error_of_the_network_itself_comes_through(compiled: list[str]) -> None:
    model = segmenter()
    model.compile()
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="channels"):
        model.refiner(torch.zeros(1, 5, 4, 4))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_the_real_compiler() -> None:
    """A minute. The same numbers but for rounding, forwards and backwards, in student and teacher."""
    found = []
    for wanted in (False, True):
        model = segmenter()
        if wanted:
            model.compile()
        teacher = Teacher(copy.deepcopy(model))
        out = model.train()(pictures())
        (out.logits - teacher(pictures()).logits).square().mean().backward()
        found.append([out.logits.detach(), *(p.grad for p in model.parameters())])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
