"""`segue plan`: what it prints, in 80 columns, and what it refuses."""

import re

import pytest

TINY = ("model.backbone=tiny", "model.head=tiny", "model.output_stride=8", "train.crop=64", "train.epochs=2")
PLAN = ("plan", "caf", "--on", "voc", "--split", "15-5", "preset=paper", *TINY)


@pytest.fixture
def narrow(segue, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    return segue


def test_tables_and_words(narrow) -> None:
    code, text, err = narrow(*PLAN, "train.batch_size=8")
    assert code == 0 and err.startswith("Next: segue ")
    tables = text[: text.index("Images:")]
    assert max(map(len, tables.splitlines())) <= 80
    rows = [[cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in tables.splitlines()]
    assert any(row[:4] == ["0", "16", "9,568", "2,392"] for row in rows)
    assert any(row[:4] == ["all", "", "11,713", "2,928"] for row in rows)
    names = {row[0] for row in rows if row}
    for name in ("student", "trained: gradients", "momentum", "teacher", "what the method keeps", "peak"):
        assert name in names
    for name in ("checkpoint inside a step", "records, manifest, log", "exported model", "t4", "h100"):
        assert name in names
    assert "voc as published, not found here" in text
    assert "30% utilisation" in text and "Reading images, testing" in text and "TF32" in text


def test_one_gpu_has_hours_for_each_step_and_a_verdict(narrow) -> None:
    words = ("train.batch_size=24", "--gpu", "rtx-2080-ti", "--images", "200", "--processes", "2")
    code, text, _ = narrow(*PLAN, *words)
    assert code == 0 and "hours on rtx2080ti" in re.sub(r"\s+", " ", text)
    assert "12 images" in text and "their copies, to exchange" in text and "2 of them" in text
    assert re.search(r"rtx2080ti │ 11 GiB │\s+13 fp32 │ < 1 s │ fits", text)
    assert "200 as --images says" in text and "a100" not in text


def test_a_run_folder_is_planned_as_it_is(narrow, tmp_path) -> None:
    from segue.core.config import to_yaml
    from segue.engine.recipe import resolve

    (tmp_path / "run").mkdir()
    words = ["data.size=32", "data.train=40", "train.crop=32", "train.epochs=1", "scenario.split=5-3"]
    (tmp_path / "run" / "recipe.yaml").write_text(to_yaml(resolve("finetune", "scenes", overrides=words)))
    code, text, _ = narrow("plan", tmp_path / "run", "--gpu", "t4")
    assert code == 0 and "finetune on scenes 5-3, overlapped" in text
    assert "counted in the data (40 images)" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "caf", "--on", "voc", "--split", "15-5", "--gpu", "a1000"), "The GPU 'a1000' is not known"),
        (("plan", "caf", "--on", "folder", "--split", "1-1"), "data.root=FOLDER"),
        (("plan", "caf", "--on", "voc", "--split", "15-5", "data.root=.."), "is not a VOC 2012 folder"),
        (("plan", "cafe", "--on", "voc", "--split", "15-5"), "cafe"),
        ((*PLAN, "train.accumulate=24"), "leaves a micro-batch of one image"),
        ((*PLAN, "--processes", "30"), "30 processes cannot share"),
    ],
)
def test_what_is_refused(narrow, words, message) -> None:
    code, _, err = narrow(*words)
    assert code == 2 and message in err and "Traceback" not in err


@pytest.mark.parametrize("crop", [10**6, 2**31, 10**20])
def test_crop_that_cannot_be_followed_is_a_sentence(segue, crop: int) -> None:
    code, _, err = segue(*PLAN, f"train.crop={crop}")
    assert code == 2 and f"train.crop={crop}" in err and "free" in err
