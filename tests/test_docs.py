"""What the documentation says is so: links, numbers, and the method that it shows."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from own_folder import write_pair
from rich.console import Console

from benchmarks.page import SECTIONS, performance_page
from segue.core import plugins
from segue.core.config import read_back
from segue.core.metrics import RunScores, run_scores
from segue.core.overrides import differences
from segue.core.progress import Display
from segue.core.records import read_run, read_yaml
from segue.engine.data import build_data
from segue.engine.recipe import complete, find_recipe, resolve
from segue.report import MethodTable, markdown_tables
from segue.studies.ablate import ablate
from segue.studies.compare import compare_methods
from segue.studies.tune import tune_methods
from segue.testing import check_method

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken


def test_results_on_scenes_in_the_docs_are_those_of_the_records() -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- results:scenes -->\n(.*?)<!-- /results:scenes -->", text, re.S)
    folders = sorted((ROOT / "results" / "scenes").iterdir(), key=lambda folder: folder.name)
    order = {name: index for index, name in enumerate(("finetune", "mib", "caf", "joint"))}
    runs = sorted(map(read_run, folders), key=lambda run: order[run.method])
    assert block is not None and block[1].strip() == markdown_tables(runs, costs=False).strip()


def test_choices_in_the_docs_are_those_of_the_records() -> None:
    text = (ROOT / "docs" / "caf.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- results:scenes-choice -->\n(.*?)<!-- /results:scenes-choice -->", text, re.S)
    runs = [read_run(folder) for folder in sorted((ROOT / "results" / "scenes-choice").iterdir())]
    assert block is not None and block[1].strip() == markdown_tables(runs, costs=False).strip()


def test_memory_in_the_docs_is_that_of_the_records() -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- results:compare-memory -->\n(.*?)<!-- /results:compare-memory -->", text, re.S)
    without, kept = (
        ROOT / "results" / "compare" / "scenes-4-2-overlapped",
        ROOT / "results" / "compare-memory",
    )
    folders = [
        folder
        for method in ("dft", "ssul", "incseg")
        for folder in (*sorted(without.glob(f"{method}-s*")), *sorted(kept.glob(f"{method}-*")))
    ]
    assert len(folders) == 18
    assert (
        block is not None
        and block[1].strip() == markdown_tables([*map(read_run, folders)], costs=False).strip()
    )


WORDS = ["data.root=data/voc256", "model.weights=weights/mobilenetv2_100.safetensors"]
PARTS = ["scenario.hold_out=0.2", "method.params.layer_since=1"]
"""rows that share a step 0, on held-out training images"""


@pytest.mark.parametrize("page", ["scenes-ablations.md", "voc256-15-1-ablations.md"])
def test_pages_of_ablations_are_made_from_the_records(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run: every record is there and fits the recipes of today, or this test fails."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        "segue.studies.missing.run_all", lambda jobs, *_, **__: pytest.fail(f"to be run: {jobs}")
    )
    given = {"seeds": 3, "page": tmp_path / page, "console": Console(file=io.StringIO())}
    if page == "scenes-ablations.md":
        ablate(["all"], "scenes", out=Path("results/ablations"), **given)
    else:
        given |= {"recipe": find_recipe("voc256.yaml"), "out": Path("results/voc256/ablations")}
        ablate(["table3"], "voc", "15-1", "overlapped", words=[*PARTS, *WORDS], **given)
    made = (tmp_path / page).read_text(encoding="utf-8")
    assert made == (RESULTS / page).read_text(encoding="utf-8")


def texts_of_svg(path: Path) -> list[str]:
    """What a chart says; where exactly it is drawn depends on the version of matplotlib."""
    return re.findall(r"<text[^>]*>(.*?)</text>", path.read_text(encoding="utf-8"))


@pytest.fixture
def compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[MethodTable]]:
    """Tables from stored records; nothing is run. With the name of a page: it is the one in the docs."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        "segue.studies.missing.run_all", lambda jobs, *_, **__: pytest.fail(f"to be run: {jobs}")
    )

    def tables(*given: Any, page: str | None = None, **options: Any) -> list[MethodTable]:
        place, quiet = tmp_path / page if page else None, Console(file=io.StringIO())
        found = compare_methods(*given, page=place, console=quiet, **options)
        if place is None:
            return found
        text = place.read_text(encoding="utf-8")
        assert text == (RESULTS / place.name).read_text(encoding="utf-8")
        made, kept = (
            {path.name: texts_of_svg(path) for path in (folder / "figures").glob(f"{place.stem}-*")}
            for folder in (tmp_path, RESULTS)
        )
        assert made == kept and sorted(made) == sorted(re.findall(r"]\(figures/(.*?)\)", text))
        return found

    return tables


def test_page_of_methods_is_made_from_the_records(compared) -> None:
    given = ["all"], "scenes", ["4-2"]
    (table,) = compared(*given, seeds=3, out=Path("results/compare"), page="scenes-4-2-methods.md")
    assert len(table.entries) == 15


