"""What the documentation says is so: links, numbers, and the method that it shows."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from own_folder import write_pair
from stored_studies import ROOT, assert_in_docs, pages, scores_on, words_of

from benchmarks.page import SECTIONS, performance_page
from segue.core import plugins
from segue.core.metrics import run_scores
from segue.core.progress import Display
from segue.core.records import read_run, read_yaml
from segue.engine.data import build_data
from segue.engine.recipe import find_recipe, resolve
from segue.report import markdown_tables
from segue.testing import check_method

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


@pytest.fixture
def from_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Studies show what is stored, by the recipes stored with it, whatever the defaults are today."""
    monkeypatch.chdir(ROOT)
    for study in ("ablate", "compare", "tune"):
        monkeypatch.setattr(f"segue.studies.{study}.run_missing", lambda *_: None)
    monkeypatch.setattr("segue.studies.tune._write_choice", lambda *_: None)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_page_is_made_from_the_records_by_the_command_that_it_names(
    page: Path, from_records, segue, tmp_path: Path
) -> None:
    code, _, said = segue(*words_of(page), "--page", tmp_path / page.name)
    assert code == 0, said
    assert_in_docs(tmp_path / page.name)


def test_every_file_of_records_has_a_page() -> None:
    """What was tried on the way stands in docs/protocol.md instead."""
    words = [word for page in pages() for word in words_of(page)]
    files = [file.parent.relative_to(ROOT) for file in (ROOT / "results").rglob("study.jsonl")]
    shown = [file for file in files if "tried" not in file.parts]
    assert shown and [file for file in shown if file.as_posix() not in words] == []


def test_recipe_of_the_second_protocol_has_what_was_chosen() -> None:
    recipe = read_yaml(find_recipe("voc256-2.yaml"))
    shipped, tuned = recipe["methods"], set(recipe["tune"])
    files = sorted((ROOT / "results/voc256-2").glob("**/tuning/voc-15-1-overlapped/choice-hiou.yaml"))
    chosen = [pair for file in files if "tried" not in file.parts for pair in read_yaml(file).items()]
    assert {name for name, _ in chosen} == tuned
    assert all(entry.items() <= shipped[name].items() for name, entry in chosen)


def test_other_data_in_the_readme_has_the_numbers_of_the_page() -> None:
    """With those of MiB with a weight that suits it better."""
    scores = scores_on("mosaic-8-1.md")
    tried = read_run(ROOT / "results" / "mosaic" / "tried" / "mib-10")
    chosen = run_scores([step.matrix for step in tried.steps], len(tried.steps[0].groups[0])).final.all
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (said,) = [text for text in readme.split("\n\n") if "mosaic-8-1.md" in text]
    for value in (scores["caf"]["all"], scores["mib"]["all"], 100 * chosen):
        assert f"{value:.1f}" in said


def marked_table(file: str, marker: str) -> tuple[str, list[str]]:
    """Head and rows of a table between the comments `results:MARKER` of a document."""
    text = (ROOT / file).read_text(encoding="utf-8")
    block = re.search(rf"<!-- results:{marker} -->\n(.*?)<!-- /results:{marker} -->", text, re.S)
    assert block is not None
    head, _, *rows = block[1].strip().splitlines()
    assert len(rows) >= 5
    return head, rows


@pytest.mark.parametrize(
    ("file", "marker", "page"),
    [
        ("README.md", "voc256-2", "voc256-2-15-1-seeds.md"),
        ("docs/benchmark.md", "voc256-2-form", "voc256-2-form.md"),
    ],
)
def test_table_has_the_numbers_of_its_page(file: str, marker: str, page: str) -> None:
    scores, (head, rows) = scores_on(page), marked_table(file, marker)
    assert head == "| method | old | new | all | hIoU |"
    for row in rows:
        name = re.findall(r"`(.*?)`", row)[0]
        cells = [f"{scores[name][score]:.1f}" for score in ("old", "new", "all", "hIoU")]
        assert row == f"| `{name}` | {' | '.join(cells)} |"


def test_table_of_all_settings_has_the_numbers_of_their_pages() -> None:
    head, rows = marked_table("docs/benchmark.md", "voc256-2-settings")
    assert head == "| method | 15-1 | 15-5 | 10-1 | ADE 6-1 |"
    pages = [scores_on(f"voc256-2-{page}.md") for page in ("15-1", "15-5", "10-1", "ade11-6-1")]
    for row in rows:
        name = re.findall(r"`(.*?)`", row)[0]
        cells = [f"{scores[name]['all']:.1f} / {scores[name]['hIoU']:.1f}" for scores in pages]
        assert row == f"| `{name}` | {' | '.join(cells)} |"


def test_table_of_three_seeds_has_the_numbers_of_its_pages() -> None:
    head, rows = marked_table("docs/benchmark.md", "voc256-2-seeds")
    assert head == "| method | 15-1 all | 15-1 hIoU | 15-5 all | 15-5 hIoU |"
    pages = [scores_on(f"voc256-2-{split}-seeds.md") for split in ("15-1", "15-5")]
    for row in rows:
        name, *cells = [cell.strip(" `") for cell in row.strip("|").split("|")]
        means = [f"{scores[name][score]:.1f}" for scores in pages for score in ("all", "hIoU")]
        assert [cell.partition(" ±")[0] for cell in cells] == means


def test_records_of_held_out_images_say_so() -> None:
    recipes = (ROOT / "results").rglob("recipe.yaml")
    held_out = [path.parent for path in recipes if re.search(r"hold_out: 0\.[1-9]", path.read_text())]
    assert len(held_out) > 100
    steps = [step for folder in held_out for step in (folder / "steps").glob("*.json")]
    tested = {json.loads(step.read_text())["policy"].get("tested") for step in steps}
    assert tested == {"held-out 0.2 of the training images"}


def test_recipes_of_voc256_have_one_protocol() -> None:
    names = ("voc256.yaml", "voc256-15-5.yaml", "voc256-caf-ideas.yaml")
    first, *others = (read_yaml(find_recipe(name)) for name in names)
    for values in (first, *others):
        del values["methods"]
        values.pop("tune", None)
    assert others == [first, first]


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


def bench_records() -> dict[str, dict]:
    return {name: json.loads((ROOT / "results" / f"bench-{name}.json").read_text()) for name in SECTIONS}


def test_performance_page_is_made_from_the_records() -> None:
    assert (ROOT / "docs" / "performance.md").read_text(encoding="utf-8") == performance_page(bench_records())


@pytest.mark.parametrize("page", ["README.md", "docs/methods.md"])
def test_every_method_is_named(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in plugins.names("method") if f"`{name}`" not in text] == []
