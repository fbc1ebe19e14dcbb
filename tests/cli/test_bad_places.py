"""Places that cannot be used, and memory that is not there: a sentence for every verb, and nothing made."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from pathlib import Path

import pytest
from own_folder import write_folder
from short_runs import SHORT

from segue.engine import restore, run
from segue.engine.folder import LONGEST_NAME, plain_name

Call = Callable[..., tuple[int, str, str]]
TINY = ("--on", "scenes", "--split", "2-1", *SHORT)
NOBODY = "~nobody-of-this-name/x"
NETWORK = ("model.backbone=tiny", "model.head=tiny", "model.output_stride=8")
OWN = ("--on", "folder", "--split", "a/b", *NETWORK)
PLACES = {
    "train RUN": ("train", "{}"),
    "train --from": ("train", "mib", *TINY, "--from", "{}", "--out", "o"),
    "train --manifest": ("train", "mib", *TINY, "--manifest", "{}", "--out", "o"),
    "train data.root": ("train", "mib", *OWN, "data.root={}"),
    "show": ("show", "{}"),
    "plan": ("plan", "{}"),
    "report": ("report", "{}"),
    "eval": ("eval", "{}"),
    "export": ("export", "{}", "a.onnx"),
    "predict": ("predict", "{}", "{}", "--out", "o"),
    "extend": ("extend", "{}", "new", "--out", "o"),
    "extend hf:": ("extend", "hf:{}", "new", "--out", "o"),
    "serve": ("serve", "{}"),
    "data check": ("data", "check", *OWN[:4], "data.root={}"),
    "data convert": ("data", "convert", "{}", "o"),
    "data fetch": ("data", "fetch", "voc", "--out", "o", "--archive", "{}"),
    "scenario import": ("scenario", "import", "{}", "o", "--on", "scenes", "--split", "2-1"),
}


@pytest.fixture(name="refused")
def refused_fixture(segue: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A command is refused in one sentence, and leaves an empty folder empty."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    def refused(*words: str | Path) -> str:
        code, _, err = segue(*words)
        assert code == 2 and "Traceback" not in err and "Errno" not in err, err
        assert any(line.startswith("error: ") for line in err.splitlines()), err
        assert not list(here.iterdir())
        return err

    return refused


@pytest.mark.parametrize("verb", PLACES)
def test_home_of_an_unknown_user_is_a_place_that_is_missing(verb: str, refused) -> None:
    assert "nobody-of-this-name" in refused(*(word.format(NOBODY) for word in PLACES[verb]))


@pytest.mark.parametrize("verb", PLACES)
def test_name_that_no_file_system_takes_is_a_sentence(verb: str, refused) -> None:
    refused(*(word.format("x" * 300) for word in PLACES[verb]))


@pytest.mark.parametrize("words", [("train", "mib", *TINY), ("data", "check", *TINY), ("plan", "mib", *TINY)])
def test_user_without_a_home_is_told_where_to_put_the_cache(words, refused, monkeypatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError("getpwuid(): uid not found: 0")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "SEGUE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    err = refused(*words)
    assert "SEGUE_CACHE" in err and "--skip-bad" not in err, "it is no fault of the data"


def test_run_of_sixty_named_classes_has_a_folder_of_its_own(segue: Call, tmp_path: Path, monkeypatch) -> None:
    names = [f"a class with a long name {number}" for number in range(60)]
    images = {str(number): (number + 1, (number + 7) % 60 + 1) for number in range(60)}
    root = write_folder(tmp_path / "data", images, "\n".join(["background", *names]))
    monkeypatch.chdir(tmp_path)
    split = f"{','.join(names[:30])}/{','.join(names[30:])}"
    words = ("--on", "folder", "--split", split, *NETWORK, *SHORT[4:])
    code, _, err = segue("train", "mib", *words, f"data.root={root}", "train.workers=0")
    assert code == 0, err
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(folder.name) <= LONGEST_NAME and (folder / "steps" / "1.json").is_file()
    split = f"scenario.split=[[{','.join(names[:30])}],[{','.join(names[30:])}]]"
    code, _, err = segue("data", "check", "--on", "folder", split, f"data.root={root}")
    assert code in (0, 1) and "too long" not in err, "a long setting is no path"


def test_long_names_differ_where_their_ends_do_and_short_ones_stay() -> None:
    assert plain_name(["mib", "voc", "15-5", "s42"]) == "mib-voc-15-5-s42"
    assert plain_name(["a" * LONGEST_NAME]) == "a" * LONGEST_NAME
    ours, theirs = (plain_name(["ä" * 300, end]) for end in ("1", "2"))
    assert ours != theirs and max(len(name.encode()) for name in (ours, theirs)) <= LONGEST_NAME


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        ),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
    ids=["python", "torch", "CUDA"],
)
def test_memory_that_runs_out_is_a_sentence(error, refused, finished, monkeypatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    folder = finished("mib")
    monkeypatch.setattr(run, "build_data", fails)
    monkeypatch.setattr(restore, "build_eval_data", fails)
    for words in (("train", "mib", *TINY), ("eval", folder)):
        err = refused(*words)
        assert "Memory ran out" in err and "Allocator" not in err


def test_tests_that_cannot_fit_are_refused_with_the_number(refused, finished) -> None:
    for words in (("train", "mib", *TINY), ("eval", finished("mib"))):
        err = refused(*words, "eval.size=100000")
        assert "eval.size" in err and "GiB" in err