VOC256 = {"15-1": ("voc256.yaml", "voc256-15-1"), "15-5": ("voc256-15-5.yaml", "voc256-15-5")}
"""by split: the recipe, and how its pages are called"""


def on_voc(compared, split: str, methods: str = "all", page: str | None = None) -> MethodTable:
    recipe, out = find_recipe(VOC256[split][0]), Path("results/voc256/compare")
    (table,) = compared(
        methods.split(","), "voc", [split], words=WORDS, recipe=recipe, seeds=3, out=out, page=page
    )
    return table


@pytest.mark.parametrize("split", VOC256)
def test_pages_of_voc256_are_made_from_the_records(compared, split: str) -> None:
    table = on_voc(compared, split, page=f"{VOC256[split][1]}.md")
    assert set(table.entries) == {*plugins.names("method")}


def test_page_of_mosaics_is_made_from_the_records(compared) -> None:
    """Other data with the recipe of VOC 15-1 as it is, and MiB with a weight that suits it better."""
    given = {
        "words": WORDS[1:],
        "recipe": find_recipe("voc256.yaml"),
        "seeds": 3,
        "out": Path("results/mosaic"),
    }
    (table,) = compared(["mib", "caf"], "examples/mosaic.py", ["8-1"], page="mosaic-8-1.md", **given)
    ours = {name: f"{table.ours(name)[2].mean:.1f}" for name in ("caf", "mib")}
    tried = read_run(ROOT / "results" / "mosaic" / "tried" / "mib-10")
    chosen = run_scores([step.matrix for step in tried.steps], len(tried.steps[0].groups[0])).final.all
    page = "docs/results/mosaic-8-1.md"
    said = f"[{ours['caf']} for CAF, {ours['mib']} for MiB]({page}), and {100 * chosen:.1f} for"
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")


def test_caf_leads_on_15_1_as_the_docs_say(compared) -> None:
    """Of all methods that keep no images, on all classes and in hIoU."""
    table = on_voc(compared, "15-1")
    for score in (lambda name: table.ours(name)[2].mean, lambda name: table.others(name)[2].mean):
        assert max((name for name in table.entries if name != "joint"), key=score) == "caf"


