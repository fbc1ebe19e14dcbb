"""times.jsonl says what the clock said, line for line beside a log that any machine can reproduce."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path

from tiny_runs import log_lines, quiet_run, recipe, run_until

from segue.engine.log import TIMES_LOG


def times(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / TIMES_LOG).read_text().splitlines()]


def test_each_line_of_the_log_has_its_time(finished) -> None:
    folder = finished("mib")
    told = [(line["step"], line["iteration"]) for line in log_lines(folder)]
    assert [(line["step"], line["iteration"]) for line in times(folder)] == told
    clock = [datetime.fromisoformat(line["time"]) for line in times(folder)]
    assert clock == sorted(clock) and all(moment.tzinfo is not None for moment in clock)
    for line in times(folder):
        assert line["seconds"] > 0 and line["iterations_per_second"] > 0 and line["peak_memory"] > 1e6
    first, second = times(folder)[:2]
    speed = (second["iteration"] - first["iteration"]) / (second["seconds"] - first["seconds"])
    assert abs(second["iterations_per_second"] - speed) < 0.2 * speed  # seconds are rounded to a thousandth


def test_what_was_done_in_vain_took_its_time(tmp_path: Path, finished) -> None:
    folder, config = tmp_path / "run", recipe("mib", "train.save_seconds=1000")
    run_until(config, folder, 3)
    (folder / "checkpoints").rename(tmp_path / "lost")
    with open(folder / TIMES_LOG, "a") as file:
        file.write('{"step": 0, "iter')  # a process was killed while it wrote
    quiet_run(config, folder, resume=True)
    iterations = [(line["step"], line["iteration"]) for line in times(folder)]
    assert iterations == [(0, 2), *((line["step"], line["iteration"]) for line in log_lines(folder))]
    assert (folder / "log.jsonl").read_bytes() == (finished("mib") / "log.jsonl").read_bytes()


def test_overwrite_begins_a_new_log(tmp_path: Path, finished) -> None:
    folder = shutil.copytree(finished("finetune"), tmp_path / "run")
    before = times(folder)
    quiet_run(recipe("finetune"), folder, overwrite=True)
    assert len(times(folder)) == len(before)
