"""Every verb ends with the command to type next, and that is one which the command line understands."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from own_folder import write_pair
from short_runs import SHORT
from typer.main import get_command

from segue import cli
from segue.cli import _stories
from segue.core.verdict import Verdict
from segue.engine.folder import default_folder
from segue.engine.recipe import resolve

TINY = ("--on", "scenes", "--split", "2-1", *SHORT)
SILENT = {
    "help": "its text is full of commands",
    "serve": "a request comes next, with curl, and it says which",
}
"""verbs without a next command, with the reason"""


def verbs() -> Iterator[tuple[str, ...]]:
    for name, command in get_command(cli.app).commands.items():
        inner = getattr(command, "commands", None)
        yield from [(name, each) for each in inner] if inner else [(name,)]


def module_of(verb: tuple[str, ...]) -> str:
    *group, name = verb
    names = [name, f"{name}_"]
    return next(
        found
        for found in (".".join(["segue.cli", *group, each]) for each in names)
        if importlib.util.find_spec(found) is not None
    )


@pytest.mark.parametrize("verb", [verb for verb in verbs() if verb[0] not in SILENT], ids=" ".join)
def test_every_verb_says_what_to_type_next(verb):
    tree = ast.parse(inspect.getsource(importlib.import_module(module_of(verb))))
    called = {
        node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    assert called & {"tell_next", "tell_report"}


def understood(error: str) -> list[str]:
    """The words of the last line, a command that can be typed: verb, options and arguments are right."""
    line = error.splitlines()[-1]
    assert line.startswith("Next: segue "), error
    words = shlex.split(line.removeprefix("Next: segue "), comments=True)
    assert_typeable(words)
    return words


def assert_typeable(words: list[str]) -> None:
    command = get_command(cli.app)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(command.name, rest)  # raises on an unknown option or a missing argument


def test_the_stories_can_be_typed():
    for commands in _stories.COMMANDS.values():
        assert 2 <= len(commands) <= 3
        for command in commands:
            assert_typeable(shlex.split(command)[1:])


def test_the_story_of_a_model_goes_on_with_the_run_that_it_made():
    train, extend, _ = (shlex.split(command) for command in _stories.COMMANDS[_stories.USE])
    settings = [word for word in train if "=" in word]
    config = resolve(train[2], train[4], train[6], overrides=settings)
    assert str(default_folder(config)) == extend[2]


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder with a short run, a photo, images of a new class, and masks with an id that has no name."""
    from PIL import Image

    from segue.core.progress import Display
    from segue.engine.run import run

    home = tmp_path_factory.mktemp("desk")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGUE_CACHE", str(home / "cache"))
        run(resolve("mib", "scenes", "2-1", None, SHORT), home / "run", display=Display(quiet=True))
    Image.new("RGB", (40, 32), "gray").save(home / "photo.png")
    for folder, classes in {"birds": [0, 1], "bad": [0, 1, 9]}.items():
        for number in range(8):
            name = f"{number}.png"
            write_pair(home / folder / "images" / name, home / folder / "masks" / name, classes)
        (home / folder / "classes.txt").write_text("background\nbird\n")
    return home


ROWS = {
    "list": "backbones",
    "show": "mib --on scenes --split 5-2",
    "plan": f"mib {' '.join(TINY)} --gpu t4",
    "eval": "run",
    "report": "run --out page.html",
    "export": "run exported",
    "predict": "run photo.png --out predicted",
    "data check": f"{' '.join(TINY)}",
    "data show": f"{' '.join(TINY)} --out sheet.html",
    "scenario write": f"written.json {' '.join(TINY[:-1])}",
    "train": f"finetune {' '.join(TINY)} --out trained",
}


@pytest.mark.parametrize("verb", ROWS)
def test_a_verb_ends_with_a_command_that_can_be_typed(segue, desk, monkeypatch, verb):
    monkeypatch.chdir(desk)
    code, _, err = segue(*verb.split(), *ROWS[verb].split())
    assert code == 0, err
    understood(err)


def test_the_demo_and_a_download_say_it_too(segue, monkeypatch, tmp_path):
    monkeypatch.setattr("segue.studies.demo.demo", lambda *_, **__: None)
    assert understood(segue("demo", "--out", tmp_path)[2])[0] == "train"
    monkeypatch.setattr("segue.data.fetch.fetch.fetch_data", lambda *_, **__: tmp_path / "my data")
    assert understood(segue("data", "fetch", "voc")[2])[-1] == f"data.root={tmp_path / 'my data'}"


def test_a_check_that_says_no_names_itself(segue, desk, monkeypatch):
    monkeypatch.chdir(desk)
    words = ["data", "check", "--on", "folder", "--split", "bird", "data.root=bad"]
    code, _, err = segue(*words)
    assert code == 1 and understood(err) == words


@pytest.mark.parametrize(
    ("answer", "code", "verb", "word"),
    [
        ("safe to deploy", 0, "predict", "--out"),
        ("look here first", 1, "predict", "--compare"),
        ("not safe", 1, "extend", "--keep"),
    ],
)
def test_what_follows_an_extension_depends_on_the_verdict(
    segue, desk, monkeypatch, tmp_path, answer, code, verb, word
):
    monkeypatch.chdir(desk)
    verdict = Verdict(answer, "nothing.", (), {"bird": 50.0}, None, False)
    monkeypatch.setattr("segue.deploy.examine.examine", lambda *_: verdict)
    monkeypatch.setattr("segue.deploy.extend.extend", lambda *_, **__: SimpleNamespace(network=None))
    found, _, err = segue("extend", "run", "birds", "--out", tmp_path / "grown")
    words = understood(err)
    assert found == code and words[0] == verb and word in words
