"""Counters of a server in Prometheus' text format."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
Gauge = tuple[str, str, float]
"""name, meaning and value of a figure that rises and falls"""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How many values lie below each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts = bounds, [0] * len(bounds)
        self.sum, self.count = 0.0, 0

    def add(self, value: float) -> None:
        self.sum += value
        self.count += 1
        for place, bound in enumerate(self.bounds):
            if value <= bound:
                self.counts[place] += 1

    def lines(self, name: str) -> Iterator[str]:
        for bound, count in zip(self.bounds, self.counts, strict=True):
            yield f'{name}_bucket{{le="{bound:g}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.count}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {self.count}"


class Metrics:
    """What a server has done since it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds, self._batches = Histogram(SECONDS), Histogram(BATCHES)

    def request(self, route: str, status: int) -> None:
        with self._lock:
            self._requests[route, status] += 1

    def answered(self, seconds: float) -> None:
        with self._lock:
            self._seconds.add(seconds)

    def batch(self, size: int) -> None:
        with self._lock:
            self._batches.add(size)

    def text(self, gauges: Iterable[Gauge]) -> str:
        """All figures."""
        with self._lock:
            lines = _head("segue_requests_total", "counter", "Requests by route and HTTP status.")
            lines += [
                f'segue_requests_total{{route="{route}",status="{status}"}} {count}'
                for (route, status), count in sorted(self._requests.items())
            ]
            meaning = "Seconds from a received file to its answer."
            lines += _head("segue_predict_seconds", "histogram", meaning)
            lines += self._seconds.lines("segue_predict_seconds")
            lines += _head("segue_batch_size", "histogram", "Images that a network got at once.")
            lines += self._batches.lines("segue_batch_size")
        for name, meaning, value in gauges:
            lines += [*_head(name, "gauge", meaning), f"{name} {value}"]
        return "\n".join(lines) + "\n"


def memory() -> list[Gauge]:
    """Memory of this process, where the system tells it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return []
    size = pages * os.sysconf("SC_PAGE_SIZE")
    return [("process_resident_memory_bytes", "Memory of the process.", size)]


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
