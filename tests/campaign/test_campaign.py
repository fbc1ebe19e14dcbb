"""A seeded sample of the campaign, and its page."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

import segue
from campaign import faults
from campaign.inputs import TEXTS
from campaign.models import TENSORS
from campaign.page import PROMISES, reliability_page
from campaign.tally import Tally, try_all
from segue.core.errors import UserError

ROOT = Path(__file__).parents[2]
SAMPLE = 25
"""tries of each class; `make campaign` makes hundreds to thousands"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all classes: the run that they damage is made once."""
    return tmp_path_factory.mktemp("campaign")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TEXTS | TENSORS)
def test_sample_of_strange_input(name: str, place: Path) -> None:
    attack, tries = (TEXTS | TENSORS)[name]
    assert tries >= SAMPLE
    tally = Tally(name)
    attack(tally, SAMPLE, 1, place)
    assert tally.tries >= SAMPLE // 2 and not tally.failures, tally.examples
    assert 0 < tally.refused < tally.tries, "some are accepted: an attack that nothing survives tells little"


@pytest.mark.skipif(sys.platform != "linux", reason="forks processes that have used torch")
def test_sample_of_failing_disks() -> None:
    """In a process of its own: one with threads of autograd cannot fork."""
    command = [sys.executable, "-m", "campaign", "--only", "failing disk", "--share", "0.0067", "--seed", "1"]
    path = os.pathsep.join([str(ROOT), str(Path(segue.__file__).parents[1])])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "2 tries, 0 failures" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("kind", faults.KINDS)
def test_faults_are_what_they_say(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a").write_bytes(b"1")
    fault = faults.Fault(kind, 2, folder, random.Random(0))
    fault()
    if kind == "kill":
        return
    if kind == "slow":
        began = time.monotonic()
        fault()
        fault()
        assert time.monotonic() - began >= 2 * faults.SLOW_SECONDS
        return
    if kind in faults.FORGIVEN:
        fault()
        assert (folder / "a").is_symlink() == (kind == "link") and not (folder / "a").exists()
    else:
        with pytest.raises(OSError):
            fault()


def test_tracebacks_and_sentences_are_told_apart() -> None:
    def work(number: int) -> None:
        if number % 3 == 1:
            raise UserError("no")
        if number % 3 == 2:
            raise KeyError(number)

    tally = Tally("test")
    try_all(tally, st.integers(0, 8), work, 50, 0)
    assert tally.refused and tally.failures.keys() == {"traceback"} and tally.examples


def test_page_is_that_of_the_stored_campaign() -> None:
    names = ("campaign.json", "long-life.json")
    document, long_life = (json.loads((ROOT / "results" / name).read_text()) for name in names)
    assert (ROOT / "docs" / "reliability.md").read_text() == reliability_page(document, long_life)
    tried = {tally["name"]: tally for tally in document["classes"]}
    assert tried.keys() == PROMISES.keys()
    assert sum(tally["tries"] for tally in tried.values()) >= 10_000
    assert not any(tally["failures"] for tally in tried.values())
