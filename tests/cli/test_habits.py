"""Habits at the command line: -h, help, completion, quick answers, --json, --quiet, the next command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from short_runs import SHORT
from typer.main import get_command

from segue import cli
from segue.core import plugins
from segue.core.config import OptimConfig
from segue.core.records import read_run
from segue.testing import CHECKS

TINY = ("--on", "scenes", "--split", "2-1", *SHORT)
METHOD = """
from dataclasses import dataclass

from segue.losses import pixel
from segue.methods.base import About, Method


@dataclass(frozen=True)
class Config:
    weight: float = 1.0


class Mine(Method):
    Config = Config
    about = About("Mine", "nobody", 2024)

    def begin_step(self, ctx):
        pass

    def losses(self, batch):
        logits = self.model(batch.images).logits
        return {"ce": LOSS}


METHOD = Mine
"""
GOOD = "self.config.weight * pixel.cross_entropy(logits, batch.labels)"


def _commands() -> Iterator[list[str]]:
    for name, command in get_command(cli.app).commands.items():
        yield [name]
        yield from ([name, inner] for inner in getattr(command, "commands", {}))


COMMANDS = list(_commands())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_short_and_long_help_and_the_verb_are_the_same(segue, words):
    code, text, err = segue(*words, "--help")
    assert code == 0 and err == "" and f"Usage: segue {' '.join(words)}" in text
    assert segue(*words, "-h") == (code, text, err)
    assert segue("help", *words) == (code, text, err)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_a_small_terminal(segue, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    _, text, _ = segue(*words, "--help")
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text, "something was cut"


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["trian"], "train"),
        (["data", "chekc"], "check"),
        (["train", "mib", "--splitt", "5-2"], "--split"),
        (["help", "trian"], "train"),
    ],
)
def test_a_wrong_word_names_the_nearest(segue, words, nearest):
    code, _, err = segue(*words)
    assert code == 2 and nearest in re.sub(r"\s+", " ", err) and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], ["'train'"]),
        (["train"], ["segue train needs METHOD", "a recipe"]),
        (["train", "mib", "--speed", "9"], ["segue train has no option --speed", "'--seed'"]),
        (["show", "--resume"], ["segue show has no option --resume"]),
        (["train", "mib", "--seed", "many"], ["--seed many", "integer"]),
        (["train", "mib", "--seed=-1"], ["--seed=-1", "0"]),
        (["train", "mib", "--seed"], ["--seed"]),
        (["extend", "a", "b"], ["segue extend needs --out FOLDER"]),
        (["extend", "a", "b", "--out", ""], ["--out ''", "empty"]),
        (["data", "chekc"], ["'check'"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_mistake_in_words_is_a_sentence_and_no_box(segue, words, said):
    code, out, err = segue(*words)
    assert (code, out) == (2, "") and err.startswith("error: ")
    assert all(text in err for text in said) and not set(err) & set("╭│╰"), err


def test_a_group_without_a_verb_shows_its_help(segue):
    code, out, err = segue("data")
    assert (code, err) == (2, "") and "Usage: segue data" in out


def outside(*words: str, **environment: str) -> tuple[subprocess.CompletedProcess, set[str]]:
    """`segue WORDS` in a process of its own, and which heavy modules it imported."""
    code = (
        "import atexit, sys; sys.argv[0] = 'segue'\n"
        "heavy = lambda: {'torch', 'torchvision', 'timm', 'matplotlib'} & set(sys.modules)\n"
        "atexit.register(lambda: print(*heavy(), file=sys.stderr))\n"
        "from segue.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80", **environment},
    )
    return done, set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-h"],
        ["train", "-h"],
        ["trian"],
        ["train", "mib", "--onn", "voc"],
        ["train", "mib", "--on", "voc", "--split", "15-5", "optim.lrr=1"],
        ["data", "check", "--on", "voc", "data.rooot=x"],
        ["plan", "mibb", "--on", "voc", "--split", "15-5"],
        ["show", "caf", "--on", "voc", "--split", "15-5", "--explain"],
        ["list", "methods"],
        ["list", "backbones", "--json"],
    ],
    ids=" ".join,
)
def test_help_lists_and_typing_errors_do_not_wait_for_torch(words):
    done, heavy = outside(*words)
    assert heavy == set() and done.returncode in (0, 2)


def completed(words: str) -> tuple[list[str], set[str]]:
    place = str(len(words.split(" ")) - 1)
    done, heavy = outside(_SEGUE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=place)
    return done.stdout.split(), heavy


def test_the_shell_completes_names():
    assert completed("segue tr") == (["train"], set())
    assert completed("segue data fe") == (["fetch"], set())
    assert completed("segue train mib --on sc") == (["scenes"], set())
    assert completed("segue train mib --mode seq") == (["sequential"], set())
    names, heavy = completed("segue train ca")
    assert names == ["caf"] and heavy == set()


def test_completion_can_be_installed(segue):
    _, text, _ = segue("--help")
    assert "--install-completion" in text and "--show-completion" in text


@pytest.mark.parametrize("what", ["methods", "datasets", "backbones", "recipes"])
def test_lists_as_json(segue, what):
    code, text, err = segue("list", what, "--json")
    rows = json.loads(text)
    assert (code, err) == (0, "") and all(row["name"] for row in rows)
    if what == "methods":
        assert [row["name"] for row in rows] == plugins.names("method")
        assert all(row["time"] is None or row["time"] > 0 for row in rows)
    _, _, err = segue("list", what)
    assert what != "methods" or segue("list")[1] == segue("list", what)[1]
    assert err.startswith("Next: segue ")


def test_explain_and_json_of_a_recipe(segue):
    words = ("show", "mib", "--on", "scenes", "--split", "5-2", "optim.momentum=0.5")
    code, text, _ = segue(*words, "--explain")
    lines = text.splitlines()
    place = lines.index("optim.momentum=0.5")
    default = OptimConfig().momentum
    assert code == 0 and lines[place + 2].strip() == f"number at least 0 and below 1; default {default}"
    _, text, err = segue(*words, "--explain", "--json")
    found = {key["name"]: key for key in json.loads(text)}
    assert found["optim.momentum"]["default"] == default and err == ""
    _, text, _ = segue(*words, "--json")
    assert json.loads(text)["optim"]["momentum"] == 0.5
    _, text, _ = segue("train", "--help")
    assert "--explain" in text


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A short run."""
    from segue.core.progress import Display
    from segue.engine.recipe import resolve
    from segue.engine.run import run

    folder = tmp_path_factory.mktemp("trained") / "my run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGUE_CACHE", str(folder.parent / "cache"))
        run(resolve("mib", "scenes", "2-1", None, SHORT), folder, display=Display(quiet=True))
    return folder


