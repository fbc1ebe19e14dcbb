"""`segue data check` and `segue data show` on small folders, good and bad."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from own_folder import write_folder, write_pair
from PIL import Image
from short_runs import SHORT

from segue.core.manifest import manifest_hash
from segue.data import index
from segue.plan import checkup, preflight
from segue.plan.contact_sheet import spread_order, spread_over_classes

SMALL = (
    "model.backbone=tiny",
    "model.head=tiny",
    "model.output_stride=8",
    "train.crop=16",
    "train.workers=0",
)
RUN = (*SMALL, "train.epochs=1", "train.batch_size=2", "train.scale=[1,1]", "eval.samples=0")


@pytest.fixture
def folder(tmp_path) -> Path:
    images = {f"train/i{i}": [0, 1, 2] if i % 2 else [0, 1] for i in range(24)}
    images |= {f"val/v{i}": [0, 1, 2] for i in range(3)}
    return write_folder(tmp_path / "mine", images, "background\ncat\ndog\n")


def words(folder: Path, *more: str) -> tuple[str, ...]:
    return ("--on", "folder", "--split", "1-1", f"data.root={folder}", *SMALL, *more)


def damage(folder: Path) -> None:
    """One file of each kind of trouble."""
    (folder / "masks/train/i0.png").unlink()
    torn = folder / "images/train/i2.png"
    torn.write_bytes(torn.read_bytes()[:-30])
    write_pair(folder / "unused.png", folder / "masks/train/i4.png", [0, 1, 77])
    Image.new("L", (5, 5)).save(folder / "masks/train/i6.png")
    (folder / "images/val/v0.png").write_bytes(b"")
    write_pair(folder / "unused.png", folder / "masks/train/orphan.png", [1])


def test_good_data(segue, folder) -> None:
    code, text, err = segue("data", "check", *words(folder))
    assert code == 0 and err.startswith("Next: segue train caf --on folder --split 1-1 data.root=")
    assert text.endswith("Ready to train.\n")
    rows = [re.findall(r"[\d.]+", line) for line in text.splitlines()]
    assert ["0", "1", "24", "3", "41.7", "41.7", "0.0", "16.7", "0.0"] in rows  # 1/2 or 1/3 of each image
    assert ["1", "1", "12", "3", "33.3", "33.3", "33.3", "0.0", "0.0"] in rows
    assert "later classes, void, old classes" in text
    assert "24 train images: all 24 x 18 pixels." in text


def test_what_a_run_takes_is_what_train_says(segue, folder, monkeypatch) -> None:
    def needs(text: str) -> list[str]:
        """Memory and disk; what is free may change meanwhile."""
        line = next(line for line in text.splitlines() if "of memory" in line)
        return re.findall(r"[\d.]+ [KMG]iB of \w+", line)

    _, checked, _ = segue("data", "check", *words(folder, "train.epochs=1"))
    code, _, err = segue("train", "caf", *words(folder, "train.epochs=1"), "--out", folder.parent / "run")
    assert code == 0 and len(needs(checked)) == 2 and needs(checked) == needs(err)
    monkeypatch.setattr(preflight, "free_memory", lambda: 2**10)
    code, checked, _ = segue("data", "check", *words(folder))
    assert code == 1 and "1.0 KiB are free" in checked
    code, _, err = segue("train", "caf", *words(folder), "--out", folder.parent / "other")
    assert code == 2 and "1.0 KiB are free" in err


def test_bad_data_is_told_kind_by_kind(segue, folder) -> None:
    damage(folder)
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 1
    plain = re.sub(r"\s+", " ", text)
    for kind in ("missing", "unreadable", "unknown id", "wrong size"):
        assert f"error: 1 train image that cannot be used: {kind}" in plain
    assert "1 test image that cannot be used" in plain
    assert "1 mask of no image" in plain and "orphan.png" in plain
    assert "holds the value 77" in plain and "add --skip-bad skip.json" in plain
    assert plain.rstrip().endswith("Not ready to train: 5 errors, 1 warning.")


def test_skipped_files_are_left_out_of_training(segue, folder, tmp_path) -> None:
    damage(folder)
    skip = tmp_path / "skip.json"
    code, text, _ = segue("data", "check", *words(folder), "--skip-bad", skip)
    assert code == 0 and "Ready to train, with 6 warnings." in text
    assert f"5 bad images found; leave out what {skip} lists: data.skip={skip}" in text
    listed = json.loads(skip.read_text())["skip"]
    assert sorted(listed["train"]) == ["i0", "i2", "i4", "i6"] and sorted(listed["test"]) == ["v0"]
    run = ("train", "finetune", "--on", "folder", "--split", "1-1", f"data.root={folder}", *RUN)
    code, _, err = segue(*run, "--out", tmp_path / "run")
    assert code == 2 and "i0.png is missing" in err
    code, _, err = segue(*run, "--out", tmp_path / "run", f"data.skip={skip}")
    assert code == 0, err
    manifest = json.loads((tmp_path / "run" / "scenario.json").read_text())
    assert manifest["steps"][0]["images"] == 20


def test_a_second_list_keeps_the_first(segue, folder, tmp_path) -> None:
    damage(folder)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    segue("data", "check", *words(folder), "--skip-bad", first)
    (folder / "masks/train/i8.png").unlink()
    code, _, _ = segue("data", "check", *words(folder, f"data.skip={first}"), "--skip-bad", second)
    assert code == 0
    assert sorted(json.loads(second.read_text())["skip"]["train"]) == ["i0", "i2", "i4", "i6", "i8"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no list of files"),
        ("[" * 100_000, "no list of files"),
        ("[]", "no list of files"),
        ('{"format": "segue-skip-1", "dataset": "voc"}', "is for the data set 'voc'"),
        ('{"format": "segue-skip-1", "dataset": "folder", "skip": []}', "is damaged"),
        ('{"format": "segue-skip-1", "dataset": "folder", "skip": {"train": 3}}', "is damaged"),
    ],
)
def test_broken_lists(segue, folder, tmp_path, content, message) -> None:
    skip = tmp_path / "skip.json"
    skip.write_text(content)
    code, _, err = segue("data", "check", *words(folder, f"data.skip={skip}"))
    assert code == 2 and message in err and str(skip) in err


def test_without_a_split_all_classes_come_at_once(segue, folder) -> None:
    code, text, _ = segue("data", "check", "--on", "folder", f"data.root={folder}", *SMALL)
    assert code == 0
    assert any(re.findall(r"[\d.]+", line)[:4] == ["0", "2", "24", "3"] for line in text.splitlines())


def test_page(segue, folder, tmp_path) -> None:
    damage(folder)
    (folder / "classes.txt").write_text("background\n<b>cat\n犬\n", encoding="utf-8")
    page = tmp_path / "check.html"
    code, text, _ = segue("data", "check", *words(folder), "--page", page)
    assert code == 1 and f"Page: {page}" in text
    html = page.read_text(encoding="utf-8")
    assert "5 errors, 1 warning" in html
    assert "&lt;b&gt;cat" in html and "<b>cat" not in html and "犬" in html
    assert html.count('<svg class="chart"') == 2 and "holds the value 77" in html
    assert "http" not in html.replace("http://www.w3.org", "")


def test_generated_data_can_be_checked(segue) -> None:
    code, text, _ = segue("data", "check", "--on", "scenes", "--split", "2-1", *SHORT, *SMALL)
    assert code == 0 and "barred disc" in text and "Ready to train" in text


def test_contact_sheet(segue, folder, tmp_path) -> None:
    sheet = tmp_path / "sheet.html"
    code, text, err = segue("data", "show", *words(folder), "--step", "1", "--images", "5", "--out", sheet)
    assert (code, text) == (0, f"Page: {sheet}\n"), err
    html = sheet.read_text(encoding="utf-8")
    assert "5 of 12 train images" in html and "New classes: dog." in html
    assert html.count("<img") == 15 and html.count('class="card"') == 5
    code, _, _ = segue("data", "show", *words(folder), "--part", "test", "--out", sheet)
    assert code == 0 and "3 of 3 test images" in sheet.read_text(encoding="utf-8")


def test_contact_sheet_of_no_step(segue, folder) -> None:
    code, _, err = segue("data", "show", *words(folder), "--step", "2")
    assert code == 2 and "no step 2" in err


def test_wrong_commands(segue, folder, tmp_path) -> None:
    assert segue("data", "check", "--on", "nothing")[0] == 2
    code, _, err = segue("data", "check", "--on", "folder")
    assert code == 2 and "add data.root=FOLDER" in err
    code, _, err = segue("data", "check", *words(folder), "--device", "cuda:9")
    assert code == 2
    code, _, err = segue("data", "check", *words(folder), "--page", folder)
    assert code == 2 and "is not an ordinary file" in err


def test_list_that_cannot_be_written(segue, folder) -> None:
    code, _, err = segue("data", "check", *words(folder), "--skip-bad", folder / "classes.txt" / "skip.json")
    assert code == 2 and "skip.json" in err


def test_same_names_in_two_parts_are_two_images(segue, folder) -> None:
    write_pair(folder / "images/val/i0.png", folder / "masks/val/i0.png", [0, 1, 2])
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 0 and "both train and test" not in text


def test_images_of_both_splits_are_told(segue, folder) -> None:
    (folder / "train.txt").write_text("".join(f"train/i{i}\n" for i in range(24)))
    (folder / "val.txt").write_text("val/v0\ntrain/i0\n")
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 0 and "1 image that both" in text


def test_masks_of_sbd_are_no_orphans(segue, tmp_path) -> None:
    root = tmp_path / "VOC2012"
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    for key in "abcdef":
        write_pair(root / f"JPEGImages/{key}.jpg", root / f"SegmentationClassAug/{key}.png", [1, 20])
    write_pair(root / "JPEGImages/f.jpg", root / "SegmentationClass/f.png", [1, 20])
    (lists / "train_aug.txt").write_text("a\nb\nc\nd\ne\n")
    (lists / "val.txt").write_text("f\n")
    where = ("--on", "voc", "--split", "19-1", f"data.root={root}", *SMALL)
    _, text, _ = segue("data", "check", *where)
    assert "mask of no image" not in text and "5 train images" in text
    write_pair(tmp_path / "unused.png", root / "SegmentationClassAug" / "orphan.png", [1])
    _, text, _ = segue("data", "check", *where)
    assert "1 mask of no image" in text and "orphan.png" in text


def test_images_left_out_have_masks_all_the_same(segue, folder, tmp_path) -> None:
    damage(folder)
    (folder / "masks/train/orphan.png").unlink()
    skip = tmp_path / "skip.json"
    segue("data", "check", *words(folder), "--skip-bad", skip)
    code, text, _ = segue("data", "check", *words(folder, f"data.skip={skip}"))
    assert code == 0 and text.endswith("Ready to train.\n")


def test_manifest_is_heeded(segue, folder, tmp_path) -> None:
    manifest = tmp_path / "few.json"
    where = ("--on", "folder", "--split", "1-1", f"data.root={folder}")
    segue("scenario", "write", manifest, *where)
    document = json.loads(manifest.read_text())
    for step in document["steps"]:
        step["train"] = step["train"][:5]
        step["images"] = 5
    document["hash"] = manifest_hash(document)
    manifest.write_text(json.dumps(document))
    damage(folder)
    listed = ("--on", "folder", f"data.root={folder}", f"scenario.manifest={manifest}", *SMALL)
    code, text, err = segue("data", "check", *listed, "--skip-bad", tmp_path / "skip.json")
    rows = [re.findall(r"[\d.]+", line)[:4] for line in text.splitlines()]
    assert ["0", "1", "4", "2"] in rows and ["1", "1", "5", "2"] in rows, text + err
    assert code == 1 and "The manifest needs 1 image" in text


def test_what_stops_training_is_an_error_here_too(segue, folder) -> None:
    code, text, _ = segue("data", "check", *words(folder, "train.accumulate=24"))
    assert code == 1 and "train.accumulate=24" in text
    code, text, _ = segue(
        "data", "check", *words(folder)[4:], "--on", "folder", "--split", "cat/dog", "--mode", "disjoint"
    )
    assert code == 0, text


def test_a_check_spares_training_the_reading(segue, folder, monkeypatch) -> None:
    segue("data", "check", *words(folder))
    monkeypatch.setattr(index, "check_all", None)
    code, _, err = segue("data", "show", *words(folder), "--out", folder / "sheet.html")
    assert code == 0, err


def test_nothing_but_a_list_is_written_over(segue, folder, tmp_path) -> None:
    code, _, err = segue("data", "check", *words(folder), "--skip-bad", folder / "classes.txt")
    assert code == 2 and "no list of files" in err
    assert (folder / "classes.txt").read_text() == "background\ncat\ndog\n"
    skip = tmp_path / "skip.json"
    assert [segue("data", "check", *words(folder), "--skip-bad", skip)[0] for _ in range(2)] == [0, 0]


def test_ctrl_c(segue, folder, monkeypatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkup, "examine", stop)
    code, _, err = segue("data", "check", *words(folder))
    assert (code, err) == (130, "Stopped. The same command starts again, or goes on if it can.\n")


def test_names_that_are_no_text_can_be_printed(segue, folder, tmp_path) -> None:
    odd = Path(os.fsdecode(bytes(folder / "images/train") + b"/caf\xe9.png"))
    odd.write_bytes((folder / "images/train/i0.png").read_bytes())
    code, _, err = segue("data", "check", *words(folder), "--skip-bad", tmp_path / "skip.json")
    assert code == 2 and "is no plain text: rename it" in err


def test_dark_images_are_told(segue, folder) -> None:
    for path in (folder / "images/train").iterdir():
        Image.fromarray(np.full((18, 24), 2000, dtype=np.uint16)).save(path)
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 0 and "24 16-bit images without a value above 2000" in text
    code, text, _ = segue("data", "check", *words(folder, "data.bits=11"))
    assert code == 0 and text.endswith("Ready to train.\n")


def test_when_nothing_is_left_nothing_is_advised(segue, folder) -> None:
    for path in (folder / "masks").rglob("*.png"):
        path.write_bytes(b"")
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 1 and "--skip-bad" not in text and "24 train images" in text


def test_manifest_is_an_option(segue, folder, tmp_path) -> None:
    where = ("--on", "folder", "--split", "1-1", f"data.root={folder}")
    segue("scenario", "write", tmp_path / "m.json", *where)
    words = ("--on", "folder", f"data.root={folder}", "--manifest", tmp_path / "m.json")
    assert segue("data", "check", *words, *SMALL)[0] == 0
    assert segue("data", "show", *words, "--step", "1", "--out", tmp_path / "s.html")[0] == 0
    code, text, _ = segue("show", "mib", *words)
    assert code == 0 and "m.json" in text


def test_sheet_of_tests_shows_old_classes_too(segue, folder, tmp_path) -> None:
    for i in range(4):
        write_pair(folder / f"images/val/old{i}.png", folder / f"masks/val/old{i}.png", [0, 1])
    sheet = tmp_path / "sheet.html"
    code, _, err = segue("data", "show", *words(folder), "--part", "test", "--step", "1", "--out", sheet)
    assert code == 0 and "7 of 7 test images" in sheet.read_text(encoding="utf-8"), err


def test_a_recipe_says_what_to_look_at(segue, folder, tmp_path) -> None:
    recipe = tmp_path / "my.yaml"
    model = "model: {backbone: tiny, head: tiny, output_stride: 8}\ntrain: {crop: 16, workers: 0}\n"
    recipe.write_text(f"scenario: {{dataset: folder, split: 1-1}}\ndata: {{root: {folder}}}\n{model}")
    code, text, err = segue("data", "check", recipe)
    assert code == 0 and "A run of caf" in text, err
    assert any(re.findall(r"[\d.]+", line)[:4] == ["1", "1", "12", "3"] for line in text.splitlines())
    assert f"Next: segue train {recipe}" in err
    code, text, _ = segue("data", "check", recipe, "method.name=mib", "--split", "cat/dog")
    assert code == 0 and "A run of mib" in text
    sheet = tmp_path / "sheet.html"
    assert segue("data", "show", recipe, "--step", "1", "--out", sheet)[0] == 0 and sheet.is_file()
    run = tmp_path / "run"
    run.mkdir()
    code, stored, _ = segue("show", recipe, "method.name=mib")
    (run / "recipe.yaml").write_text(stored)
    assert segue("data", "check", run)[0] == 0
    assert segue("data", "check", run, "--on", "folder")[0] == 2
    code, _, err = segue("data", "check", run, recipe)
    assert code == 2 and "both name a recipe" in err


@pytest.fixture
def three_lists(folder) -> Path:
    """train, val and test; the last is not what runs test on."""
    for i in range(5):
        write_pair(folder / f"images/test/t{i}.png", folder / f"masks/test/t{i}.png", [0, 1, 2])
    return folder


def test_a_third_list_is_looked_at(segue, three_lists) -> None:
    code, text, _ = segue("data", "check", *words(three_lists))
    assert code == 0 and "mask of no image" not in text and text.endswith("Ready to train.\n")
    assert "5 unused test images: all 24 x 18 pixels." in text and "add data.test=test" in text
    (three_lists / "masks/test/t0.png").unlink()
    write_pair(three_lists / "unused.png", three_lists / "masks/test/orphan.png", [1])
    code, text, _ = segue("data", "check", *words(three_lists))
    assert code == 0, "no run reads it"
    assert "warning: 1 unused test image that cannot be used: missing" in text
    assert "1 mask of no image of any list" in text
    code, _, _ = segue("data", "check", *words(three_lists, "data.test=test"))
    assert code == 1


def test_a_list_of_all_is_no_third_one(segue, folder) -> None:
    train, val = [f"train/i{i}" for i in range(24)], [f"val/v{i}" for i in range(3)]
    for name, keys in {"train": train, "val": val, "trainval": train + val}.items():
        (folder / f"{name}.txt").write_text("\n".join(keys))
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 0 and "unused" not in text and "not used" not in text
    (folder / "test.txt").write_text("train/i0\nnowhere/x\n")
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 0 and "1 image that both train and test" in text


def test_test_images_without_masks_are_no_trouble(segue, folder) -> None:
    (folder / "images/test").mkdir()
    (folder / "images/test/t0.png").write_bytes((folder / "images/val/v0.png").read_bytes())
    code, text, _ = segue("data", "check", *words(folder))
    assert code == 0 and "The part 'test' is not used, and cannot be" in text


def test_parts_are_called_as_their_lists(segue, three_lists, tmp_path) -> None:
    sheet = tmp_path / "sheet.html"

    def shown(part: str) -> str:
        code, _, err = segue("data", "show", *words(three_lists), "--part", part, "--out", sheet)
        assert code == 0, err
        return sheet.read_text(encoding="utf-8")

    assert "3 of 3 test images" in shown("val") and "5 of 5 test images" in shown("test")
    assert "12 of 24 train images" in shown("train")
    code, _, err = segue("data", "show", *words(three_lists), "--part", "vall")
    assert code == 2 and "Did you mean 'val'?" in err


def test_sheets_sample_all_over_the_set() -> None:
    assert spread_order(6).tolist() == [0, 4, 2, 1, 5, 3]
    assert [sorted(spread_order(n).tolist()) for n in range(5)] == [list(range(n)) for n in range(5)]
    present = np.zeros((100, 256), dtype=bool)
    present[:, 1] = present[50:, 2] = True
    chosen = spread_over_classes([1, 2], present, np.arange(100), 8)
    assert len(set(chosen)) == 8 and min(chosen) < 10 and max(chosen) > 85
    assert chosen == spread_over_classes([1, 2], present, np.arange(100), 8)


def test_json_is_all_there_is_on_stdout(segue, folder) -> None:
    damage(folder)
    page = folder / "check.html"
    code, text, _ = segue("data", "check", *words(folder), "--json", "--page", page)
    found = json.loads(text)
    assert page.is_file()
    assert code == 1 and not found["ready"] and found["bad"] == 5
    assert found["diagnosis"]["images"] == {"train": 20, "test": 2}
    assert {finding["level"] for finding in found["diagnosis"]["findings"]} == {"error", "warning"}


def test_quiet_is_the_verdict(segue, folder) -> None:
    assert segue("data", "check", *words(folder), "--quiet") == (0, "Ready to train.\n", "")
