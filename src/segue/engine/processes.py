"""A run by several processes, as torchrun starts them: each has its slice of every batch, the first writes.

All hold the same weights. Gradients are averaged by DistributedDataParallel; what decides the course of a run
(where it goes on, when it stops) is agreed upon here. Small things go through the CPU (Gloo) on GPUs too, so
that no process waits for its device. Without torchrun there is no process group and nothing of this happens.
"""

from __future__ import annotations

import json
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from timm.layers import BatchNormAct2d, SyncBatchNormAct
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from segue.core.config import TrainConfig
from segue.core.errors import UserError
from segue.core.launch import Launch, this_launch
from segue.data.batches import RankSlice
from segue.engine.checkpoint import put_together, take_apart
from segue.engine.device import pick_device

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
MEETING = timedelta(minutes=10)
"""longest wait of the processes for each other at the start"""
MEETING_PAUSE = 0.05
PAIR_CLOSED = "timeout caused pair closure"
"""words of Gloo, without its name, when another operation on the same connection has waited too long"""
SYNCED = {nn.BatchNorm2d: nn.SyncBatchNorm, BatchNormAct2d: SyncBatchNormAct}


class LostProcess(Exception):
    """Another process of the run is gone, so that this one cannot go on."""


@dataclass(frozen=True)
class Group:
    """The processes of a run, as one of them sees them."""

    device: torch.device
    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this is the process that reads and writes the run folder and talks."""
        return self.rank == 0

    @property
    def rank_slice(self) -> RankSlice:
        return RankSlice(self.rank, self.size)

    @property
    def syncs_norm(self) -> bool:
        """Whether batch norm sees the batches of all processes as one, which PyTorch can on CUDA only."""
        return self.size > 1 and self.device.type == "cuda"

    def any(self, flag: bool) -> bool:
        """Whether a flag is set in any process. All have to ask, and wait for each other."""
        if self.size == 1:
            return flag
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags)

    def wait(self) -> None:
        """Until all processes are here."""
        self.any(False)

    @contextmanager
    def node_first(self) -> Iterator[None]:
        """The first process of each node goes first, so that the others find what it has put into a cache."""
        if self.local_rank:
            self.wait()
        yield
        if not self.local_rank:
            self.wait()

    def broadcast(self, tree: Any) -> Any:
        """What the first process has: nested dicts and lists of tensors, numbers and strings."""
        if self.size == 1:
            return tree
        skeleton, tensors = take_apart(tree if self.first else None)
        layouts = {
            name: (tensor.shape, str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors.items()
        }
        skeleton, layouts = json.loads(self._text_of_first(json.dumps([skeleton, layouts])))
        for name, (shape, dtype) in layouts.items():
            tensor = tensors.setdefault(name, torch.empty(shape, dtype=getattr(torch, dtype)))
            if tensor.numel():
                dist.broadcast(tensor.view(-1).view(torch.uint8), 0)  # Gloo does not know every type
        return put_together(skeleton, tensors)

    def _text_of_first(self, text: str) -> str:
        """The text of the first process, as bytes: torch's own way to send objects unpickles what arrives."""
        content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
        length = torch.tensor(len(content))
        dist.broadcast(length, 0)
        content = content if self.first else torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(content, 0)
        return content.numpy().tobytes().decode()

    def wrap(self, method: nn.Module) -> nn.Module:
        """What is called for the losses, so that gradients are averaged over the processes.

        Parameters may be unused in an iteration, and keep no gradient then. Buffers are equal anyway, except
        for the statistics of batch norm; `broadcast_norm` is for those.
        """
        if self.size == 1:
            return method
        if self.syncs_norm:
            sync_norm(method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions have a new name for the first
            return DistributedDataParallel(method, broadcast_buffers=False, find_unused_parameters=True)

    def broadcast_norm(self, method: nn.Module) -> None:
        """The statistics of batch norm become those of the first process, whose checkpoints hold them."""
        if self.size > 1:
            for module in method.modules():
                if isinstance(module, _BatchNorm):
                    for statistic in module.buffers(recurse=False):
                        dist.broadcast(statistic, 0)


ALONE = Group(torch.device("cpu"))


@contextmanager
def joined(device: str = "auto", patience: float = TrainConfig.patience) -> Iterator[Group]:
    """Meet the other processes if torchrun has started this one among several.

    `patience`: minutes that all wait for one that hangs; one that is gone is noticed at once.
    """
    launch = this_launch()
    chosen = _chosen(device, launch)
    if launch.size == 1:
        with _current(chosen):
            yield Group(chosen)
        return
    if chosen.type not in BACKENDS:
        raise UserError(
            f"Several processes work on CUDA or CPUs, not on '{chosen.type}': choose --device cpu."
        )
    if chosen.type == "cuda":
        chosen = _own_gpu(chosen, launch.local_rank)
    with lost_is_told():
        try:
            store, _, _ = next(rendezvous("env://", launch.rank, launch.size, timeout=MEETING))
        except ValueError as error:
            raise UserError(f"The processes cannot meet: {error}") from error
        store = dist.PrefixStore(_agree(store, launch), store)
        longest = timedelta(minutes=patience)
        dist.init_process_group(BACKENDS[chosen.type], None, longest, launch.size, launch.rank, store)
        group = Group(chosen, launch.rank, launch.size, launch.local_rank)
        yield group
        group.wait()
    dist.destroy_process_group()  # not after an error: it may wait for processes that do not come


def _agree(store: dist.Store, launch: Launch) -> str:
    """A name that only the processes of this start know.

    torchrun keeps its store when it starts processes again, with the addresses of those that are gone. So
    each process says hello under a name of its own, the first answers with the name of this start, and waits
    until all have heard it; what was said in earlier starts is answered by nobody, or to nobody.
    """
    own, deadline = uuid.uuid4().hex, time.monotonic() + MEETING.total_seconds()
    if launch.rank > 0:
        store.set(f"segue hello {launch.rank}", own)
        agreed = store.get(f"segue answer {own}").decode()
        store.set(f"segue heard {agreed} {launch.rank}", "")
        return agreed
    missing = set(range(1, launch.size))
    while missing:
        for rank in tuple(missing):
            if store.check([f"segue heard {own} {rank}"]):
                missing.remove(rank)
            elif store.check([f"segue hello {rank}"]):
                store.set(f"segue answer {store.get(f'segue hello {rank}').decode()}", own)
        if missing and time.monotonic() > deadline:
            raise LostProcess(f"Processes {sorted(missing)} of the run did not come.")
        time.sleep(MEETING_PAUSE)
    return own


def _chosen(device: str, launch: Launch) -> torch.device:
    """The device that is asked for. It is tried, on a GPU of this process: not all of them on the first."""
    if launch.size > 1 and device == "cuda" and launch.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(launch.local_rank)
    return pick_device(device)


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """A GPU that is named is the current one: what names none, such as pinned memory, would take another."""
    named = device.type == "cuda" and device.index is not None
    return torch.cuda.device(device) if named else nullcontext()


def _own_gpu(device: torch.device, local_rank: int) -> torch.device:
    if device.index is not None:
        raise UserError(f"Several processes take one GPU each: say --device cuda, not {device}.")
    if local_rank >= torch.cuda.device_count():
        raise UserError(
            f"Process {local_rank} of this machine has no GPU of its own: there are"
            f" {torch.cuda.device_count()}. Start fewer with --nproc-per-node, or choose --device cpu."
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


@contextmanager
def lost_is_told() -> Iterator[None]:
    """What the back ends say when a process is gone, as one kind of error."""
    try:
        yield
    except RuntimeError as error:
        text = str(error).lower()
        late = "timed out" in text or PAIR_CLOSED in text
        if isinstance(error, dist.DistError) or "gloo" in text or PAIR_CLOSED in text:
            # without the place in PyTorch's source, and without advice on other mistakes
            reason = str(error).splitlines()[0].rpartition("] ")[2].partition(". ")[0]
            how = "does not answer (train.patience)" if late else "is gone"
            raise LostProcess(f"Another process {how}, this one ends too ({reason})") from error
        raise


def sync_norm(method: nn.Module) -> None:
    """Every batch norm becomes one over all processes. In its place: others hold references to it."""
    for module in method.modules():
        if type(module) in SYNCED:
            module.__class__ = SYNCED[type(module)]
            module.process_group = None
