"""Two processes, each with half of every batch, keep the state that one process keeps with all of it."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from segue.core import plugins
from segue.methods.base import Method
from segue.testing import Bench

STATEFUL = {
    "ewc": {},
    "pi": {},
    "rw": {},
    # its other terms are means over the classes of a batch, which halves of it do not add up to
    "sdr": {"matching": 0, "attraction": 0, "repulsion": 0, "sparsity": 0},
}
"""method -> settings"""
ITERATIONS = 4


def train(name: str, part: slice, wrap: bool) -> dict[str, Tensor]:
    """The state after two steps of some iterations on a part of each batch.

    In double precision: scores that divide by small distances blow up the rounding of half batches.
    """
    torch.set_default_dtype(torch.float64)
    try:
        return _train(name, part, wrap)
    finally:
        torch.set_default_dtype(torch.float32)


def _train(name: str, part: slice, wrap: bool) -> dict[str, Tensor]:
    bench = Bench(plugins.find("method", name), STATEFUL[name])
    method = bench.method()
    for step in bench.scenario.steps[:2]:
        session = bench.begin(method, step)
        method.model.norm_frozen = True  # statistics of a batch are those of each process alone
        method.train()
        # buffers are not copied from the first process: each has to keep its own right
        shown = DistributedDataParallel(method, broadcast_buffers=False) if wrap else method
        for seed in range(ITERATIONS):
            batch = bench.batch(step, seed)
            batch.images, batch.labels = batch.images[part], batch.labels[part]
            sum(shown(batch).values()).backward()
            method.after_backward()
            session.optimizer.step()
            session.optimizer.zero_grad()
        bench.finish(session, step)
    return memory(method)


def memory(method: Method) -> dict[str, Tensor]:
    """What the method keeps beside the weights, and the weights."""
    return {name: value.clone() for name, value in method.state_dict().items() if value.is_floating_point()}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name in STATEFUL:
        torch.save(train(name, slice(2 * rank, 2 * rank + 2), wrap=True), f"{folder}/{name}-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("parallel")
    # one import serves both processes
    multiprocessing.get_context("forkserver").set_forkserver_preload(["segue.testing"])
    multiprocessing.start_processes(work, (str(path),), nprocs=2, start_method="forkserver")
    return path


@pytest.mark.parametrize("name", STATEFUL)
def test_state_is_that_of_one_process(name: str, folder: Path) -> None:
    first, second = (torch.load(folder / f"{name}-{rank}.pt", weights_only=True) for rank in (0, 1))
    alone = train(name, slice(0, 4), wrap=False)
    kept = [key for key in alone if not key.startswith("model.")]
    assert kept
    assert first.keys() == second.keys() == alone.keys()
    for key, value in alone.items():
        assert torch.equal(first[key], second[key]), f"{key} differs between the processes"
        scale = value.abs().max().clamp_min(1e-6)
        torch.testing.assert_close(
            first[key] / scale, value / scale, rtol=0, atol=1e-6, msg=lambda m, k=key: f"{k}: {m}"
        )
