"""The contact sheet: each picture shows what it claims, pixel by pixel."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from segue.core.classes import ClassTable
from segue.core.palette import distinct_colours, flat_palette
from segue.core.scenario import make_scenario
from segue.report.contact import Card, make_card, palette_places, write_contact_sheet
from segue.report.pictures import Picture

WITH = ClassTable("made", {1: "cat", 2: "dog", 5: "cow"})
WITHOUT = ClassTable("bare", {0: "road", 3: "car"}, background=None)


def colours(picture: Picture) -> list[list[int]]:
    """Palette entries of a picture of one row."""
    content = base64.b64decode(picture.uri.partition(",")[2])
    with Image.open(io.BytesIO(content)) as image:
        row = np.asarray(image.convert("RGB"))[0]
    palette = flat_palette(distinct_colours(3))
    entries = [tuple(palette[3 * i : 3 * i + 3]) for i in (0, 1, 2, 3, 255)]
    return [(0, 1, 2, 3, 255)[entries.index(tuple(map(int, pixel)))] for pixel in row]


def card(classes: ClassTable, ids: list[int], index: int, part="train", **policies) -> Card:
    mask = np.array([ids], dtype=np.uint8)
    scenario = make_scenario(classes, "1-1", **policies)
    return make_card(scenario, scenario[index], part, "key", np.zeros((1, len(ids), 3), np.uint8), mask)


@pytest.mark.parametrize(
    ("index", "part", "policies", "taught"),
    [
        (0, "train", {}, [0, 1, 0, 0, 0]),
        (1, "train", {}, [0, 0, 2, 0, 0]),
        (1, "train", {"void": "ignore"}, [0, 0, 2, 0, 255]),
        (1, "train", {"mode": "sequential"}, [0, 1, 2, 0, 0]),
        (1, "test", {}, [0, 1, 2, 255, 255]),
        (1, "test", {"future": "background"}, [0, 1, 2, 0, 255]),
    ],
)
def test_a_class_has_one_colour_in_both_masks(index, part, policies, taught) -> None:
    made = card(WITH, [0, 1, 2, 5, 255], index, part, **policies)
    assert colours(made.drawn) == [0, 1, 2, 3, 255]
    assert colours(made.taught) == taught
    assert made.names == ("cat, dog, cow" if index == 0 else "dog, cat, cow")


def test_without_background() -> None:
    made = card(WITHOUT, [0, 3, 255], 1)
    assert colours(made.drawn) == [1, 2, 255] and colours(made.taught) == [0, 2, 0]
    assert palette_places(WITHOUT)[[0, 3, 1]].tolist() == [1, 2, 255]


def test_page_says_what_labels_mean(tmp_path) -> None:
    for mode, text in {
        "overlapped": "only new classes have one",
        "sequential": "only classes seen so far",
    }.items():
        scenario = make_scenario(WITH, "1-1", mode)
        made = card(WITH, [0, 1], 1, mode=mode)
        page = write_contact_sheet(tmp_path / "sheet.html", scenario, scenario[1], "train", [made], 7)
        html = page.read_text()
        assert text in html and "1 of 7 train images" in html and "New classes: dog." in html
