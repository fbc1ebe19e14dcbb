"""Runs of several processes: `segue` as torchrun starts it, without the seconds that its imports take."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

SERVER = """
import json, os, signal, sys
import segue.cli, segue.engine.run, segue.report, torch, torchvision  # slow to import: once for all processes
for line in sys.stdin:
    job, processes = json.loads(line), []
    for rank in range(job["size"]):
        processes.append(os.fork())
        if processes[-1] == 0:
            output = os.open(f"{job['output']}{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1), os.dup2(output, 2)
            os.environ.update(job["environment"], RANK=str(rank), LOCAL_RANK=str(rank))
            sys.argv = ["segue", *job["words"]]
            torch.set_default_dtype(getattr(torch, job["dtype"]))
            code = 0
            try:
                segue.cli.main()
            except SystemExit as stop:
                code = stop.code or 0
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)  # an interpreter that has torch takes seconds to take down
    print(*processes, flush=True)
    print(*(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes), flush=True)
"""


def environment(cache: Path) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return (
        os.environ | threads | {"SEGUE_CACHE": str(cache), "TORCH_CPP_LOG_LEVEL": "ERROR", "COLUMNS": "200"}
    )


@dataclass
class Several:
    """Starts two processes that belong together, one pair after the other."""

    server: subprocess.Popen
    home: Path

    def start(self, *words: str | Path, size: int = 2, restarts: int = 0) -> list[int]:
        """The processes' numbers. They compute in the default type that torch has here."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        names = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
        names |= {"TORCHELASTIC_RUN_ID": "a test", "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        job = {"words": list(map(str, words)), "size": size, "output": str(self.home / "output")}
        job["dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
        self.server.stdin.write(json.dumps(job | {"environment": names}) + "\n")
        self.server.stdin.flush()
        return [int(number) for number in self.server.stdout.readline().split()]

    def wait(self) -> list[int]:
        """Their exit codes."""
        return [int(code) for code in self.server.stdout.readline().split()]

    def run(self, *words: str | Path, size: int = 2, restarts: int = 0) -> list[int]:
        self.start(*words, size=size, restarts=restarts)
        return self.wait()

    def said(self, rank: int) -> str:
        """The words of Segue. Gloo of torch 2.10 adds a line of its own, at every level of its log."""
        lines = (self.home / f"output{rank}").read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("[Gloo]"))


def open_server(home: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(home / "cache"),
    )


def torchrun(*words: str | Path, restarts: int = 0, home: Path) -> subprocess.Popen:
    """The real one, with two processes."""
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts)]
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, "-m", "segue", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home / "cache"),
    )
