"""Ctrl-C and SIGTERM: answered at once, also while torch computes for minutes.

Python runs its handlers between two lines of the main thread, so that a backward pass keeps them waiting. The
interpreter writes the number of a signal to a socket at once, though; a thread reads it there and answers.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from segue.core.launch import this_launch
from segue.core.progress import Display

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 1.0
"""time that the main thread has to end by itself when it is to stop at once"""
STOPPING = "Stopping after this iteration; press Ctrl-C again to stop now."
STOPPED_NOW = "Stopped. Go on from the last checkpoint with the same command (for train, add --resume)."


class Interrupted(Exception):
    """The run was asked to stop: everything is saved, it can go on from here."""


class Interrupts:
    """What Ctrl-C and SIGTERM do: inside `after_iteration` the first one waits for the iteration's end."""

    def __init__(self, answer: Callable[[str], None]) -> None:
        self.stop = threading.Event()
        """set when the run is to save and stop after this iteration"""
        self._answer, self._in_training, self._handled = answer, False, 0

    @contextmanager
    def after_iteration(self) -> Iterator[threading.Event]:
        """Training goes on to the end of its iteration, where it looks at the event."""
        self._in_training = True
        try:
            yield self.stop
        finally:
            self._in_training = False

    def handle(self, number: int, previous: Any, frame: FrameType | None) -> None:
        """Python's handler, in the main thread: two signals during one long call arrive as one."""
        self._handled += 1
        if self._waits(self._handled):
            self.stop.set()
        elif callable(previous):
            previous(number, frame)  # Python's own raises KeyboardInterrupt
        else:
            signal.signal(number, previous)
            os.kill(os.getpid(), number)

    def hear(self, count: int) -> bool:
        """In the thread that hears each signal at once: answer, and say whether the run ends at once."""
        if not self._waits(count):
            return True
        self.stop.set()
        if count == 1:
            self._answer(STOPPING)
        return False

    def _waits(self, count: int) -> bool:
        # torchrun passes on a signal that the process may have got itself, and kills what does not end soon
        return self._in_training and (count == 1 or this_launch().by_torchrun)


@contextmanager
def interrupts(display: Display | None) -> Iterator[Interrupts]:
    """Listen as long as a run is on, and answer on the display of the process that has one.

    Python allows it in the main thread only. A signal that is ignored stays ignored: a run beside others
    hears of Ctrl-C from its parent.
    """
    answer = display.answer if display is not None else lambda _: None
    heard = Interrupts(answer)
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    previous = {n: handler for n in SIGNALS if (handler := signal.getsignal(n)) not in (None, signal.SIG_IGN)}
    near, far = socket.socketpair()
    far.setblocking(False)
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(near, heard, over, display), daemon=True)
    watch.start()
    before = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    _own_socket.add(far.fileno())
    for number, handler in previous.items():
        signal.signal(number, lambda n, frame, handler=handler: heard.handle(n, handler, frame))
    try:
        yield heard
    finally:
        with _undisturbed():
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
            _own_socket.discard(far.fileno())
            over.set()
            far.close()
            watch.join()
            near.close()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without handlers of dead children: torch's raises an error wherever the main thread is."""
    children = [number] if (number := getattr(signal, "SIGCHLD", None)) is not None else []
    handlers: dict[int, Any] = {}
    try:
        for number in children:
            handlers[number] = signal.signal(number, signal.SIG_DFL)
    finally:
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _watch(near: socket.socket, heard: Interrupts, over: threading.Event, display: Display | None) -> None:
    count = 0
    while numbers := near.recv(1):
        if numbers[0] not in SIGNALS:
            continue
        count += 1
        if heard.hear(count) and not over.wait(GRACE_SECONDS) and not hasattr(sys, "ps1"):
            # the main thread is inside a long call; an interactive session is not ended for that
            if display is not None:
                display.release_terminal()
                display.answer(STOPPED_NOW)
            os._exit(128 + numbers[0])


_own_socket: set[int] = set()


def _close_in_child() -> None:
    """A forked worker must not write the signals that it gets itself to its parent's socket."""
    if _own_socket:
        _own_socket.clear()
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
