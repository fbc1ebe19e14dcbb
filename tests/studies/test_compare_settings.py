"""Comparing methods in several settings: one plan, a folder, a table, a section and charts for each."""

from __future__ import annotations

import re
from pathlib import Path

from own_folder import write_folder
from short_runs import SHORT

from segue.core.progress import Display
from segue.core.records import read_run
from segue.data.datasets.scenes import class_name
from segue.engine.folder import plain_name
from segue.engine.recipe import recipe_folder
from segue.studies.pages import command_line, write_page

HERE = ("compare", "--on", "scenes", "--split", "2-1")
FOUR = ("compare", "--on", "scenes", "--split", "2-1", "--split", "2-2", *SHORT, "data.classes=4")


def test_several_settings_are_one_plan_that_shares_step_0(segue, tmp_path, planned):
    words = (*FOUR, "--methods", "finetune,ewc", "--mode", "overlapped", "--mode", "disjoint")
    assert segue(*words, "--seeds", "2", "--out", tmp_path / "out")[0] == 0
    settings = ["2-1-overlapped", "2-1-disjoint", "2-2-overlapped", "2-2-disjoint"]
    runs = ("ewc-s0", "ewc-s1", "finetune-s0", "finetune-s1")  # ewc gathers state: finetune can start from it
    expected = [f"out/scenes-{setting}/{run}" for setting in settings for run in runs]
    assert [job.folder.relative_to(tmp_path).as_posix() for job in planned] == expected
    starts = {job.folder.relative_to(tmp_path / "out").as_posix(): job.start for job in planned}
    first = tmp_path / "out" / "scenes-2-1-overlapped"
    assert starts["scenes-2-1-overlapped/ewc-s1"] is None
    assert starts["scenes-2-1-overlapped/finetune-s1"] == first / "ewc-s1"
    assert starts["scenes-2-2-overlapped/ewc-s1"] == first / "ewc-s1", (
        "the same classes and images come first"
    )
    assert starts["scenes-2-2-overlapped/finetune-s0"] == first / "ewc-s0"
    assert all(job.resume and job.config.scenario.split in job.folder.parent.name for job in planned)
    assert {job.config.scenario.mode for job in planned if "disjoint" in str(job.folder)} == {"disjoint"}


def test_a_model_that_cannot_be_built_is_said_once_and_before_anything_is_run(segue, tmp_path, planned):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("methods: {caf: {model.frozen_stages: 9}}")
    words = (str(recipe), *HERE[1:], "--methods", "finetune,caf", "--seeds", "2", "--out", tmp_path / "out")
    code, _, error = segue("compare", *words, *SHORT)
    assert code == 2 and planned == [] and error.count("the backbone has 4 stages") == 1
    wrong = "{method.params.variant: paper, method.params.layer.bottleneck: 7}"
    recipe.write_text(f"methods: {{caf: {wrong}}}")  # of a method that is not the last
    code, _, error = segue("compare", *words, *SHORT, "--methods", "caf,joint")
    assert code == 2 and planned == [] and error.count("layer.bottleneck=7 does not divide") == 1


def test_a_file_in_the_place_of_the_folder_is_refused(segue, tmp_path, planned):
    (tmp_path / "out").write_text("")
    code, _, error = segue(*HERE, "--methods", "finetune", "--out", tmp_path / "out", *SHORT)
    assert code == 2 and planned == [] and "is a file" in error


def test_classes_without_a_test_image_are_told(segue, tmp_path, planned):
    words = (*HERE, "--methods", "finetune", "--out", tmp_path / "out", *SHORT)
    assert "No test image shows" not in segue(*words)[1]
    code, shown, _ = segue(*words, "--seeds", "3", "data.test=1", "data.classes=9", "scenario.split=2-7")
    assert code == 0 and shown.count("No test image shows") == 1


