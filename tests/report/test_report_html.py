"""The page: complete in one file, escaped, and written for whatever part of a run there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from PIL import EpsImagePlugin, Image
from PIL.PngImagePlugin import PngInfo

from segue.core.errors import UserError
from segue.core.records import write_json
from segue.report import write_report
from segue.report.comparison import compare
from segue.report.headline import contrast, headline, new_classes, scoring
from segue.report.html import render
from segue.report.pictures import read_colours, read_samples, shown_steps

KEYS = ("test-00003", "test-00007")
TWO = (("a",), ("b",))
LEARNED = [[50, 0], [10, 40]]
LOST = [[50, 0, 0], [39, 1, 0], [0, 0, 30]]
KEPT = [[50, 0, 0], [4, 36, 0], [6, 0, 24]]
FROZEN = [[50, 0, 0], [0, 40, 0], [30, 0, 0]]
BOUND = [[50, 0, 0], [0, 40, 0], [0, 0, 30]]


def samples(runs):
    comparison = compare(runs)
    return read_samples(comparison, read_colours(comparison))


def test_page_is_self_contained_and_escaped(make_run, tmp_path):
    runs = [make_run(method, keys=KEYS) for method in ("finetune", "caf", "joint")]
    path = write_report(runs, tmp_path / "out" / "report.html")
    page = path.read_text(encoding="utf-8")
    assert "http" not in page and "<link" not in page and "<script" not in page
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', page))
    assert "<b>" not in re.sub(r"<summary><b>|<b>(energy|attention)</b>", "", page) and "&lt;b&gt;" in page
    assert page.count("<svg") == 3
    assert "segue train recipe.yaml" in page and "background is left out" in page
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_pictures_per_method_and_step(make_run):
    comparison = compare([make_run(method, keys=KEYS) for method in ("finetune", "caf", "joint")])
    samples = read_samples(comparison, read_colours(comparison))
    assert [sample.key for sample in samples] == list(KEYS)
    filled = {row.label: [cell is not None for cell in row.cells] for row in samples[0].rows}
    assert {row.kind for row in samples[0].rows if "caf" not in row.label} == {""}
    assert filled == {
        "finetune": [True, True, True],
        "caf": [True, True, True],
        "caf energy": [True, True, True],
        "caf attention": [False, True, True],
        "joint": [False, False, True],
    }


def test_samples_are_matched_by_key(make_run):
    runs = [make_run("finetune", keys=KEYS), make_run("caf", keys=KEYS[::-1]), make_run("mib", keys=KEYS[:1])]
    rows = [[row.label for row in sample.rows] for sample in samples(runs)]
    caf = ["caf", "caf energy", "caf attention"]
    assert rows == [["finetune", *caf, "mib"], ["finetune", *caf]]


def test_missing_pictures_are_fine(make_run):
    run = make_run("caf", keys=KEYS)
    for name in ("input", "truth", "step1", "step2-attention"):
        (run.folder / "samples" / "0" / f"{name}.png").unlink()
    assert render([run, make_run("mib")]).count("<article>") == 2
    assert "<article>" not in render([make_run("plop")])


def test_runs_of_an_older_version_are_shown(make_run):
    """No tests during the steps, no energy, grey maps of the model's stride that say nothing of a peak."""
    run = make_run("caf", keys=KEYS)
    for place in (run.folder / "samples").glob("[01]"):
        for path in place.glob("*-energy.png"):
            path.unlink()
        for path in place.glob("*-attention.png"):
            Image.new("L", (4, 4), 99).save(path)
    assert not (run.folder / "trajectory").exists()
    page, (sample, _) = render([run]), samples([run])
    assert [row.label for row in sample.rows] == ["caf", "caf attention"]
    assert "up to" not in page and "The old model at test time" not in page and page.count("<article>") == 2


