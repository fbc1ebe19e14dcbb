"""What modules hand to each other: tensors, or lists, dictionaries and objects of tensors.

A place in such an answer is named by keys and numbers with points between them: `hidden_states.3`, `out`, or
nothing for a bare tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

ANSWERS = ("out", "logits", "pred", "masks")
"""keys under which models give their answer"""


def tensors(answer: Any, place: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors of an answer with their places, in its own order."""
    if isinstance(answer, Tensor):
        yield place, answer
    elif isinstance(answer, Mapping):
        for key, value in answer.items():
            yield from tensors(value, f"{place}.{key}" if place else str(key))
    elif isinstance(answer, list | tuple):
        for index, value in enumerate(answer):
            yield from tensors(value, f"{place}.{index}" if place else str(index))


def maps(answer: Any) -> list[tuple[str, Tensor]]:
    """The feature maps of an answer: B x C x h x w each, every one once."""
    found: dict[int, tuple[str, Tensor]] = {}
    for place, value in tensors(answer):
        if value.dim() == 4 and value.is_floating_point():
            found.setdefault(id(value), (place, value))
    return list(found.values())


def at(answer: Any, place: str) -> Tensor:
    """The tensor at a place."""
    return next(value for found, value in tensors(answer) if found == place)


def replaced(answer: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of an answer in which every tensor went through `change`; its types and keys stay."""
    if isinstance(answer, Tensor):
        return change(answer)
    if isinstance(answer, Mapping):
        changed = {key: replaced(value, change) for key, value in answer.items()}
        return changed if type(answer) is dict else type(answer)(**changed)
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return type(answer)(*(replaced(value, change) for value in answer))
    if isinstance(answer, list | tuple):
        return type(answer)(replaced(value, change) for value in answer)
    return answer


def logits_of(answer: Any) -> Tensor | None:
    """The one map of a model's answer that has its classes; None: it cannot be told."""
    if isinstance(answer, Tensor):
        answer = answer[:, None] if answer.dim() == 3 else answer  # two classes, one of them told
        return answer if answer.dim() == 4 and answer.is_floating_point() else None
    if isinstance(answer, Mapping):
        for key in ANSWERS:
            if isinstance(answer.get(key), Tensor):
                return logits_of(answer[key])
        found = [value for value in answer.values() if isinstance(value, Tensor) and value.dim() == 4]
        return found[0] if len(found) == 1 else None
    if isinstance(answer, list | tuple) and answer:
        return logits_of(answer[0])
    named = getattr(answer, "logits", None)
    return logits_of(named) if isinstance(named, Tensor) else None
