"""Pages that list all of something do list all of it."""

import dataclasses
import re
from pathlib import Path

import pytest
import typer.main

import segue.losses
from segue.cli import app
from segue.core.config import RunConfig
from segue.testing import check_method

ROOT = Path(__file__).parents[1]


def in_code(page: str) -> set[str]:
    """Whatever stands in backticks on a page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return set(re.findall(r"`([^`\n]+)`", text))


def test_page_of_losses_lists_every_public_name() -> None:
    assert {*segue.losses.__all__} <= in_code("api/losses.md")


def test_page_of_everything_lists_every_verb() -> None:
    commands = typer.main.get_command(app).commands
    verbs = {
        f"{name} {inner}" if inner else name
        for name, command in commands.items()
        for inner in (getattr(command, "commands", None) or [""])
    }
    assert verbs <= in_code("all-of-segue.md")


def test_page_of_everything_lists_every_section_of_a_recipe() -> None:
    text = (ROOT / "docs" / "all-of-segue.md").read_text(encoding="utf-8")
    recipe = re.search(r"```yaml\n(.*?)```", text, re.S)
    assert recipe is not None
    sections = re.findall(r"^(\w+):", recipe[1], re.M)
    assert sections == [field.name for field in dataclasses.fields(RunConfig)]


def test_files_that_contributors_are_sent_to_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = re.findall(r"`((?:src|tests)/[\w/.]+)`", text)
    assert len(files) > 10
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_first_pages_stay_short(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 120


def test_example_method_keeps_the_contract() -> None:
    check_method(str(ROOT / "examples" / "my_method.py"))
