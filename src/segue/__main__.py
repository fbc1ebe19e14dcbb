"""The entry point of the `segue` command, and of `python -m segue`.

Importing what the command line needs takes a moment, in which Ctrl-C would end in a traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

STOPPED = 130
MESSAGE = b"Stopped. The same command starts again, or goes on if it can.\n"


def main() -> None:
    """Nothing is open while imports are under way: Ctrl-C may end the process as it is."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _stop)
    from segue.cli import main as command_line

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, before)
    command_line()


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, MESSAGE)
    os._exit(STOPPED)


def _leave_current_folder() -> None:
    """`python -m` looks for modules in the current folder first: a stray `yaml.py` there would be run."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with suppress(OSError):  # a folder that is gone holds no modules
        if not sys.flags.safe_path and not os.path.samefile(sys.path[0] or ".", root):
            del sys.path[0]


if __name__ == "__main__":
    _leave_current_folder()
    main()
