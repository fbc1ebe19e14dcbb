"""The drawings of docs/: their names are those of the code, and they can be read in light, dark and small."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"
DRAWINGS = sorted((DOCS / "drawings").glob("*.svg"))
PHONE, LEAST = 400, 9.5
"""pixels of a phone's column, and of the smallest letters that can be read there"""


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_every_name_in_a_drawing_is_one_of_the_code(path: Path) -> None:
    named = [each for each in ElementTree.parse(path).iter() if "data-in" in each.attrib]
    assert len(named) > 5
    for each in named:
        module, _, owner = each.attrib["data-in"].partition(":")
        found = importlib.import_module(module)
        found = getattr(found, owner) if owner else found
        assert callable(getattr(found, str(each.text))), each.text


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_readable_in_both_modes_and_on_a_phone(path: Path) -> None:
    text, root = path.read_text(), ElementTree.parse(path).getroot()
    light, dark = text.split("prefers-color-scheme: dark")
    names = lambda part: set(re.findall(r"(--[\w-]+): #", part))  # noqa: E731
    assert names(light) == names(dark)  # each colour has its counterpart
    width = float(root.attrib["viewBox"].split()[2])
    assert min(map(float, re.findall(r"(\d+)px", text))) * PHONE / width >= LEAST


def test_the_page_of_the_method_shows_them() -> None:
    page = (DOCS / "caf.md").read_text()
    assert [f"(drawings/{path.name})" in page for path in DRAWINGS] == [True, True]
