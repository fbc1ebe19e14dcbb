"""Charts: values where they belong, names that do not collide, files that stand alone and repeat."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from matplotlib.text import Text
from PIL import Image

from segue.core.errors import UserError
from segue.report.charts import INK, Chart, house_style, new_figure
from segue.report.comparison import Entry, Stat, compare
from segue.report.line_charts import NAME_ROW, axis_limit, spread_out, step_charts, steps_chart
from segue.report.plane_chart import plane_chart

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


def lines(chart: Chart) -> list[list[float]]:
    """Values of each line over the steps."""
    found = [line.get_ydata() for line in chart.figure.axes[0].get_lines() if len(line.get_xdata()) == 3]
    return [[float(value) for value in line] for line in found]


def name_boxes(chart: Chart, names: set[str]) -> list:
    chart.figure.draw_without_rendering()
    texts = [text for text in chart.figure.axes[0].get_children() if isinstance(text, Text)]
    return [
        text.get_window_extent() for text in texts if text.get_text().split(" ")[0].rstrip("…")[:4] in names
    ]


def test_lines_over_steps(entries):
    chart = steps_chart("shapes 1-1", entries, 3)
    assert lines(chart)[4] == pytest.approx([80, 50, 40]), (
        "mib: then (60 + 40) / 2, then the mean of 30 and 50"
    )
    assert "At the end: joint 70.0, mib 40.0, finetune 10.0, " in chart.alt
    boxes = name_boxes(chart, {"fine", "ewc", "pi", "rw", "mib", "join"})
    assert len(boxes) == 6
    middles = sorted((box.y0 + box.y1) / 2 for box in boxes)
    assert all(b - a >= NAME_ROW - 0.1 for a, b in pairwise(middles)), "equal ends, yet room for each name"
    assert all(box.x0 >= 0 and box.x1 <= chart.figure.bbox.width for box in boxes)


def test_places_are_apart_in_order_and_near():
    assert spread_out([50, 20, 10], 5, 100) == [50, 20, 10]
    places = spread_out([3, 3, 2, 0], 5, 100)
    assert places == [15, 10, 5, 0]
    assert spread_out([100, 100], 5, 100) == [100, 95]


def test_old_against_new(entries):
    chart = plane_chart("shapes 1-1", entries, 3)
    drawn = [line for line in chart.figure.axes[0].get_lines() if line.get_marker() in "osDv^*"]
    points = [tuple(map(float, line.get_xydata()[0])) for line in drawn]
    assert points == [pytest.approx(point) for point in [*[(0, 15)] * 4, (50, 35), (80, 65)]]
    assert "mib 50.0 and 35.0" in chart.alt and "joint 80.0 and 65.0" in chart.alt


def test_names_of_points_do_not_collide(entries):
    boxes = name_boxes(plane_chart("shapes 1-1", entries, 3), {"fine", "ewc", "pi", "rw", "mib", "join"})
    assert len(boxes) == 6
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))


def test_what_there_is_to_draw(entries, make_run):
    assert steps_chart("s", {"joint": entries["joint"]}, 3) is None
    one = Entry("mib", "mib", (make_run("mib", "one", groups=(("a",),)),))
    assert plane_chart("s", {"mib": one}, 1) is None


def test_forty_methods_and_long_names_have_room(make_run):
    runs = {f"m{i}": make_run(f"m{i}", groups=THREE, seed=i) for i in range(40)}
    runs["long" * 30] = make_run("long", groups=THREE)
    entries = {name: Entry(name, name, (run,)) for name, run in runs.items()}
    boxes = name_boxes(steps_chart("s", entries, 3), {*runs, "long"})
    middles = sorted((box.y0 + box.y1) / 2 for box in boxes)
    assert len(middles) == 41 and all(b - a >= NAME_ROW - 0.1 for a, b in pairwise(middles))
    assert len(name_boxes(plane_chart("s", entries, 3), {*runs, "long"})) == 41


def test_step_charts_share_a_scale_and_show_joint(entries):
    charts = step_charts(compare([run for entry in entries.values() for run in entry.runs]))
    assert len(charts) == 3 and {chart.figure.axes[0].get_ylim() for chart in charts} == {(0, 100)}
    old = charts[1].figure.axes[0]
    assert [line.get_ydata()[0] for line in old.get_lines() if line.get_linestyle() == "--"] == [
        pytest.approx(80)
    ]


def test_limit_is_round_and_holds_all_values():
    assert axis_limit([Stat(31), Stat(float("nan"))]) == 40
    assert axis_limit([Stat(55, 6)]) == 80 and axis_limit([Stat(99, 9)]) == 100 and axis_limit([]) == 10


def test_a_chart_in_a_page_has_the_page_s_colour_and_no_address(entries):
    for chart in (steps_chart("a<b & $c$", entries, 3), plane_chart("s", entries, 3)):
        svg = chart.inline()
        ElementTree.fromstring(svg.replace("xlink:href", "href"))  # well-formed, or this fails
        assert "currentColor" in svg and INK not in svg and "http" not in svg and "#ffffff" not in svg
        assert "font-family" not in svg, "the page's own font"
        assert not re.findall(r' id="\w+_\d+"', svg), "several charts share a page"
    assert "a&lt;b &amp; $c$" in steps_chart("a<b & $c$", entries, 3).inline()


def test_files_are_what_their_endings_say_and_repeat(entries, tmp_path):
    starts = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}
    for ending, start in starts.items():
        made = [
            plane_chart("s", entries, 3).save(tmp_path / name / f"x.{ending}").read_bytes() for name in "ab"
        ]
        assert made[0].startswith(start) and made[0] == made[1], ending
    with pytest.raises(UserError, match=r"x\.gif: .*\.svg, \.pdf, \.png"):
        plane_chart("s", entries, 3).save(tmp_path / "x.gif")
    with Image.open(tmp_path / "a" / "x.png") as image:
        assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255), "dark on white, for papers"


def test_svg_files_follow_the_reader_s_mode(entries, tmp_path):
    tree = ElementTree.parse(steps_chart("a<b", entries, 3).save(tmp_path / "x.svg")).getroot()
    assert "a<b" in (tree.findtext(f"{SVG}title") or "")
    style = tree.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style and INK in style
    assert tree.find(f".//{SVG}g[@id='paper']") is not None
    texts = [text.get("style") or "" for text in tree.iter(f"{SVG}text")]
    assert texts and all(f"fill: {INK}" in style for style in texts)


def test_names_in_any_script_and_the_reader_s_own_settings(tmp_path):
    """A font without these letters and another style elsewhere do not matter."""
    import matplotlib

    with matplotlib.rc_context({"axes.titlesize": 40, "svg.fonttype": "path"}), house_style():
        figure = new_figure(300, 200)
        figure.subplots().set_title("猫")
        svg = Chart("x", "猫", "猫", figure).inline()
    assert ">猫</text>" in svg and "40px" not in svg


def test_matplotlib_is_imported_when_a_chart_is_drawn():
    code = "import sys, segue.report; print('matplotlib' in sys.modules, 'torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]
