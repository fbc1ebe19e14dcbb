"""Checkpoints: one safetensors file each, written whole or not at all, with a digest of all it holds.

A finished step is `step<k>.safetensors`; a moment inside step k is `step<k>-<iteration>.safetensors`. The
last two of each kind are kept. The teacher is never stored: it is the model of the finished step before.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from segue.core.errors import UserError, brief, reason
from segue.core.ordinary import check_ordinary
from segue.core.records import atomic_file
from segue.engine.contents import check_contents

FORMAT = "segue-checkpoint-1"
KEPT = 2


class DamagedCheckpoint(UserError):
    """A checkpoint file that is truncated, altered or no checkpoint at all."""


def save_tree(path: Path, tree: dict[str, Any], root: Path | None = None) -> None:
    """Store nested dicts and lists of tensors, numbers and strings; `root` as in `atomic_file`."""
    skeleton, tensors = take_apart(tree)
    metadata = {"format": FORMAT, "tree": skeleton, "digest": _digest(FORMAT, skeleton, tensors)}
    with atomic_file(path, root) as file:
        file.write(save(tensors, metadata))


def load_tree(path: Path) -> dict[str, Any]:
    """The tree of a checkpoint file; raises `DamagedCheckpoint` unless every byte is as it was written."""
    try:
        check_ordinary(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, FileNotFoundError, ValueError, RuntimeError) as error:
        raise DamagedCheckpoint(f"{path} is damaged or truncated: {error}.") from error
    except OSError as error:  # such as a missing permission: the file itself may be good
        raise UserError(f"{path} cannot be read: {reason(error)}.") from error
    found, skeleton = metadata.get("format", ""), metadata.get("tree", "")
    if metadata.get("digest") != _digest(found, skeleton, tensors):
        raise DamagedCheckpoint(f"{path} is damaged: its content does not match its digest.")
    if found != FORMAT:
        raise UserError(f"{path} was written by another version ({found}; this one reads {FORMAT}).")
    try:
        tree = put_together(skeleton, tensors)
    except (ValueError, TypeError, KeyError, AttributeError, StopIteration, RecursionError) as error:
        raise UserError(
            f"{path} is no checkpoint: what its tree names is not in it ({brief(error)})."
        ) from error
    if not isinstance(tree, dict):
        raise UserError(f"{path} is no checkpoint: it holds a {type(tree).__name__}.")
    return tree


def load_finished(path: Path) -> dict[str, Any]:
    """The checkpoint of a finished step."""
    tree = load_tree(path)
    check_contents(tree, path, finished=True)
    return tree


def take_apart(tree: Any) -> tuple[str, dict[str, Tensor]]:
    """Nested dicts and lists as text, and copies of the tensors in them by name."""
    tensors: dict[str, Tensor] = {}
    return json.dumps(_strip(tree, "", tensors)), tensors


def put_together(skeleton: str, tensors: dict[str, Tensor]) -> Any:
    """What `take_apart` was given."""
    return _fill(json.loads(skeleton), tensors)


def load_strictly(module: nn.Module, state: dict[str, Tensor], path: Path | str) -> None:
    """Load every tensor and no other; `path` says where the state came from."""
    try:
        module.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise UserError(f"{path} does not fit the recipe: {str(error).splitlines()[-1].strip()}") from error


def _strip(node: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Replace tensors by their names; dicts become lists of pairs, because keys may be numbers."""
    if isinstance(node, Tensor):
        assert path not in tensors, f"two tensors are called {path}"
        tensors[path] = node.detach().cpu().contiguous().clone()
        return {"tensor": path}
    if isinstance(node, dict):
        return {
            "items": [
                [key, _strip(value, f"{path}/{key}".lstrip("/"), tensors)] for key, value in node.items()
            ]
        }
    if isinstance(node, list | tuple):
        return {"list": [_strip(value, f"{path}/{index}", tensors) for index, value in enumerate(node)]}
    return {"value": node}


def _fill(node: dict[str, Any], tensors: dict[str, Tensor]) -> Any:
    kind, content = next(iter(node.items()))
    if kind == "tensor":
        return tensors[content]
    if kind == "items":
        return {key: _fill(value, tensors) for key, value in content}
    if kind == "list":
        return [_fill(value, tensors) for value in content]
    return content