def test_train_is_quiet_if_told_so(segue, tmp_path):
    out = tmp_path / "run"
    code, text, err = segue("train", "finetune", *TINY, "--out", out, "--quiet")
    assert (code, err) == (0, "") and "finetune" in text and text.endswith(f"Run folder: {out}\n")
    assert "IoU at the end" not in text
    code, text, err = segue("train", "finetune", *TINY, "--out", out, "--overwrite")
    assert code == 0 and err.splitlines()[-1].startswith(f"Next: segue report {out}")
    (line,) = [line for line in text.splitlines() if line.startswith("IoU at the end: ")]
    told = [part.rsplit(maxsplit=1)[0] for part in line.split(": ")[1].split(", ")]
    assert told == list(read_run(out).steps[-1].classes)


def test_scores_as_json(segue, trained):
    code, text, err = segue("eval", trained, "--json")
    (scores,) = json.loads(text)["strategies"].values()
    assert code == 0 and "Next" not in err
    assert set(scores["iou"]) >= {"background"} and 0 <= scores["all"] <= 1
    _, text, err = segue("report", trained, "--json")
    assert json.loads(text) and err == ""
    code, _, err = segue("eval", trained)
    assert code == 0 and f"Next: segue report '{trained}'" in err


def test_a_report_says_what_can_be_done_with_a_run_and_with_a_packed_study(segue, trained, tmp_path):
    study = trained.parent / "study.jsonl"
    code, _, err = segue("report", trained, "--out", study)
    assert code == 0 and f"Next: segue export '{trained}' model" in err
    code, _, err = segue("report", study, "--out", tmp_path / "page.html")
    assert code == 0 and f"Next: segue report {study} --out summary.csv --summary" in err
    assert segue("report", study, "--out", tmp_path / "summary.csv", "--summary")[0] == 0


def test_a_plan_as_json(segue):
    code, text, err = segue("plan", "mib", *TINY, "--gpu", "t4", "--json")
    found = json.loads(text)
    assert (code, err) == (0, "") and len(found["plan"]["steps"]) == 2
    assert found["peak"] > 0 and [gpu["fits"] for gpu in found["gpus"].values()] == [True]


