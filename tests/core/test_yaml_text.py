"""YAML of strangers: small files that stand for much, deep ones, long numbers: a sentence, at once."""

from __future__ import annotations

import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from segue.core.errors import UserError
from segue.core.overrides import differences, parse_overrides
from segue.core.yaml_text import read_yaml
from segue.engine.recipe import resolve

LETTERS = "abcdefghi"
LISTS = [f"&{b} [{','.join(['*' + a] * 9)}]" for a, b in pairwise(LETTERS)]
BOMB = ",".join(["&a [x,x,x,x,x,x,x,x,x]", *LISTS])
"""9**9 values in 330 bytes"""


def refused(words: list[str], within: float = 5.0) -> str:
    began = time.monotonic()
    with pytest.raises(UserError) as caught:
        resolve("mib", "scenes", "2-1", overrides=words)
    assert time.monotonic() - began < within and len(str(caught.value)) < 1000
    return str(caught.value)


def test_aliases_that_stand_for_billions_of_values_are_refused_at_once(tmp_path: Path) -> None:
    assert len(BOMB) < 400
    for key in ("train.epochs", "scenario.split", "data.root", "nothing.at.all"):
        assert "values" in refused([f"{key}=[{BOMB}]"])
    path = tmp_path / "recipe.yaml"
    path.write_text(f"scenario: {{dataset: scenes, split: 2-1}}\ntrain: {{epochs: [{BOMB}]}}\n")
    began = time.monotonic()
    with pytest.raises(UserError, match=r"recipe\.yaml"):
        resolve("mib", file=path)
    assert time.monotonic() - began < 5


def test_an_alias_inside_itself_is_refused() -> None:
    assert "inside itself" in refused(["train.epochs=&a [*a]"])


def test_plain_aliases_are_allowed() -> None:
    assert parse_overrides(["scenario.split=[&a [cat], *a]"]) == {"scenario": {"split": [["cat"], ["cat"]]}}


def test_many_keys_take_time_in_proportion(tmp_path: Path) -> None:
    path, seconds = tmp_path / "keys.yaml", []
    for count in (2_000, 16_000):
        path.write_text("".join(f"k{index}: 1\n" for index in range(count)))
        began = time.process_time()
        assert len(read_yaml(path)) == count
        seconds.append(time.process_time() - began)
    assert seconds[1] < 30 * seconds[0], "8 times the keys; quadratic would be 64 times the time"


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 3\n", "<<: {a: 1, a: 2}\n"])
def test_key_that_stands_twice_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match="'a' stands twice"):
        read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "word",
    [
        "train.seed=" + "9" * 4300,
        "train.seed=" + "9" * 5000,
        "train.epochs=" + "1" + "0" * 27,
        "train.batch_size=" + "1" + "0" * 27,
        "train.scale=[1e300,1e300]",
        "train.workers=1000000",
        "data.max_objects=2000000000",
        ".".join("a" * 3000) + "=1",
        "method.params." + ".".join("a" * 3000) + "=1",
        "train.epochs=" + "[" * 3000 + "]" * 3000,
    ],
    ids=lambda word: word[:24],
)
def test_numbers_and_depths_beyond_all_sense_are_a_short_sentence(word: str) -> None:
    refused([word])


@pytest.mark.parametrize(
    "value",
    [
        *('!!int ""', '!!float ""', "!!bool maybe", "!!timestamp soon", "!!set [a]", "!!map [a]", "!cat"),
        "1" + ":00" * 300 + ".5",
        "0x" + "f" * 5000,
        "0x" + "f" * 5000 + " #",
        '"\\Uffffffff"',
    ],
    ids=lambda value: value[:24],
)
def test_values_that_pyyaml_cannot_make_are_a_sentence(tmp_path: Path, value: str) -> None:
    assert "valid YAML" in refused([f"train.epochs={value}"])
    (tmp_path / "recipe.yaml").write_text(f"train: {{epochs: {value}\n}}")
    with pytest.raises(UserError, match=r"recipe\.yaml is not valid YAML"):
        read_yaml(tmp_path / "recipe.yaml")


def test_numbers_and_keys_take_no_time_with_the_square_of_their_length(tmp_path: Path) -> None:
    same_hash = "".join(f"{number * sys.hash_info.modulus}: 1\n" for number in range(1, 10_001))
    merged = f"<<: {{{same_hash.strip().replace(chr(10), ', ')}}}"
    for text in ("epochs: 1" + ":00" * 100_000, same_hash, merged):
        (tmp_path / "recipe.yaml").write_text(text)
        began = time.process_time()
        with pytest.raises(UserError, match="valid YAML"):
            read_yaml(tmp_path / "recipe.yaml")
        assert time.process_time() - began < 3


def test_text_may_begin_with_an_exclamation_mark_in_quotes() -> None:
    assert parse_overrides(["data.root='!x'"]) == {"data": {"root": "!x"}}


def test_differences_of_long_values_are_short() -> None:
    (line,) = differences({"a": ["x"] * 10_000}, {"a": ["y"] * 10_000})
    assert len(line) < 600


def test_pipe_in_place_of_a_recipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.yaml")
    with pytest.raises(UserError, match="not an ordinary file"):
        read_yaml(tmp_path / "recipe.yaml")


def test_mappings_may_be_merged(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {<<: [*a, *a]}\n")
    assert read_yaml(tmp_path / "a.yaml") == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 3},
        "c": {"x": 1, "y": 2},
    }
