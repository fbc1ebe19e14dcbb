"""The model card: hubs can read it, it says what is known, and names from strangers stay names."""

from __future__ import annotations

import pytest
import torch
import yaml

from segue.core.verdict import MeanChange, OldClass, Verdict
from segue.deploy.card import model_card, span
from segue.deploy.history import History, StepImages
from segue.deploy.model_file import Header
from segue.deploy.prepare import Preparation

HEADER = Header({}, ("background", "cat", "dog", "bird"), Preparation())
HISTORY = History(
    (("cat", "dog"), ("bird",)),
    {"method": {"name": "caf"}},
    {"memory": torch.zeros(10, dtype=torch.uint8)},
    (None, StepImages(60, 15, {"bird": 58})),
)
VERDICT = Verdict(
    "look here first",
    "12 labelled images with 2 of 2 old classes.",
    (OldClass("cat", 60.0, 54.5, -7.0, -4.0, 12, 3.25),),
    {"bird": 41.0},
    MeanChange(-5.5, -7.0, -4.0, 12),
    True,
)


def test_hubs_read_its_head():
    card = model_card("grown", HEADER, HISTORY)
    _, head, _ = card.split("---\n", 2)
    found = yaml.safe_load(head)
    assert found["pipeline_tag"] == "image-segmentation" and found["library_name"] == "segue"
    assert "license" in found


def test_it_tells_steps_counts_method_and_use():
    card = model_card("grown", HEADER, HISTORY)
    assert "| 0 | `cat`, `dog` | not known | not known |" in card
    assert "| 1 | `bird` (58) | 60 | 15 |" in card
    assert "`caf`" in card and "10 bytes" in card and "Before and after" not in card
    for line in ('segue.load("grown")', "model.predict(", "segue.extend(model,"):
        assert line in card


def test_its_example_does_not_write_over_the_model_itself():
    for name in ("grown", "model"):
        (line,) = [each for each in model_card(name, HEADER, HISTORY).splitlines() if "segue.extend" in each]
        assert f'"{name}"' not in line


def test_the_verdict_stands_in_it():
    card = model_card("grown", HEADER, HISTORY, VERDICT)
    assert "| `cat` | 60.0 | 54.5 | -7.0 to -4.0 | 12 |" in card and "| `bird` (new) | - | 41.0 |" in card
    assert "**look here first**" in card and VERDICT.evidence in card


def test_of_a_network_alone_the_classes_are_told():
    card = model_card("grown", HEADER, None)
    assert "`cat`, `dog`, `bird`" in card and "Training" not in card


@pytest.mark.parametrize(
    "name",
    [
        "a|b",
        "`x`",
        "<img src=x onerror=alert(1)>",
        "[x](http://y)",
        "two\nlines\n# head",
        "a\\",
        "\u202eevil",
        "",
    ],
)
def test_names_of_strangers_stay_in_their_span(name: str):
    text = span(name)
    assert text[0] == text[-1] == "`" and "`" not in text[1:-1]
    assert not set(text) & set("\n\r\u202e") and text.count("|") == text.count("\\|") == text.count("\\")
    card = model_card(name, Header({}, ("background", name), Preparation()), None)
    row = next(line for line in card.splitlines() if line.startswith("| 0 |"))
    assert row.replace("\\|", "").count("|") == 5, "a name adds no column"
    assert len(card.splitlines()) == len(
        model_card("x", Header({}, ("background", "x"), Preparation()), None).splitlines()
    )