def test_a_comparison_as_json_and_quiet(segue, tmp_path):
    words = ("compare", *TINY, "--methods", "finetune,mib", "--out", tmp_path / "runs")
    code, text, _ = segue(*words, "--json")
    (table,) = json.loads(text)
    assert code == 0 and [row["name"] for row in table["rows"]] == ["finetune", "mib"]
    assert 0 <= table["rows"][0]["mean IoU all"]["mean"] <= 100
    code, text, err = segue(*words, "--quiet")
    assert (code, err) == (0, "") and "finetune" in text and "Runs to do" not in text
    code, text, err = segue(*words)
    assert code == 0 and err.splitlines()[-1].startswith("Next: segue report ")


def method_file(folder: Path, loss: str) -> Path:
    path = folder / "my_method.py"
    path.write_text(METHOD.replace("LOSS", loss))
    return path


def test_check_of_a_good_method(segue, tmp_path):
    path = method_file(tmp_path, GOOD)
    code, text, err = segue("check", path)
    assert code == 0 and f"All {len(CHECKS)} checks passed." in text and f"Next: segue train {path}" in err
    code, text, err = segue("check", path, "method.params.weight=2", "--json")
    assert (code, err) == (0, "") and [each["failure"] for each in json.loads(text)] == [None] * len(CHECKS)


def test_check_of_a_bad_method(segue, tmp_path):
    code, text, _ = segue("check", method_file(tmp_path, f"{GOOD} * float('nan')"))
    assert code == 1 and "FAILED" in text and "'ce' is nan" in text and "Traceback" not in text
    path = method_file(tmp_path, "1 / 0")
    code, text, _ = segue("check", path, "--quiet")
    assert code == 1 and "ZeroDivisionError" in text and "my_method.py, line" in text


def test_check_of_no_method(segue, tmp_path):
    assert segue("check", tmp_path / "none.py")[0] == 2
    code, _, err = segue("check", "mibb")
    assert code == 2 and "Did you mean 'mib'?" in err
    code, _, err = segue("check", "mib", "train.seed=3")
    assert code == 2 and "method.params" in err
    empty = tmp_path / "empty.py"
    empty.write_text("")
    code, _, err = segue("check", empty)
    assert code == 2 and "METHOD = YourClass" in err


@pytest.mark.parametrize("words", [["method=3"], ["method.params=3"], ["train.seed=1"]])
def test_check_takes_settings_of_the_method_only(segue, words):
    code, _, error = segue("check", "finetune", *words)
    assert code == 2 and "method.params.KEY=VALUE" in error


def test_a_method_that_ends_the_program_does_not_pass(segue, tmp_path):
    path = method_file(tmp_path, "exit(0)")
    code, text, _ = segue("check", str(path))
    assert code == 1 and "SystemExit" in text
    code, _, error = segue("train", str(path), *TINY, "--out", str(tmp_path / "run"))
    assert code == 2 and "my_method.py, line" in error and "SystemExit" in error


@pytest.mark.parametrize(
    "loss, message", [("1 / 0", "ZeroDivisionError"), ("1.0", "tensors of one number"), ("logits", "tensors")]
)
def test_training_with_a_wrong_method_file_ends_with_a_sentence(loss, message, segue, tmp_path):
    path = method_file(tmp_path, loss)
    code, _, error = segue("train", str(path), *TINY, "--out", str(tmp_path / "run"))
    assert code == 2 and message in error and "Traceback" not in error


@pytest.mark.parametrize(
    "old, new",
    [
        ("weight: float = 1.0", "weight: 'Nonesuch' = 1.0"),
        ("weight: float = 1.0", "weight: complex = 1j"),
        ("    def begin_step", "    benchmark_values = 3\n\n    def begin_step"),
        ("    def begin_step", "    variants = {'a': 3}\n\n    def begin_step"),
        ("    def begin_step", "    def __init__(self):\n        pass\n\n    def begin_step"),
        ('About("Mine", "nobody", 2024)', '"Mine"'),
    ],
)
def test_wrong_declarations_of_a_method_file_are_named(old, new, segue, tmp_path):
    path = method_file(tmp_path, GOOD)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    code, _, error = segue("show", str(path), *TINY)
    assert code == 2 and "my_method.py" in error and "Traceback" not in error
