"""Ctrl-C is answered at once, in training, evaluation and while data are read; a second one stops now."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import assert_equal_runs, checkpoints, quiet_run, recipe, run_until

from segue.core.progress import Display
from segue.engine import build, record, train
from segue.engine.interrupt import STOPPED_NOW, STOPPING, interrupts

PATIENCE = 30
LONG_CALL = """
import hashlib, sys, threading, time
from contextlib import nullcontext
from segue.core.progress import Display
from segue.engine.interrupt import interrupts

def long_call():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # minutes, and Python's handlers wait for its end

def tell_when_it_is_on(main):
    while sys._current_frames()[main].f_code.co_name != "long_call":
        time.sleep(0.01)
    time.sleep(0.2)
    print("ready", flush=True)

threading.Thread(target=tell_when_it_is_on, args=(threading.get_ident(),), daemon=True).start()
with interrupts(Display()) as stops, {phase}:
    long_call()
"""


def interrupted_while(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, signals: int = 1) -> None:
    """Press Ctrl-C whenever a function is called."""
    real = getattr(where, name)

    def interrupting(*arguments: Any, **options: Any) -> Any:
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)  # Python's handler runs
        return real(*arguments, **options)

    monkeypatch.setattr(where, name, interrupting)


@pytest.mark.parametrize(
    ("phase", "answers"),
    [("stops.after_iteration()", [STOPPING, STOPPED_NOW]), ("nullcontext()", [STOPPED_NOW])],
)
def test_a_long_call_does_not_keep_one_waiting(phase: str, answers: list[str]) -> None:
    code = LONG_CALL.format(phase=phase)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        try:
            for answer in answers:
                process.send_signal(signal.SIGINT)
                assert process.stderr.readline().strip() == answer
            assert process.wait(timeout=PATIENCE) == 128 + signal.SIGINT
        finally:
            process.kill()


def test_a_second_ctrl_c_stops_inside_the_iteration(tmp_path, finished, monkeypatch) -> None:
    folder = tmp_path / "run"
    run_until(recipe("mib"), folder, 3)
    with monkeypatch.context() as patch:
        interrupted_while(patch, train, "update", signals=2)
        with pytest.raises(KeyboardInterrupt):
            quiet_run(recipe("mib"), folder, resume=True)
    assert checkpoints(folder)[-1] == "step0-00000003", "the iteration was not finished"
    quiet_run(recipe("mib"), folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def test_an_evaluation_stops_at_once(tmp_path, finished, monkeypatch) -> None:
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupted_while(patch, record, "evaluate")
        with pytest.raises(KeyboardInterrupt):
            quiet_run(recipe("mib"), folder)
    assert checkpoints(folder) == ["step0"]
    quiet_run(recipe("mib"), folder, resume=True)
    assert_equal_runs(folder, finished("mib"))


def test_reading_the_masks_stops_at_once_and_leaves_nothing(tmp_path, monkeypatch) -> None:
    interrupted_while(monkeypatch, build, "class_index")
    with pytest.raises(KeyboardInterrupt):
        quiet_run(recipe("mib"), tmp_path / "runs" / "run")
    assert not (tmp_path / "runs").exists()


def test_handlers_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interrupts(Display(quiet=True)):
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_handlers_are_as_before_though_a_reader_dies_at_the_end(monkeypatch) -> None:
    """torch's handler of dead readers raises an error wherever the main thread is."""
    if not hasattr(signal, "SIGCHLD"):
        pytest.skip("no SIGCHLD here")

    def raises(number: int, frame: object) -> None:
        raise RuntimeError("a reader was killed")

    def dies_before(descriptor: int, **options: bool) -> int:
        os.kill(os.getpid(), signal.SIGCHLD)
        return set_wakeup_fd(descriptor, **options)

    set_wakeup_fd, handler = signal.set_wakeup_fd, signal.signal(signal.SIGCHLD, raises)
    try:
        with interrupts(Display(quiet=True)):
            monkeypatch.setattr(signal, "set_wakeup_fd", dies_before)
        assert signal.getsignal(signal.SIGCHLD) is raises
        assert set_wakeup_fd(-1) == -1
    finally:
        signal.signal(signal.SIGCHLD, handler)
        set_wakeup_fd(-1)


def test_what_is_ignored_stays_ignored() -> None:
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts(Display(quiet=True)) as stops, stops.after_iteration() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN and not stop.is_set()
    finally:
        signal.signal(signal.SIGINT, handler)


def test_other_threads_run_without_handlers() -> None:
    def inside() -> None:
        with interrupts(Display(quiet=True)) as stops, stops.after_iteration() as stop:
            done.append(stop.is_set())

    done: list[bool] = []
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join(PATIENCE)
    assert done == [False]


def test_a_forked_worker_does_not_speak_for_the_run(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    with interrupts(Display(quiet=True)) as stops, stops.after_iteration() as stop:
        _in_child(lambda: os.kill(os.getpid(), signal.SIGINT))
        time.sleep(0.2)
        assert not stop.is_set()


def _in_child(work: Callable[[], None]) -> None:
    child = os.fork()
    if child == 0:
        try:
            work()
            time.sleep(0.01)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
