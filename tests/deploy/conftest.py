"""What tests of deployed models share: the command line, pictures of pets, and a model that knows two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pets import NAMES, draw, train

import segue


@pytest.fixture(name="command_line")
def command_line_fixture(request: pytest.FixtureRequest) -> Callable[..., tuple[int, str, str]]:
    """`segue WORDS` in this process; the fixture has the name of the package."""
    return request.getfixturevalue("segue")


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all classes, as a scenario needs it; images of later classes show them alone."""
    root = tmp_path_factory.mktemp("data") / "all"
    for subset, count in (("train", 8), ("val", 3)):
        for number in range(count):
            draw(root, f"a{number}", (1, 2), NAMES, subset)
            draw(root, f"b{number}", (3,), NAMES, subset)
            draw(root, f"c{number}", (4,), NAMES, subset)
    return root


@pytest.fixture(scope="session")
def model(everything: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that knows cat and dog."""
    home = tmp_path_factory.mktemp("model")
    segue.load(train("mib", "cat,dog", everything, home / "run")).save(home / "pets")
    return home / "pets"