def test_peak_of_a_map_is_noted_for_attention_only(make_run):
    run = make_run("caf", keys=KEYS)
    notes = {row.label: [cell.note if cell else None for cell in row.cells] for row in samples([run])[0].rows}
    assert notes == {
        "caf": ["", "", ""],
        "caf energy": ["", "", ""],
        "caf attention": [None, "up to 0.31", "up to 0.32"],
    }
    page = render([run])
    assert page.count("<span>up to 0.31</span>") == page.count("<span>up to 0.32</span>") == len(KEYS)
    assert "<b>energy</b>" in page and "<b>attention</b>" in page
    for path in (run.folder / "samples").rglob("*-attention.png"):
        path.unlink()
    page = render([run])
    assert "<b>energy</b>" in page and "<b>attention</b>" not in page and "up to" not in page
    assert "<b>energy</b>" not in render([make_run("mib", keys=KEYS)])


def test_peak_in_a_picture_is_escaped(make_run):
    run = make_run("caf", keys=KEYS)
    about = PngInfo()
    about.add_text("peak", "<i>9</i>")
    Image.new("RGB", (16, 16)).save(run.folder / "samples" / "0" / "step1-attention.png", pnginfo=about)
    page = render([run])
    assert "<i>9" not in page and "up to &lt;i&gt;9&lt;/i&gt;" in page


def test_large_map_keeps_its_peak_when_it_is_made_smaller(make_run):
    run, about = make_run("caf", keys=KEYS[:1]), PngInfo()
    about.add_text("peak", "0.7")
    Image.new("RGB", (600, 300)).save(run.folder / "samples" / "0" / "step2-attention.png", pnginfo=about)
    row = next(row for row in samples([run])[0].rows if row.kind == "attention")
    assert row.cells[2].note == "up to 0.7" and not row.cells[2].coarse


def test_broken_picture_is_named(make_run):
    run = make_run("caf", keys=KEYS)
    (run.folder / "samples" / "1" / "step0.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"step0\.png is not a readable picture"):
        render([run])


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\n"


def test_pictures_are_opened_as_png_alone(make_run, monkeypatch):
    """PIL starts Ghostscript for EPS, whatever the file is called."""
    started = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: started.append(a))
    run = make_run("caf", keys=KEYS)
    (run.folder / "samples" / "0" / "input.png").write_bytes(EPS)
    with pytest.raises(UserError, match=r"input\.png is not a readable picture"):
        render([run])
    assert started == []


@pytest.mark.parametrize("text", ["{", "[]", '{"samples": [3]}'])
def test_broken_index_is_named(make_run, text):
    run = make_run("caf", keys=KEYS)
    (run.folder / "samples" / "index.json").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"index\.json is not an index"):
        render([run])


def test_unfinished_and_empty_runs(make_run):
    page = render([make_run("caf", steps=1), make_run("mib", steps=0)])
    assert "not finished: 1 of 3 steps" in page and "mib-0 is left out" in page
    assert "1 method on shapes" in page and not re.search(r"\bnan\b", page)


def test_many_steps(make_run):
    groups = (("a", "b"), *((name,) for name in "cdefghi"))
    page = render([make_run("caf", groups=groups, keys=KEYS)])
    assert "step 7" in page and shown_steps(8) == [0, 1, 3, 4, 6, 7] and shown_steps(1) == [0]


def test_nan_is_a_dash(make_run):
    absent = [[50, 0, 0], [4, 36, 0], [0, 0, 0]]
    page = render([make_run("caf", groups=TWO, matrices=[LEARNED, absent])])
    assert re.search(r'<th scope="row">b</th><td>1</td>\s*<td>-</td>', page)


