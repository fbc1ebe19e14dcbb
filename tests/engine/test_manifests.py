"""`segue scenario`: manifests written, imported from index lists, and trained on."""

import json
from pathlib import Path

import numpy as np
import pytest
from own_folder import write_folder
from short_runs import SHORT

SCENES = ("--on", "scenes", "--split", "2-1", *SHORT)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Listed in another order than that of the names."""
    images = {"c": [1], "a": [1, 2], "d": [2], "b": [1]}
    root = write_folder(tmp_path / "mine", {**images, "v": [1, 2]}, "background\ncat\ndog\n")
    (root / "train.txt").write_text("".join(f"{key}\n" for key in images))
    (root / "val.txt").write_text("v\n")
    return root


def write_lists(folder: Path, *lists: list[int]) -> Path:
    folder.mkdir(exist_ok=True)
    for step, indices in enumerate(lists):
        np.save(folder / f"train-{step}.npy", np.array(indices, dtype=np.int64))
    return folder


def test_written_and_trained_on(segue, tmp_path) -> None:
    out = tmp_path / "a name: with yaml.json"
    code, text, err = segue("scenario", "write", out, *SCENES)
    assert code == 0, err
    document = json.loads(out.read_text())
    assert document["policy"]["mode"] == "overlapped" and document["groups"][1] == ["barred triangle"]
    assert document["hash"] in text and f"--manifest '{out}'" in err
    del document["steps"][0]["train"][3:]
    words = ("train", "finetune", "--manifest", out, *SHORT, "model.backbone=tiny", "--out", tmp_path / "run")
    code, _, err = segue(*words)
    assert code == 0, err
    assert json.loads((tmp_path / "run" / "scenario.json").read_text()) == json.loads(out.read_text())
    out.write_text(json.dumps(document))
    code, _, err = segue(*words, "--overwrite")
    assert code == 2 and str(out) in err


def test_import_maps_indices_by_name(segue, folder, tmp_path) -> None:
    lists = write_lists(tmp_path / "lists", [0, 1, 2], [0, 3])  # a b c | a d
    out = tmp_path / "imported.json"
    where = ("--on", "folder", "--split", "1-1", f"data.root={folder}")
    code, text, err = segue("scenario", "import", lists, out, *where)
    assert code == 0, err
    assert text.count("as by the rule") == 2
    assert [step["train"] for step in json.loads(out.read_text())["steps"]] == [["c", "a", "b"], ["a", "d"]]
    segue("scenario", "write", tmp_path / "ours.json", *where)
    assert json.loads(out.read_text()) == json.loads((tmp_path / "ours.json").read_text())


def test_import_tells_what_differs(segue, folder, tmp_path) -> None:
    lists = write_lists(tmp_path / "lists", [0, 2], [0, 3])
    words = (lists, tmp_path / "out.json", "--on", "folder", "--split", "1-1", f"data.root={folder}")
    code, text, _ = segue("scenario", "import", *words, "--mode", "disjoint")
    assert code == 0 and "rule: 1 missing, 1 more" in text and "as by the rule" in text


def test_lists_of_other_images_are_refused(segue, folder, tmp_path) -> None:
    words = (tmp_path / "out.json", "--on", "folder", "--split", "1-1", f"data.root={folder}")
    code, _, err = segue("scenario", "import", write_lists(tmp_path / "x", [0, 1], [1, 3]), *words)
    assert code == 2 and "train-1.npy holds the index 1" in err and "'b'" in err
    code, _, err = segue("scenario", "import", write_lists(tmp_path / "y", [0]), *words)
    assert code == 2 and "lacks train-1.npy" in err
    assert not (tmp_path / "out.json").exists()


def test_joint_takes_all_images_of_a_manifest(segue, tmp_path) -> None:
    out = tmp_path / "steps.json"
    segue("scenario", "write", out, *SCENES)
    words = ("--manifest", out, *SHORT, "model.backbone=tiny", "--out", tmp_path / "joint")
    code, _, err = segue("train", "joint", *words)
    assert code == 0, err
    listed = [key for step in json.loads(out.read_text())["steps"] for key in step["train"]]
    run = json.loads((tmp_path / "joint" / "scenario.json").read_text())
    assert (
        run["offline"]
        and sorted(run["steps"][0]["train"]) == sorted(set(listed))
        and len(set(listed)) < len(listed)
    )


def test_lists_count_all_images(segue, folder, tmp_path) -> None:
    lists = write_lists(tmp_path / "lists", [0, 1, 2], [0, 3])
    (tmp_path / "skip.json").write_text('{"format": "segue-skip-1", "dataset": "folder", "skip": {}}')
    words = ("--on", "folder", "--split", "1-1", f"data.root={folder}", f"data.skip={tmp_path / 'skip.json'}")
    code, _, err = segue("scenario", "import", lists, tmp_path / "out.json", *words)
    assert code == 2 and "leave out data.skip" in err
