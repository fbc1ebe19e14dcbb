"""The walk through `segue train` in the docs names real functions, in the order in which a run calls them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tiny_runs import arguments

import segue
from segue import cli

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
SOURCE = Path(segue.__file__).parent


def walk() -> list[tuple[str, str]]:
    """File and function of every stop, in the order of the page."""
    section = PAGE.read_text(encoding="utf-8").partition("## A walk through")[2].partition("\n## ")[0]
    return re.findall(r"`([\w/]+\.py): (\w+)`", section)


@pytest.mark.parametrize(("file", "function"), walk())
def test_every_stop_is_a_function(file: str, function: str) -> None:
    assert re.search(rf"^ *def {function}\(", (SOURCE / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_a_run_goes_the_way_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stops = walk()
    wanted, called = {(str(SOURCE / file), name) for file, name in stops}, []

    def follow(frame: FrameType, event: str, _: Any) -> None:
        place = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and place in wanted and place not in called:
            called.append(place)

    words = arguments("mib", tmp_path / "run", "train.epochs=1", "train.epochs_next=1", "train.log_every=1")
    monkeypatch.setattr(sys, "argv", ["segue", *words])
    sys.setprofile(follow)
    try:
        cli.main()
    except SystemExit as stop:
        assert not stop.code
    finally:
        sys.setprofile(None)
    assert [f"{Path(file).relative_to(SOURCE).as_posix()}: {name}" for file, name in called] == [
        f"{file}: {name}" for file, name in stops
    ]
