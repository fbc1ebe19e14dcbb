"""The charts of a page of methods: places by hand, names that do not collide, files that stand alone."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest

from segue.report.comparison import Entry
from segue.report.method_charts import ROW, Picture, method_pictures

THREE = (("a",), ("b",), ("c",))
SVG = "{http://www.w3.org/2000/svg}"


def matrices(*hits: tuple[int, ...]) -> list[list[list[int]]]:
    """100 pixels of each class; what is not hit is taken for background, so that IoU is the share of hits."""
    return [
        [
            [100, *[0] * len(step)],
            *([100 - hit, *(hit if i == j else 0 for j in range(len(step)))] for i, hit in enumerate(step)),
        ]
        for step in hits
    ]


@pytest.fixture
def entries(make_run) -> dict[str, Entry]:
    """Four methods with the same numbers, one with others and two seeds, and Joint."""
    same = matrices((80,), (0, 90), (0, 0, 30))
    runs = {name: (make_run(name, groups=THREE, matrices=same),) for name in ("finetune", "ewc", "pi", "rw")}
    runs["mib"] = tuple(
        make_run("mib", seed=seed, groups=THREE, matrices=matrices((80,), (60, 40), last))
        for seed, last in enumerate(((40, 30, 20), (60, 50, 40)))
    )
    runs["joint"] = (make_run("joint", groups=THREE, matrices=matrices((80, 70, 60))),)
    return {name: Entry(name, name, found) for name, found in runs.items()}


def texts(picture: Picture) -> dict[str, tuple[float, float]]:
    tree = ElementTree.fromstring(picture.svg)
    return {text.text or "": (float(text.get("x")), float(text.get("y"))) for text in tree.iter(f"{SVG}text")}


def test_lines_over_steps(entries):
    steps, _ = method_pictures("shapes 1-1", entries, 3)
    assert steps.kind == "steps" and steps.svg.count("<polyline") == 5
    assert steps.svg.count("stroke-dasharray") == 1, "Joint is a line across"
    # mib: 80, (60 + 40) / 2, then the mean of 30 and 50; plot from y = 34 (80 %) to y = 434 (0 %)
    path = re.findall(r'points="(.*?)"', steps.svg)[4]
    assert [point.split(",")[1] for point in path.split()] == ["34.0", "184.0", "234.0"]
    assert steps.alt.startswith("shapes 1-1: mean IoU of all classes seen so far after each step")
    assert "At the end: joint 70.0, mib 40.0, finetune 10.0, " in steps.alt
    places = texts(steps)
    names = [places[f"{name} 10.0"][1] for name in ("finetune", "ewc", "pi", "rw")]
    assert all(abs(a - b) >= ROW - 0.1 for a, b in combinations(names, 2)), (
        "equal ends, yet room for each name"
    )
    assert all(34 <= y <= 440 for y in names)
    assert places["mib 40.0"][1] == pytest.approx(234 + 4.5)


def test_old_against_new(entries):
    _, plane = method_pictures("shapes 1-1", entries, 3)
    assert plane.kind == "old-new" and plane.svg.count("<g transform") == 6
    # old from x = 68 (0 %) to x = 728 (80 %), new from y = 434 (0 %) to y = 34 (80 %)
    assert plane.svg.count("translate(68.0 359.0)") == 4, "old 0, new 15"
    assert "translate(480.5 259.0)" in plane.svg, "mib: old 50, new 35"
    (whiskers,) = re.findall(r"M([\d.]+) 259.0H([\d.]+)M480.5 ([\d.]+)V([\d.]+)", plane.svg)
    deviation = 20 / 2**0.5 / 2  # half of what 40 and 60 (or 25 and 45) differ by, times the square root of 2
    left, right, top, bottom = map(float, whiskers)
    assert right - left == pytest.approx(4 * deviation * 660 / 80, abs=0.2)
    assert bottom - top == pytest.approx(4 * deviation * 400 / 80, abs=0.2)
    assert "mib 50.0 and 35.0" in plane.alt and "joint 80.0 and 65.0" in plane.alt


def test_names_of_points_do_not_collide(entries):
    _, plane = method_pictures("shapes 1-1", entries, 3)
    places = [(name, *place) for name, place in texts(plane).items() if name in entries]
    assert len(places) == 6
    for (a, x, y), (b, other_x, other_y) in combinations(places, 2):
        apart = abs(x - other_x) >= 3 * (len(a) + len(b)) or abs(y - other_y) >= ROW - 0.1
        assert apart, f"{a} and {b}"


def test_files_stand_alone_and_are_escaped(entries):
    for picture in method_pictures("a<b & c", entries, 3):
        tree = ElementTree.fromstring(picture.svg)  # well-formed, or this fails
        assert "a<b & c" in (tree.findtext(f"{SVG}title") or "")
        style = tree.findtext(f"{SVG}style") or ""
        assert "prefers-color-scheme:dark" in style and style.count(".card{fill:") == 2
        card = next(tree.iter(f"{SVG}rect"))
        assert card.get("class") == "card"
        assert [card.get("width"), card.get("height")] == [tree.get("width"), tree.get("height")]
        assert "nan" not in picture.svg and "inherit" not in picture.svg


def test_what_there_is_to_draw(entries, make_run):
    assert [picture.kind for picture in method_pictures("s", entries, 3)] == ["steps", "old-new"]
    assert [picture.kind for picture in method_pictures("s", {"joint": entries["joint"]}, 3)] == ["old-new"]
    two = Entry("mib", "mib", (make_run("mib", "two", groups=(("a",), ("b",))),))
    assert [picture.kind for picture in method_pictures("s", {"mib": two}, 2)] == ["old-new"]
    one = Entry("mib", "mib", (make_run("mib", "one", groups=(("a",),)),))
    assert method_pictures("s", {"mib": one}, 1) == []


def test_forty_methods_and_long_names_have_room(make_run):
    runs = {f"m{i}": make_run(f"m{i}", groups=THREE, seed=i) for i in range(40)}
    runs["long" * 30] = make_run("long", groups=THREE)
    entries = {name: Entry(name, name, (run,)) for name, run in runs.items()}
    steps, plane = method_pictures("s", entries, 3)
    shown = {text.split(" ")[0]: place for text, place in texts(steps).items() if " " in text}
    heights = sorted(y for name, (_, y) in shown.items() if name in entries or name.startswith("long"))
    assert len(heights) == 41 and all(b - a >= ROW - 0.15 for a, b in pairwise(heights))
    assert sum(name in entries or name.startswith("longlong") for name in texts(plane)) == 41
