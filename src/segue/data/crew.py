"""Checks the files of a data set on all cores: in processes of their own if there are many, else in threads.

Decoding leaves Python's lock alone, but the many short calls around it do not: threads mostly wait for each
other. The processes are fresh ones. A copy of this one (fork) may hang, since it has threads; and what
`multiprocessing` starts instead runs the caller's script again. They get the data set, then chunks of
indices, through a pipe. Where that does not work, or one dies, its thread does the work.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from segue.core.errors import UserError
from segue.data.datasets.base import SegDataset
from segue.data.image_files import QUIET

CHUNK = 16
"""images that are asked for at once: few, for the sake of the progress bar and of Ctrl-C"""
MANY = 3000
"""images from which on processes are worth their start, a good half second"""

Row = np.ndarray | str
"""256 bools, the ids in a mask; or what is wrong with an image"""


def check_all(dataset: SegDataset) -> Iterator[Row]:
    """A row for each image, in order."""
    chunks = [range(i, min(i + CHUNK, len(dataset))) for i in range(0, len(dataset), CHUNK)]
    crew = _Crew(dataset)
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for rows in pool.map(crew.check, chunks):
            yield from rows
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the files that are left
        crew.dismiss()


def check_chunk(dataset: SegDataset, indices: Sequence[int]) -> list[Row]:
    with QUIET:
        return [_check(dataset, index) for index in indices]


def _check(dataset: SegDataset, index: int) -> Row:
    try:
        return dataset.check(index).pixels > 0
    except UserError as error:
        return str(error)


class _Crew:
    """Each thread that asks for a check has a process that does it, or none and does it itself."""

    def __init__(self, dataset: SegDataset) -> None:
        self.dataset, self.own = dataset, threading.local()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.pickled: bytes | None = None
        if len(dataset) >= MANY and sys.executable:
            try:
                self.pickled = pickle.dumps(dataset)
            except Exception:  # a class inside a function, a lock, an open file, ...
                self.pickled = None

    def check(self, indices: Sequence[int]) -> list[Row]:
        if not hasattr(self.own, "process"):
            self.own.process = self._start()
        process = self.own.process
        if process is not None:
            try:
                pickle.dump(indices, process.stdin)
                process.stdin.flush()
                return pickle.load(process.stdout)
            except Exception:  # dead, or what came is no answer: it is not asked again
                self.own.process = None
        return check_chunk(self.dataset, indices)

    def _start(self) -> subprocess.Popen[bytes] | None:
        if self.pickled is None:
            return None
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", "from segue.data.crew import serve; serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            self.processes.append(process)
            process.stdin.write(self.pickled)
        except OSError:
            return None
        return process

    def dismiss(self) -> None:
        for process in self.processes:
            process.kill()
            process.stdout.close()
            with suppress(OSError):  # what is left in the pipe of a dead process
                process.stdin.close()
            process.wait()


def serve() -> None:
    """What such a process does, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who asks
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that nothing that prints comes between the answers
    dataset = pickle.load(source)
    while True:
        try:
            indices = pickle.load(source)
        except EOFError:
            return
        pickle.dump(check_chunk(dataset, indices), answers)
        answers.flush()
