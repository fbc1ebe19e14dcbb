"""The command line: every verb explains itself, lists what there is, and refuses nonsense."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import segue
from segue import cli
from segue.cli import _stories
from segue.core import plugins
from segue.core.backbones import SHORT_LIST
from segue.engine.recipe import recipe_folder

VERBS = (
    "check",
    "help",
    "train",
    "show",
    "plan",
    "eval",
    "export",
    "extend",
    "predict",
    "serve",
    "report",
    "demo",
    "ablate",
    "compare",
    "reproduce",
    "tune",
    "list",
    "data",
    "scenario",
)
WIDE = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(words), env=WIDE)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_help_names_every_verb():
    code, text = call("--help")
    assert code == 0
    assert set(get_command(cli.app).commands) == set(VERBS)
    for verb in VERBS:
        assert f" {verb} " in text
    stories = [text.index(f"─ {story} ─") for story in _stories.COMMANDS]
    assert stories == sorted(stories)
    assert text.index(" data ") < text.index(" train ") < text.index(" export "), "in the order of use"


def test_every_verb_has_a_place_in_a_story():
    for verb, command in get_command(cli.app).commands.items():
        assert command.rich_help_panel in _stories.COMMANDS, verb


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_names_its_options(verb):
    code, text = call(verb, "--help")
    assert code == 0
    parameters = get_command(cli.app).commands[verb].params
    options = [name for parameter in parameters for name in parameter.opts if name.startswith("--")]
    for option in options:
        assert option in text
    # extend also holds options of the verdict, of old images and of adopted networks; compare where its
    # runs are carried out; reproduce that and what it verifies; tune that and how it chooses
    most = {"extend": 19, "compare": 13, "reproduce": 14, "tune": 14}.get(verb, 12)
    assert len(options) <= most, "everything else is a key=value word"
    for parameter in parameters:
        assert getattr(parameter, "help", None), f"{verb} {parameter.name} has no help"


def test_options_of_train():
    _, text = call("train", "--help")
    for option in ("--on", "--split", "--mode", "--seed", "--out", "--resume", "--overwrite", "--device"):
        assert option in text
    assert "KEY=VALUE" in text and "optim.lr_next=0.001" in text


def test_no_words_show_the_stories_with_commands_that_exist():
    code, text = call()
    verbs = get_command(cli.app).commands
    for story, commands in _stories.COMMANDS.items():
        assert story in text
        for command in commands:
            assert command in text and command.split()[1] in verbs and len(command) <= 78
    assert code == 0 and "segue --help" in text and "Usage" not in text
    (train,) = [line for line in text.splitlines() if "segue train caf --on folder" in line]
    assert "model.pretrained=" in train, "without it the run is refused"


def test_version():
    assert call("--version") == (0, f"{segue.__version__}\n")


def test_list_methods():
    code, text = call("list", "methods")
    assert code == 0
    assert {"finetune", "joint", "mib", "caf"} <= set(plugins.names("method"))
    for name in plugins.names("method"):
        assert any(line.split()[:1] == [name] for line in text.splitlines()), name
    assert "Cermelli et al., CVPR" in text and "2020" in text


def test_list_datasets():
    code, text = call("list", "datasets")
    assert code == 0
    assert {"scenes", "voc"} <= set(plugins.names("dataset"))
    for name in plugins.names("dataset"):
        assert any(line.split()[:1] == [name] for line in text.splitlines()), name


def test_list_backbones():
    code, text = call("list", "backbones")
    assert code == 0
    for name, about in SHORT_LIST.items():
        assert name in text and about in text


def test_list_recipes():
    code, text = call("list", "recipes")
    names = [path.name for path in recipe_folder().glob("*.yaml")]
    assert code == 0 and names
    for name in names:
        assert f"segue train {name}" in text or f"segue compare {name}" in text


def test_list_of_something_else():
    code, text = call("list", "losses")
    assert code == 2 and "'methods'" in text


@pytest.mark.parametrize(
    "words", [["trian"], ["train"], ["train", "mib", "--speed", "9"], ["show", "--resume"]]
)
def test_wrong_words(words):
    code, text = call(*words)
    assert code == 2 and "Usage" in text


def test_show_prints_the_resolved_recipe():
    words = ["show", "mib", "--on", "voc", "--split", "15-1", "--seed", "3", "train.epochs=2"]
    code, text = call(*words, "--quiet")
    recipe = yaml.safe_load(text)
    assert code == 0
    assert (recipe["method"]["name"], recipe["method"]["params"]["kd_weight"]) == ("mib", 100.0)
    assert recipe["scenario"]["split"] == "15-1" and recipe["scenario"]["mode"] == "overlapped"
    assert recipe["train"]["seed"] == 3 and recipe["train"]["epochs"] == 2


def test_shown_recipe_is_found_by_its_short_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text = call("show", "scenes-caf.yaml")
    assert code == 0 and yaml.safe_load(text)["method"]["name"] == "caf"
    (tmp_path / "scenes-caf.yaml").write_text(
        "scenario: {dataset: scenes, split: 2-1}\nmethod: {name: joint}\n"
    )
    _, text = call("show", "scenes-caf.yaml")
    assert yaml.safe_load(text)["method"]["name"] == "joint", "a file of that name comes first"


def test_words_win_over_the_recipe_file(tmp_path):
    (tmp_path / "my.yaml").write_text("scenario: {dataset: scenes, split: 5-2}\nmethod: {name: mib}\n")
    _, text = call("show", str(tmp_path / "my.yaml"), "--split", "3-3", "--mode", "disjoint", "--seed", "9")
    recipe = yaml.safe_load(text)
    assert (recipe["scenario"]["split"], recipe["scenario"]["mode"]) == ("3-3", "disjoint")
    assert recipe["train"]["seed"] == 9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "scenes", "--split", "12-3"), "scenes has 9"),
        (("--on", "scenes", "--split", "5-2-3"), "scenes has 9"),
        (("--on", "voc", "--split", "cat,dgo/bird"), "Did you mean 'dog'"),
        (("--on", "voc", "--split", "15-5", "scenario.order=c"), "no class order"),
        (("--on", "folder", "--split", "cat/bird", "data.root={root}"), "'bird' is no class"),
    ],
)
def test_show_refuses_a_split_that_the_data_set_cannot_have(words, message, tmp_path, segue):
    (tmp_path / "classes.txt").write_text("background\ncat\ndog\n")
    code, out, err = segue("show", "mib", *(word.format(root=tmp_path) for word in words))
    assert (code, out) == (2, "") and message in err


def test_show_takes_a_split_as_tables_print_it():
    code, text = call("show", "mib", "--on", "scenes", "--split", "5-2x2")
    assert code == 0 and yaml.safe_load(text)["scenario"]["split"] == "5-2x2"
    _, text = call("show", "mib", "--on", "voc", "--split", "15-1x5", "--quiet")
    assert yaml.safe_load(text)["method"]["params"]["kd_weight"] == 100.0, "the method's value for 15-1"


def test_show_needs_no_images_and_no_folder():
    assert call("show", "mib", "--on", "folder", "--split", "cat/bird", "data.root=nowhere")[0] == 0


def test_show_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("show", "caf", "--on", "scenes", "--split", "5-2")[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_help_and_version_do_not_wait_for_torch():
    """Two words that are typed often; the libraries behind a run take seconds to load."""
    code = "import sys, segue.cli; print(sorted({'torch', 'torchvision', 'timm'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_real_process():
    done = subprocess.run(
        [sys.executable, "-m", "segue", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{segue.__version__}\n", "")


def test_modules_of_the_current_folder_are_not_imported(tmp_path):
    """A folder of data may hold files of any name."""
    for name in ("typer", "yaml", "numpy", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the current folder was run')")
    done = subprocess.run(
        [sys.executable, "-m", "segue", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{segue.__version__}\n", "")


def leaves(command, words: tuple[str, ...] = ()):
    """All verbs, each with the words that call it."""
    for name, below in getattr(command, "commands", {}).items():
        yield from leaves(below, (*words, name))
    if not hasattr(command, "commands"):
        yield words, {parameter.name for parameter in command.params}


def test_empty_path_to_write_is_refused(tmp_path, monkeypatch):
    """As `--out "$FOLDER"` gives it, where FOLDER is not set: it would be the current folder."""
    monkeypatch.chdir(tmp_path)
    written = {words for words, parameters in leaves(get_command(cli.app)) if "out" in parameters}
    by_place = {("export",): ["run"], ("scenario", "write"): [], ("scenario", "import"): ["lists"]}
    by_place[("data", "convert")] = ["in"]
    assert set(by_place) < written and ("train",) in written
    for words in sorted(written):
        place = [*by_place[words], ""] if words in by_place else ["--out", ""]
        code, output = call(*words, *place)
        assert code == 2 and "it is empty" in output, (words, output)
    assert not list(tmp_path.iterdir())
