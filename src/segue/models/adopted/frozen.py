"""The encoder of an adopted network that is never trained: where its answer is known it need not run.

The network runs whole, as its authors wrote it, so the encoder is passed over, not cut out: in its place
stands what it would have answered. An answer may be a list, a dictionary or an object of tensors; its form is
seen in one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from segue.models.adopted import trees

INPUT = -1
"""number of the encoder's own input, which some encoders hand out again"""


class AnswerForm:
    """An encoder's answer without its maps: filled with some it is an answer again."""

    def __init__(self, answer: Any, given: Tensor) -> None:
        """`given` is the encoder's input."""
        numbers = {id(given): INPUT}
        for tensor in made(answer, given):
            numbers[id(tensor)] = len(numbers) - 1
        self.empty = trees.replaced(answer, lambda tensor: torch.tensor(numbers[id(tensor)]))

    def filled(self, maps: Sequence[Tensor], given: Tensor) -> Any:
        return trees.replaced(self.empty, lambda number: given if number == INPUT else maps[int(number)])


def made(answer: Any, given: Tensor) -> tuple[Tensor, ...]:
    """The tensors that an encoder has made, each one once."""
    return tuple({id(tensor): tensor for _, tensor in trees.tensors(answer) if tensor is not given}.values())


class _Answered(Exception):
    """No error: the encoder has answered, and the rest of the pass is left out."""


def answer_of(body: nn.Module, encoder: nn.Module, values_B3HW: Tensor) -> tuple[Any, Tensor]:
    """What the encoder answers in a pass through the network, and its input."""
    seen: list[tuple[Any, Tensor]] = []

    def note(_: nn.Module, words: Sequence[Any], named: Mapping[str, Any], answer: Any) -> None:
        seen.append((answer, _first(words, named)))
        raise _Answered

    hook = encoder.register_forward_hook(note, prepend=True, with_kwargs=True)
    try:
        with torch.no_grad():
            body(values_B3HW)
    except _Answered:
        pass
    finally:
        hook.remove()
    return seen[0]


@contextmanager
def answering(encoder: nn.Module, form: AnswerForm, maps: Sequence[Tensor]) -> Iterator[None]:
    """Inside, the encoder answers with these maps, whatever it is given."""
    own = encoder.__dict__.get("forward")
    encoder.__dict__["forward"] = lambda *words, **named: form.filled(maps, _first(words, named))
    try:
        yield
    finally:
        if own is None:
            del encoder.__dict__["forward"]
        else:
            encoder.__dict__["forward"] = own


def _first(words: Sequence[Any], named: Mapping[str, Any]) -> Tensor:
    """The input of a call."""
    return next(value for value in (*words, *named.values()) if isinstance(value, Tensor))