def test_results_in_the_readme_are_those_of_the_records(compared) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- results:voc256 -->\n(.*?)<!-- /results:voc256 -->", text, re.S)
    methods = ("finetune", "mib", "caf", "joint")
    tables = [on_voc(compared, split, ",".join(methods)) for split in VOC256]
    heads = [f"{split} {mean}" for split in VOC256 for mean in ("old", "new", "all")]
    lines = [f"| method | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    for name in methods:
        cells = [f"{score.mean:.1f} ± {score.std:.1f}" for table in tables for score in table.ours(name)[:3]]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    assert block is not None and block[1].strip() == "\n".join(lines)


@pytest.mark.parametrize("split", VOC256)
def test_pages_of_tuning_are_made_from_the_records(
    split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the shipped recipes have what was chosen."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(
        "segue.studies.missing.run_all", lambda jobs, *_, **__: pytest.fail(f"to be run: {jobs}")
    )
    recipe, folder = find_recipe(VOC256[split][0]), Path("results/voc256/tuning")
    tuned = read_yaml(folder / f"voc-{split}-overlapped" / "choice.yaml")
    page, quiet = tmp_path / "page.md", Console(file=io.StringIO())
    tune_methods(recipe, ["all"], "voc", split, words=WORDS, out=folder, page=page, console=quiet)
    stored = (RESULTS / f"{VOC256[split][1]}-tuning.md").read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == stored
    assert read_yaml(recipe)["methods"] == tuned
    assert set(tuned) == {*plugins.names("method")} - {"finetune", "joint"}


def test_records_of_held_out_images_say_so() -> None:
    runs = [read_run(path.parent) for path in (ROOT / "results").rglob("recipe.yaml")]
    held_out = [run for run in runs if read_yaml(run.folder / "recipe.yaml")["scenario"].get("hold_out")]
    assert len(held_out) > 100
    tested = {step.policy.get("tested") for run in held_out for step in run.steps}
    assert tested == {"held-out 0.2 of the training images"}


def test_recipes_of_voc256_have_one_protocol() -> None:
    first, other = (read_yaml(find_recipe(recipe)) for recipe, _ in VOC256.values())
    for values in (first, other):
        del values["methods"], values["tune"]
    assert first == other


def test_data_set_in_the_docs_is_one() -> None:
    words = ["data.train=40", "data.test=20", "data.size=48"]
    config = resolve("mib", str(ROOT / "examples" / "mosaic.py"), "8-1", overrides=words)
    data = build_data(config, Display(quiet=True))
    assert len(data.scenario) == 5 and data.scenario.classes.background is None
    again, other = data.train_set.read(3), data.test_set.read(3)
    assert np.array_equal(again.image, data.train_set.read(3).image) and again.image.shape == (48, 48, 3)
    assert not np.array_equal(again.image, other.image), "test images are others"
    seen = {int(each) for index in range(40) for each in np.unique(data.train_set.read(index).mask)}
    assert seen == {*data.scenario.classes.names}, "every class is there, and every pixel has one"


def test_method_in_the_docs_keeps_the_contract(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(# my_method.py.*?)```", text, re.S)
    assert code is not None
    path = tmp_path / "my_method.py"
    path.write_text(code[1], encoding="utf-8")
    check_method(str(path))


def test_the_records_show_the_point() -> None:
    """What tests/test_slow_forgetting.py trains for ten minutes, on the records of the same recipes."""
    scores: dict[str, list[RunScores]] = {}
    for folder in sorted((ROOT / "results" / "scenes").iterdir()):
        run = read_run(folder)
        scores.setdefault(run.method, []).append(run_scores([step.matrix for step in run.steps], 5))
    final = {method: [each.final.all for each in runs] for method, runs in scores.items()}
    assert all(len(runs) == 3 for runs in scores.values())
    assert all(each.stability < 1 / 3 for each in scores["finetune"])
    assert all(each.stability >= 0.75 for each in scores["caf"])
    assert mean(final["caf"]) >= mean(final["mib"]) - 2 * stdev(final["mib"])
    assert mean(final["joint"]) == max(mean(values) for values in final.values())


def test_stored_recipes_are_those_of_today() -> None:
    """A change of the defaults makes the records stale: run them anew."""
    for folder in sorted((ROOT / "results" / "scenes").iterdir()):
        run = read_run(folder)
        today = resolve(run.method, "scenes", "5-2", overrides=[f"train.seed={run.steps[0].seed}"])
        assert differences(read_back(complete(run.recipe)), read_back(today)) == []


def test_the_data_set_that_the_docs_show(segue, tmp_path) -> None:
    """It can be checked, looked at and trained on, from a file of its own."""
    text = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    for part, count in {"train": 12, "test": 3}.items():
        for i in range(count):
            write_pair(tmp_path / part / f"{i}.jpg", tmp_path / part / f"{i}.png", [0, 1, 2])
    words = ("--on", str(tmp_path / "mine.py"), "--split", "cat/dog", f"data.root={tmp_path}")
    small = ("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=16")
    quick = (*small, "train.epochs=1", "train.batch_size=4", "train.workers=0", "eval.samples=0")
    code, out, err = segue("data", "check", *words, *quick)
    assert code == 0 and "Ready to train." in out, err
    code, _, err = segue("train", "mib", *words, *quick, "--out", tmp_path / "run")
    assert code == 0, err
    assert read_run(tmp_path / "run").finished
    code, _, err = segue("eval", tmp_path / "run")
    assert code == 0, err
    code, out, err = segue("export", tmp_path / "run", tmp_path / "model.safetensors")
    assert code == 0 and "3 channels" in out, err
    code, _, err = segue("data", "check", *words[:2])
    assert code == 2 and "add data.root=FOLDER" in err


def test_cost_of_reading_in_the_docs_is_that_of_the_record() -> None:
    text = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- bench:data -->\n(.*?)<!-- /bench:data -->", text, re.S)
    record = json.loads((ROOT / "results" / "bench-data.json").read_text())
    assert record["images"] == 20210
    lines = ["| what | beside | ours takes |", "| --- | --- | ---: |"]
    for row in record["rows"]:
        share = (
            f"{row['ours']:.1%} of the time" if row["ratio"] is None else f"{row['ratio']:.3g} of its time"
        )
        lines.append(f"| {row['what']} | {row['beside']} | {share} |")
    assert block is not None and block[1].strip() == "\n".join(lines)


def bench_records() -> dict[str, dict]:
    return {name: json.loads((ROOT / "results" / f"bench-{name}.json").read_text()) for name in SECTIONS}


def test_performance_page_is_made_from_the_records() -> None:
    assert (ROOT / "docs" / "performance.md").read_text(encoding="utf-8") == performance_page(bench_records())


def test_stored_figures_reach_what_was_aimed_at() -> None:
    """Losses three times as fast and 25 times leaner than the plain way; CAF near the bare network.

    One aim was missed and is not asserted: half the memory of the plain way, for ResNet-101 at batch 1, even
    with checkpointing; EfficientNet-Lite0 with 21 channels needs checkpointing. docs/performance.md says so.
    """
    records = bench_records()
    for row in records["losses"]["rows"]:
        if row["what"].startswith("unbiased"):
            assert row["faster"] >= 3 and row["leaner"] >= 25
    for row in records["step"]["rows"]:
        assert row["caf_by_floor"] <= {21: 1.4, 151: 1.6}[row["channels"]]
    assert all(0.8 <= case["ratio"] <= 1.2 for case in records["plan"]["cases"].values())