def test_headline_speaks_of_old_and_new_classes(make_run):
    runs = [
        make_run("finetune", groups=TWO, matrices=[LEARNED, LOST]),
        make_run("caf", groups=TWO, matrices=[LEARNED, KEPT]),
        make_run("joint", groups=TWO, matrices=[BOUND]),
    ]
    tuned, caf = contrast(compare(runs))
    # a was 40/50; now 1/40 and 36/40: 3 % and 112 % of it
    assert (tuned.name, caf.name) == ("fine-tuning", "CAF")
    assert (tuned.stability, caf.stability) == pytest.approx((0.03125, 1.125))
    assert (tuned.plasticity, caf.plasticity) == pytest.approx((1.0, 0.8))
    assert (caf.new, caf.later, caf.learned, caf.missed) == (
        pytest.approx(80),
        {"b": pytest.approx(80)},
        1,
        {},
    )
    text = headline(compare(runs))
    assert re.search(r"fine-tuning keeps 3 %.*new.* 100\.0.*CAF keeps 112 %.*new.* 80\.0", text)


def test_new_classes_that_are_not_learned_are_said(make_run):
    """A method that keeps everything and learns nothing is not praised."""
    frozen = make_run("caf", groups=TWO, matrices=[LEARNED, FROZEN])
    (caf,) = contrast(compare([frozen]))
    assert caf.stability == pytest.approx(1.25) and caf.learned == 0 and caf.missed == {"b": 0.0}
    text = headline(compare([frozen]))
    assert "125 %" in text and "does not learn the new class (IoU 0.0)" in text
    assert "'b' 0.0" in new_classes(compare([frozen]))
    half = [
        LEARNED,
        [[50, 0, 0], [0, 40, 0], [0, 0, 30]],
        [[50, 0, 0, 0], [0, 40, 0, 0], [0, 0, 30, 0], [20, 0, 0, 0]],
    ]
    page = headline(compare([make_run("caf", "half", groups=(("a",), ("b",), ("c",)), matrices=half)]))
    assert "learns 1 of 2 new classes (mean IoU 50.0)" in page


def test_only_the_worst_classes_are_named(make_run):
    count = 6
    last = [[10] * (count + 2)] + [[10] + [0] * (count + 1) for _ in range(count + 1)]
    groups = (("a",), tuple(f"n{i}" for i in range(count)))
    text = new_classes(compare([make_run("caf", groups=groups, matrices=[LEARNED, last])]))
    assert "'n0' 0.0" in text and "'n3'" not in text and "3 more" in text


def test_headline_names_a_method_that_is_better_than_caf(make_run):
    caf = make_run("caf", groups=TWO, matrices=[LEARNED, KEPT])
    better = make_run("mib", groups=TWO, matrices=[LEARNED, BOUND])
    frozen = make_run("freeze", groups=TWO, matrices=[LEARNED, FROZEN])
    assert [one.name for one in contrast(compare([caf, better, frozen]))] == ["CAF", "mib"]
    assert [one.name for one in contrast(compare([caf, frozen]))] == ["CAF"], (
        "it keeps more, but learns nothing"
    )
    assert [one.name for one in contrast(compare([frozen]))] == ["freeze"]
    assert new_classes(compare([caf])) is None, "all is learned, and there is no Joint"


def test_classes_have_colours_of_the_data_set_or_distinct_ones(make_run):
    run = make_run("caf", keys=KEYS)
    plain = read_colours(compare([run]))
    assert len(plain) == len(set(plain)) == 5
    index = run.folder / "samples" / "index.json"
    document = json.loads(index.read_text())
    write_json(index, document | {"colours": ["#010203"] * 5})
    assert read_colours(compare([run])) == [(1, 2, 3)] * 5 and "background:#010203" in render([run])
    write_json(index, document | {"colours": ["red"] * 5})
    with pytest.raises(UserError, match="names a colour 'red'"):
        render([run])


def test_scoring_states_the_policy(make_run):
    policy = {"mode": "disjoint", "void": "ignore", "future": "background"}
    assert "count as background" in scoring(compare([make_run("caf", policy=policy)]))
    assert "are not scored at that step" in scoring(compare([make_run("mib")]))


def test_no_torch():
    code = "import sys, segue.report; print(sorted({name.split('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'segue'" in result.stdout and "torch" not in result.stdout