def _digest(found_format: str, skeleton: str, tensors: dict[str, Tensor]) -> str:
    return tensor_digest(tensors, f"{found_format}\n{skeleton}")


def tensor_digest(tensors: Mapping[str, Tensor], beside: str = "") -> str:
    """A hash of everything in some tensors, and of a text beside them."""
    digest = hashlib.blake2b(beside.encode(), digest_size=32)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


@dataclass(frozen=True, order=True)
class Entry:
    """A checkpoint file; finished steps sort after every moment inside them."""

    step: int
    iteration: float
    path: Path

    @property
    def finished(self) -> bool:
        return math.isinf(self.iteration)


@dataclass(frozen=True)
class ResumePoint:
    """The state at the end of a finished step, and perhaps a later moment inside the next one."""

    finished_step: int = -1
    finished: dict[str, Any] | None = None
    inside: dict[str, Any] | None = None
    start: dict[str, Any] | None = None
    """step 0 of another run, to begin with"""

    @property
    def at_start(self) -> bool:
        return self.finished is None and self.inside is None


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, folder: Path, identity: str = "") -> None:
        self.folder, self.identity = folder / "checkpoints", identity

    def entries(self) -> list[Entry]:
        """Oldest first."""
        found = []
        for path in self.folder.glob("step*.safetensors"):
            if match := re.fullmatch(r"step(\d+)(?:-(\d+))?", path.stem):
                found.append(Entry(int(match[1]), int(match[2]) if match[2] else math.inf, path))
        return sorted(found)

    def path(self, step: int) -> Path:
        """The file of a finished step."""
        return self.folder / f"step{step}.safetensors"

    def save_inside(self, step: int, iteration: int, tree: dict[str, Any]) -> None:
        path = self.folder / f"step{step}-{iteration:08d}.safetensors"
        save_tree(path, tree | {"identity": self.identity}, self.folder.parent)
        self._prune(step, iteration)

    def save_step(
        self,
        step: int,
        method: nn.Module,
        outcome: dict[str, Any],
        log_bytes: int = 0,
        weights: str | None = None,
    ) -> None:
        """Store a finished step: the method, what the record needs, the length of the log, and what was in
        the file of weights that step 0 began with."""
        tree = {"method": method.state_dict(), "outcome": outcome, "log_bytes": log_bytes, "weights": weights}
        self.save_finished(step, tree)

    def save_finished(self, step: int, tree: dict[str, Any]) -> None:
        save_tree(self.path(step), tree | {"identity": self.identity}, self.folder.parent)
        self._prune(step, math.inf)

    def _prune(self, step: int, iteration: float) -> None:
        """Keep the last two of each kind, and step 0, from where other runs may start.

        What lies after the present moment was passed over by a resume.
        """
        now = (step, iteration)
        past = [entry for entry in self.entries() if (entry.step, entry.iteration) <= now]
        finished = [entry for entry in past if entry.finished]
        inside = [] if math.isinf(iteration) else [entry for entry in past if not entry.finished]
        kept = {*finished[-KEPT:], *inside[-KEPT:], *(entry for entry in finished if entry.step == 0)}
        for entry in self.entries():
            if entry not in kept:
                entry.path.unlink(missing_ok=True)

    def resume_point(self, say: Callable[[str], None]) -> ResumePoint:
        """The newest state that can be restored; damaged files are named and passed over."""

        def load(path: Path) -> dict[str, Any] | None:
            try:
                tree = load_tree(path)
            except DamagedCheckpoint as error:
                say(f"{error} Going back to the one before.")
                return None
            check_contents(tree, path, "-" not in path.stem)
            if tree["identity"] != self.identity:
                raise UserError(
                    f"{path} was made with another recipe or method file: one of them was changed since."
                    " Change it back to resume, or start anew with --overwrite."
                )
            return tree

        for entry in reversed(self.entries()):
            tree = load(entry.path)
            if tree is None:
                continue
            if entry.finished:
                return ResumePoint(entry.step, finished=tree)
            if entry.step == 0:
                return ResumePoint(inside=tree)
            before = load(self.path(entry.step - 1))
            if before is not None:
                return ResumePoint(entry.step - 1, before, tree)
        return ResumePoint()
