"""One thread runs the networks: on all images of one size that wait, several at a time.

It never waits for a batch to fill. While it works others arrive, so that batches grow with the load.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch import Tensor

from segue.data.input_size import MOST_PIXELS
from segue.deploy.serve.predictors import Staged


@dataclass(frozen=True)
class _Job:
    predictor: Staged
    input: Tensor
    scores: Future[Tensor] = field(default_factory=Future)

    def goes_with(self, other: _Job) -> bool:
        return self.predictor is other.predictor and self.input.shape == other.input.shape


class Batcher:
    """A queue in front of the networks. How many may wait is decided by who submits."""

    def __init__(self, most: int, seen: Callable[[int], None] = lambda _: None) -> None:
        self.most, self.seen = most, seen
        self._jobs: deque[_Job] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="segue-network", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, predictor: Staged, input: Tensor) -> Future[Tensor]:
        """The scores of an input, once it has had its turn."""
        job = _Job(predictor, input)
        with self._wake:
            if self._closing:
                raise RuntimeError("The server is stopping.")
            self._jobs.append(job)
            self._wake.notify()
        return job.scores

    def close(self) -> None:
        """Finish what waits, then stop."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next():
            batch = [job for job in batch if job.scores.set_running_or_notify_cancel()]
            if batch:
                self.seen(len(batch))
                _run(batch)

    def _next(self) -> list[_Job]:
        """The image that waits longest and others like it, in order; none when all is done."""
        with self._wake:
            while not self._jobs and not self._closing:
                self._wake.wait()
            if not self._jobs:
                return []
            first = self._jobs[0]
            height, width = first.input.shape[-2:]
            most = max(1, min(self.most, MOST_PIXELS // (height * width)))
            chosen = [job for job in self._jobs if job.goes_with(first)][:most]
            taken = set(map(id, chosen))
            self._jobs = deque(job for job in self._jobs if id(job) not in taken)
            return chosen


def _run(batch: Sequence[_Job]) -> None:
    """Give every job of a batch its scores, or what went wrong."""
    try:
        scores = batch[0].predictor.run([job.input for job in batch])
    except Exception as error:
        if len(batch) > 1:  # too large together, or one of them is to blame
            for job in batch:
                _run([job])
        else:
            batch[0].scores.set_exception(error)
        return
    for job, own in zip(batch, scores, strict=True):
        job.scores.set_result(own)