def test_several_settings_have_a_table_a_section_and_charts_each(segue, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out, page = tmp_path / "out", tmp_path / "docs" / "page.md"
    remarks = out / "scenes-2-2-overlapped" / "remarks.yaml"
    remarks.parent.mkdir(parents=True)
    remarks.write_text("remarks: {dft: Of this setting alone.}")
    words = (*FOUR, "--methods", "dft,joint", "--out", out, "--page", page)
    code, text, error = segue(*words)
    assert (
        code == 0 and error.startswith("Next: segue ") and f"All are kept in {out}." in " ".join(text.split())
    )
    settings = {"scenes 2-1 overlapped": "2-1-1, 3 steps", "scenes 2-2 overlapped": "2-2, 2 steps"}
    assert len(segue.runs) == 4 and all(text.count(f"split {title}") == 1 for title in settings.values())
    written = page.read_text()
    assert written.startswith("# Methods on scenes\n\nMade from the records by `segue compare --on scenes")
    assert "--split 2-1 --split 2-2 --methods dft,joint" in written
    sections = written.split("\n## ")[1:]
    for section, (setting, title) in zip(sections, settings.items(), strict=True):
        assert section.startswith(f"{setting}\n\n") and "| model.backbone | tiny |" in section
        assert title in section and "| dft: nothing |" in section and "| joint: all images |" in section
        assert re.search(r"\| optim.lr_next \| .* \(joint\) \|", section)
    assert ["* **dft**" in section for section in sections] == [False, True]
    kinds = {"2-1": ("steps", "old-new"), "2-2": ("old-new",)}
    files = [f"page-scenes-{split}-overlapped-{kind}.svg" for split in kinds for kind in kinds[split]]
    assert re.findall(r"]\(figures/(.*?)\)", written) == files
    assert sorted(path.name for path in (page.parent / "figures").iterdir()) == sorted(files)
    shown = (page.parent / "figures" / files[0]).read_text()
    assert shown.startswith("<svg xmlns=") and "scenes 2-1 overlapped</title>" in shown

    # one of the settings alone has the same numbers, and nothing is run
    alone = tmp_path / "alone.md"
    words = (
        "compare",
        "--on",
        "scenes",
        "--split",
        "2-1",
        *SHORT,
        "data.classes=4",
        "--methods",
        "dft,joint",
    )
    assert segue(*words, "--out", out, "--page", alone)[0] == 0 and segue.runs == []
    tables = [line for line in alone.read_text().splitlines() if line.startswith("| ")]
    assert tables == [line for line in sections[0].splitlines() if line.startswith("| ")]


def test_a_split_by_names_is_one_setting(segue, tmp_path, planned):
    one, two, three = map(class_name, (1, 2, 3))
    names = f"{one},{two}/{three}"
    words = ("compare", "--on", "scenes", "--methods", "finetune", "--split", names)
    assert segue(*words, "--split", "2-1", "--split", "2-1", "--out", tmp_path, "data.classes=3")[0] == 0
    assert len(planned) == 2, "the same split twice is one setting"
    assert [job.folder.parent.name for job in planned] == [
        plain_name([f"scenes {one},{two}/{three} overlapped"]),
        "scenes-2-1-overlapped",
    ]


def test_settings_that_would_share_a_folder_are_refused(segue, tmp_path, planned):
    words = (*HERE, "--mode", "overlapped", "--mode", "disjoint", "scenario.mode=disjoint")
    code, _, error = segue(*words, "--out", tmp_path / "out")
    assert code == 2 and "would both be 'scenes 2-1 disjoint'" in " ".join(error.split()) and planned == []


def test_command_on_the_page_names_the_recipe_and_no_place_of_this_machine(segue, tmp_path):
    page = tmp_path / "page.md"
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("train: {batch_size: 4}\nmethods: {dft: {method.params.memory.size: 3}}")
    words = (*HERE, "--methods", "dft", "--out", tmp_path / "out", "--page", page, *SHORT[:-5])
    words = (*words, "train.epochs=1", "train.epochs_next=1", "eval.samples=0", "train.crop=32")
    assert segue(*words, recipe)[0] == 0
    assert "`segue compare FOLDER/mine.yaml --on scenes" in page.read_text()
    assert "--out FOLDER/out " in page.read_text() and str(tmp_path) not in page.read_text()
    assert (
        "| train.batch_size | 4 |" in page.read_text() and "| dft: memory of 3 images |" in page.read_text()
    )


def test_places_on_this_machine_are_no_part_of_a_command():
    shipped = command_line("tune", [], {"out": "runs/tune"}, [], recipe_folder() / "voc256.yaml")
    assert shipped == "segue tune voc256.yaml --out runs/tune"
    for word, shown in {
        "data.root=/home/me/VOC": "data.root=FOLDER/VOC",
        'data.root="/home/me/VOC"': "data.root=FOLDER/VOC",
        "data.root=VOC/2012": "data.root=VOC/2012",
        "data={root: /home/me/VOC, size: 3}": "'data={root: FOLDER/VOC, size: 3}'",
        "scenario.order=[/a/b, c]": "'scenario.order=[FOLDER/b, c]'",
        "a.b=1": "a.b=1",
    }.items():
        assert command_line("ablate", ["table3"], {}, [word]) == f"segue ablate table3 {shown}"


FOLDER = ("compare", "voc256.yaml", "--on", "folder", "--split", "cat,dog/cow")
TINY = (
    *("model.backbone=tiny", "model.stages=null", "model.frozen_stages=0", "model.head=tiny"),
    *("train.epochs=1", "train.epochs_next=1", "train.crop=32", "train.batch_size=4"),
)


def animals(root: Path, train: int = 12) -> Path:
    images = {
        f"{part}/{i}": [0, 1 + i % 3] for part, count in (("train", train), ("val", 6)) for i in range(count)
    }
    return write_folder(root, images, "background\ncat\ndog\ncow\n")


def test_finished_runs_of_other_data_are_refused(segue, tmp_path):
    one, other = animals(tmp_path / "one"), animals(tmp_path / "other", train=15)
    words = (*FOLDER, "--out", tmp_path / "out", *TINY, "--methods")
    assert segue(*words, "finetune", f"data.root={one}")[0] == 0
    for methods in ("finetune", "finetune,mib"):
        code, _, error = segue(*words, methods, f"data.root={other}")
        assert code == 2 and "step 0 had 8 and now has 10" in error
        assert "name another folder with --out" in error and segue.runs == []
    moved = one.rename(tmp_path / "moved")
    assert segue(*words, "finetune", f"data.root={moved}")[0] == 0 and segue.runs == [], "the same images"


def test_a_page_that_cannot_be_written_is_said_before_training(segue, tmp_path, planned):
    (tmp_path / "file").write_text("")
    (tmp_path / "figures").write_text("")
    for page in (tmp_path / "file" / "page.md", tmp_path / "page.md"):
        code, _, error = segue(*HERE, "--methods", "mib", "--out", tmp_path / "out", "--page", page)
        assert code == 2 and f"{page} cannot be written: {tmp_path / 'fi'}" in error and planned == []


def test_methods_are_tested_on_the_same_images(segue, tmp_path, planned):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("methods: {mib: {eval.thin: 3, eval.samples: 1}}")
    code, _, error = segue(*HERE, recipe, "--methods", "finetune,mib", "--out", tmp_path / "out")
    assert code == 2 and "eval.thin: 1 -> 3" in error and planned == []


def test_shipped_recipe_runs_on_a_folder_of_ones_own(segue, tmp_path):
    root, page, tiny = animals(tmp_path / "mine"), tmp_path / "page.md", TINY
    words = (*FOLDER, "--methods", "finetune,mib")
    code, text, error = segue(*words, "--out", tmp_path / "out", "--page", page, *tiny, f"data.root={root}")
    assert code == 0 and error.startswith("Next: segue ") and "finetune" in text
    folder = "out/" + plain_name(["folder cat,dog/cow overlapped"])
    assert segue.runs == [f"{folder}/finetune-s0", f"{folder}/mib-s0"]
    for run in map(read_run, (tmp_path / each for each in segue.runs)):
        assert run.finished and len(run.steps) == 2 and run.recipe["train"]["norm"] == "frozen"
    shown = page.read_text()
    assert "`segue compare voc256.yaml --on folder --split cat,dog/cow " in shown
    assert " data.root=FOLDER/mine`" in shown and str(tmp_path) not in shown


def test_a_page_can_tell_of_a_folder_whose_name_is_no_text(tmp_path):
    write_page(tmp_path / "page.md", "made in b\udcff", Display(quiet=True))
    assert (tmp_path / "page.md").read_text() == "made in b\\udcff"
