"""One job in a process of its own: in this process, or on several GPUs by torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from segue.core import plugins
from segue.core.config import to_yaml
from segue.core.errors import UserError
from segue.core.launch import end_with_parent, safe_path
from segue.core.progress import Display
from segue.engine.interrupt import Interrupted
from segue.engine.run import run
from segue.studies.jobs import Job

ERROR = "error in process 0: "
"""how the first process of torchrun begins the line that says what is wrong"""


def carry_out(job: Job, device: str, gpus: int, display: Display) -> str | None:
    """Carry out a job; returns what went wrong, if something did. Several GPUs have a process each."""
    name = job.folder.name
    try:
        if gpus > 1:
            _torchrun(job, device, gpus, display)
        else:
            run(job.config, job.folder, job.resume, job.overwrite, device, display, job.sound_start)
    except UserError as error:
        return f"{name}: {error}"
    except Interrupted:
        return f"{name}: stopped from outside; all is saved."
    except Exception as error:
        if (own := plugins.own_error(error)) is None:
            raise
        return f"{name}: {own}"
    return None


def _torchrun(job: Job, device: str, gpus: int, display: Display) -> None:
    """`segue train` with one process per GPU; what it says is passed on, line by line."""
    with tempfile.TemporaryDirectory() as place:
        recipe = Path(place) / "recipe.yaml"
        recipe.write_text(to_yaml(job.config), encoding="utf-8")
        words = [str(recipe), "--out", str(job.folder), "--device", device]
        words += ["--resume"] * job.resume + ["--overwrite"] * job.overwrite
        if (start := job.sound_start) is not None:
            words += ["--from", str(start)]
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)]
        with safe_path():
            process = subprocess.Popen(
                [sys.executable, *launch, "-m", "segue", "train", *words],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="backslashreplace",
                preexec_fn=end_with_parent,
                env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR", "COLUMNS": "200"},
            )
        errors = _follow(process, job.folder.name, display)
    if process.returncode:
        raise UserError(errors or f"torchrun ended with exit code {process.returncode}.")


def _follow(process: subprocess.Popen[str], name: str, display: Display) -> str:
    """Pass on lines until the process ends; returns its error. SIGTERM and Ctrl-C are passed on, too."""
    asked = list[int]()

    def pass_on(number: int, _: Any) -> None:
        asked.append(number)
        process.terminate()

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, pass_on)
    error = ""
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(ERROR):
                error = line.removeprefix(ERROR).strip()
            elif ": " in line and " of " in line:  # a heartbeat: what torchrun itself says is left out
                display.say(f"{name}: {line.strip()}")
        process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if asked:
        raise Interrupted
    return error
