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
from dataclasses import dataclass

import numpy as np

from segue.core.errors import UserError
from segue.data.datasets.base import SegDataset
from segue.data.image_files import QUIET

CHUNK = 64
"""most images that are asked for at once: a tenth of a second, for the progress bar and for Ctrl-C"""
MANY = 3000
"""images from which on processes are worth their start, a good half second"""


@dataclass(frozen=True)
class Checked:
    """What a look at some images in a row has found. Rows of bad ones are zero."""

    sizes: np.ndarray
    """height and width of each image"""
    pixels: np.ndarray
    """uint32: how many pixels of each mask have each of 256 class ids"""
    peaks: np.ndarray
    """the largest value of each 16-bit grey image, 0 for others"""
    bad: dict[int, UserError]
    """errors, by position in the row"""


def check_all(dataset: SegDataset) -> Iterator[Checked]:
    """What is found in all images, chunk by chunk, in order."""
    images, cores = len(dataset), os.cpu_count() or 1
    size = max(1, min(CHUNK, images // (4 * cores)))
    chunks = [range(i, min(i + size, images)) for i in range(0, images, size)]
    crew = _Crew(dataset)
    pool = ThreadPoolExecutor(max_workers=cores)
    try:
        yield from pool.map(crew.check, chunks)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the files that are left
        crew.dismiss()


def check_chunk(dataset: SegDataset, indices: Sequence[int]) -> Checked:
    count = len(indices)
    shapes = ((count, 2), np.int32), ((count, 256), np.uint32), (count, np.int32)
    checked = Checked(*(np.zeros(*shape) for shape in shapes), bad={})
    with QUIET:
        for position, index in enumerate(indices):
            try:
                content = dataset.check(index)
            except UserError as error:
                checked.bad[position] = error
            else:
                checked.sizes[position], checked.pixels[position] = content.size, content.pixels
                checked.peaks[position] = content.peak
    return checked


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

    def check(self, indices: Sequence[int]) -> Checked:
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
