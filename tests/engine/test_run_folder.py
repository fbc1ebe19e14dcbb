"""The rules of a run folder: what a run leaves there, and what may be done to a folder that is not empty."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import timm
import yaml
from rich.console import Console
from safetensors.torch import save_file
from tiny_runs import SPLIT, arguments, assert_equal_runs, checkpoints, files, quiet_run, recipe, run_until

from segue.core.config import to_yaml
from segue.core.errors import UserError
from segue.core.manifest import manifest_hash
from segue.core.progress import Display
from segue.engine import checkpoint
from segue.engine import run as run_module
from segue.engine.folder import default_folder, locked
from segue.engine.recipe import stored_recipe
from segue.engine.restore import evaluate_run
from segue.engine.run import run

FILES = [
    "checkpoints/step0.safetensors",
    "checkpoints/step1.safetensors",
    "counts/1.npz",
    "log.jsonl",
    "recipe.yaml",
    "samples/0/input.png",
    "samples/0/step0-energy.png",
    "samples/0/step0.png",
    "samples/0/step1-energy.png",
    "samples/0/step1.png",
    "samples/0/truth.png",
    "samples/1/input.png",
    "samples/1/step0-energy.png",
    "samples/1/step0.png",
    "samples/1/step1-energy.png",
    "samples/1/step1.png",
    "samples/1/truth.png",
    "samples/index.json",
    "scenario.json",
    "steps/0.json",
    "steps/1.json",
]


@pytest.fixture
def done(tmp_path: Path, finished: Callable[[str], Path]) -> Path:
    """A finished run that may be changed."""
    return shutil.copytree(finished("mib"), tmp_path / "mib")


def content(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files(folder)}


def test_a_run_leaves_these_files(finished):
    assert files(finished("mib")) == FILES


def test_a_method_with_attention_leaves_its_maps_too(finished):
    maps = [f"samples/{number}/step{step}-attention.png" for number in (0, 1) for step in (0, 1)]
    assert files(finished("caf")) == sorted(FILES + maps)


def test_a_run_without_pictures(tmp_path):
    quiet_run(recipe("finetune", "eval.samples=0", "train.epochs=1", "train.epochs_next=1"), tmp_path / "run")
    assert files(tmp_path / "run") == [name for name in FILES if not name.startswith("samples/")]


def test_the_command_line_makes_the_same_run(tmp_path, command, finished):
    outcome = command(*arguments("mib", tmp_path / "run"))
    assert outcome.code == 0
    assert f"segue report {tmp_path / 'run'}" in outcome.err
    assert_equal_runs(tmp_path / "run", finished("mib"))


def test_the_stored_recipe_is_the_whole_recipe(finished):
    assert (finished("mib") / "recipe.yaml").read_text() == to_yaml(recipe("mib"))


def test_existing_folder_is_refused(done, command):
    before = content(done)
    outcome = command(*arguments("mib", done))
    assert outcome.code == 2
    assert f"The run folder {done} exists" in outcome.err and "--resume" in outcome.err
    assert content(done) == before


def test_empty_folder_is_taken(tmp_path):
    (tmp_path / "run").mkdir()
    assert quiet_run(recipe("finetune", "train.epochs=1", "train.epochs_next=1"), tmp_path / "run").finished


def test_overwrite_starts_anew(done, command, finished):
    (done / "steps" / "2.json").write_text("of a longer run")
    (done / "steps" / ".2.json.abc_1.part").write_text("half")
    (done / "trajectory").mkdir()
    (done / "trajectory" / "1-0002.json").write_text("of a run with more tests")
    outcome = command(*arguments("finetune", done), "--overwrite")
    assert outcome.code == 0 and not (done / "trajectory").exists()
    reference = shutil.copytree(finished("finetune"), done.parent / "finetune")
    for step in ("0", "1"):
        record = reference / "steps" / f"{step}.json"
        record.write_text(record.read_text().replace('"run": "finetune"', '"run": "mib"'))
    shutil.move(reference, done.parent / "other" / "mib")
    assert_equal_runs(done, done.parent / "other" / "mib")


@pytest.mark.parametrize(
    "name", ["notes.txt", "samples/photo.jpg", "samples/0/me.png", "steps/.old.part", "memory/more/0.json"]
)
def test_overwrite_deletes_no_file_that_is_not_a_runs_own(name, done, command):
    (done / name).parent.mkdir(parents=True, exist_ok=True)
    (done / name).write_text("dear")
    before = content(done)
    outcome = command(*arguments("mib", done), "--overwrite")
    named = "memory/more" if "more" in name else name
    assert outcome.code == 2 and named in outcome.err
    assert content(done) == before


@pytest.mark.parametrize("text", ["flour: 500 g", "- flour\n- eggs", "method: {name: mib}", "cake: [", ""])
def test_overwrite_of_a_folder_with_another_kind_of_recipe(text, tmp_path, command):
    cake = tmp_path / "cake"
    (cake / "samples").mkdir(parents=True)
    (cake / "recipe.yaml").write_text(text)
    before = content(cake)
    outcome = command(*arguments("mib", cake), "--overwrite")
    assert outcome.code == 2 and f"{cake} is not a run folder" in outcome.err
    assert content(cake) == before


def test_run_folder_without_a_name(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no name"):
        quiet_run(recipe("mib"), "")
    assert not list(tmp_path.glob("*"))


OUTSIDE = ["steps/1.json", "samples/0/step1.png", "samples/index.json", "log.jsonl", "scenario.json"]


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
@pytest.mark.parametrize("name", [*OUTSIDE, "checkpoints", "steps", "samples/1", "recipe.yaml"])
def test_run_does_not_write_through_links(name, option, done, tmp_path, command):
    outside = tmp_path / "outside"
    shutil.move(done / name, outside)
    (done / "checkpoints" / "step1.safetensors").unlink(missing_ok=True)  # so that there is work to do
    (done / name).symlink_to(outside)

    def everything() -> list[object]:
        return [content(done), content(outside) if outside.is_dir() else outside.read_bytes()]

    before = everything()
    outcome = command(*arguments("mib", done), option)
    assert outcome.code == 2 and f"{done / name} is a link" in outcome.err
    assert everything() == before


@pytest.mark.parametrize("name", ["steps", "samples", "checkpoints", "log.jsonl", "steps/0.json"])
def test_link_that_appears_during_a_run_is_not_followed(name, tmp_path, monkeypatch):
    """Where it points to, nothing is made; parents neither."""
    folder, outside = tmp_path / "run", tmp_path / "absent" / "outside"
    real = run_module.open_folder

    def opened(*words):
        real(*words)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(outside)

    monkeypatch.setattr(run_module, "open_folder", opened)
    with pytest.raises(UserError, match=f"{name} is a link"):
        quiet_run(recipe("finetune", "train.epochs=1"), folder)
    assert not outside.parent.exists()


def test_overwrite_of_a_linked_folder(done, tmp_path, command):
    link = tmp_path / "link"
    link.symlink_to(done)
    assert command(*arguments("mib", link), "--overwrite").code == 0
    assert link.is_symlink() and files(done) == FILES


@pytest.mark.parametrize("option", ["--overwrite", "--resume", None])
def test_folder_that_is_no_run_is_left_alone(option, tmp_path, command):
    folder = tmp_path / "photos"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "holiday.jpg").write_bytes(b"dear")
    (folder / "checkpoints" / ".dear.part").write_bytes(b"dear too")
    before = content(folder)
    outcome = command(*arguments("mib", folder), *([option] if option else []))
    assert outcome.code == 2 and str(folder) in outcome.err
    assert content(folder) == before


@pytest.mark.parametrize("options", [["--overwrite"], ["--resume"], []])
def test_run_folder_that_is_a_file(options, tmp_path, command):
    (tmp_path / "file").write_text("dear")
    outcome = command(*arguments("mib", tmp_path / "file"), *options)
    assert outcome.code == 2 and f"{tmp_path / 'file'} is a file" in outcome.err
    assert (tmp_path / "file").read_text() == "dear"


def test_resume_and_overwrite_exclude_each_other(done, command):
    before = content(done)
    outcome = command(*arguments("mib", done), "--resume", "--overwrite")
    assert outcome.code == 2 and "choose one" in outcome.err
    assert content(done) == before


def test_bad_input_deletes_nothing_even_with_overwrite(done, command):
    before = content(done)
    for words in (
        ["model.backbone=tiny", "model.output_stride=16"],
        ["scenario.split=7-1"],
        ["optim.lr_first=0"],
    ):
        assert command(*arguments("mib", done), *words, "--overwrite").code == 2
        assert content(done) == before


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_run_that_was_stopped_before_it_had_its_recipe(option, tmp_path, command):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "scenario.json").write_text("{}")
    (folder / ".recipe.yaml.abc.part").write_text("half")
    assert command(*arguments("mib", folder), option).code == 0
    assert files(folder) == FILES


def test_resume_with_another_recipe_shows_the_difference(done, command):
    before = content(done)
    outcome = command(*arguments("mib", done, "optim.lr_next=0.5", "method.params.kd_weight=3"), "--resume")
    assert outcome.code == 2
    assert "optim.lr_next: 0.02 -> 0.5" in outcome.err
    assert "method.params.kd_weight: 10.0 -> 3.0" in outcome.err
    assert "optim.lr_first" not in outcome.err
    assert content(done) == before


def test_resume_with_another_method_shows_the_difference(done, command):
    outcome = command(*arguments("caf", done), "--resume")
    assert outcome.code == 2 and "method.name: 'mib' -> 'caf'" in outcome.err


def test_train_folder_resume(tmp_path, command, finished):
    folder = tmp_path / "run"
    run_until(recipe("mib"), folder, 5)
    assert command("train", folder).code == 2, "the folder exists"
    assert command("train", folder, "--resume").code == 0
    assert_equal_runs(folder, finished("mib"))


@pytest.mark.parametrize("option", [["--on", "voc"], ["--split", "1-1"], ["--mode", "disjoint"]])
def test_train_folder_takes_no_other_scenario(option, done, command):
    outcome = command("train", done, *option, "--resume")
    assert outcome.code == 2 and "its recipe says them" in outcome.err


def test_train_folder_with_a_changed_word_shows_the_difference(done, command):
    outcome = command("train", done, "--resume", "train.epochs=9")
    assert outcome.code == 2 and "train.epochs: 3 -> 9" in outcome.err


def test_stored_recipe_makes_the_same_run_elsewhere(tmp_path, command, finished):
    assert command("train", finished("mib") / "recipe.yaml", "--out", tmp_path / "again").code == 0
    assert_equal_runs(tmp_path / "again", finished("mib"))
    assert checkpoints(finished("mib")) == ["step0", "step1"]


def test_damaged_stored_recipe_is_named(done, command):
    (done / "recipe.yaml").write_text("scenario: [")
    outcome = command("train", done, "--resume")
    assert outcome.code == 2 and f"{done / 'recipe.yaml'} is not valid YAML" in outcome.err


def test_default_folder_names_the_run(tmp_path):
    assert default_folder(recipe("caf")) == Path(f"runs/caf-scenes-{SPLIT}-overlapped-s42")
    listed = recipe("mib", "scenario.split=[[1, 2], [3]]", "scenario.mode=disjoint", "train.seed=7")
    assert default_folder(listed) == Path("runs/mib-scenes-custom-disjoint-s7")
    named = recipe("mib", "scenario.split=barred disc,2/../3")
    assert default_folder(named).parts[0] == "runs" and len(default_folder(named).parts) == 2


def test_without_out_the_run_lands_in_runs(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        word for word in arguments("finetune", Path("x"), "train.epochs=1") if word not in ("--out", "x")
    ]
    assert command(*words, "--seed", "5").code == 0
    assert files(tmp_path / f"runs/finetune-scenes-{SPLIT}-overlapped-s5") == FILES


def test_eval_prints_every_class(done, command):
    outcome = command("eval", done)
    assert outcome.code == 0
    for name in ("background", "barred disc", "barred square", "barred triangle", "all with background"):
        assert name in outcome.out
    before = command("eval", done, "--step", "0")
    assert before.code == 0 and "barred triangle" not in before.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--step", "2"], "There is no step 2: the scenario has steps 0 to 1."),
        (["--step", "-1"], "There is no step -1"),
        (["--device", "nonsense"], "The device 'nonsense' cannot be used here"),
        (["optim.lr=1"], "Unknown key 'optim.lr'"),
    ],
)
def test_eval_refuses_what_is_not_there(words, message, done, command):
    outcome = command("eval", done, *words)
    assert outcome.code == 2 and message in outcome.err


def test_eval_of_a_step_whose_checkpoint_is_gone(done, command):
    (done / "checkpoints" / "step0.safetensors").unlink()
    outcome = command("eval", done, "--step", "0")
    assert outcome.code == 2 and "kept: [1]" in outcome.err


def test_eval_and_report_of_no_run(tmp_path, command):
    for verb in ("eval", "report"):
        outcome = command(verb, tmp_path)
        assert outcome.code == 2 and f"{tmp_path} is not a run folder" in outcome.err


def test_eval_and_report_of_a_run_without_finished_step(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_until(recipe("mib"), tmp_path / "run", 2)
    for verb in ("eval", "report"):
        outcome = command(verb, tmp_path / "run")
        assert outcome.code == 2 and "has no finished step yet" in outcome.err
    assert not (tmp_path / "report.html").exists()


def test_report_writes_a_page(tmp_path, command, finished):
    outcome = command("report", finished("mib"), finished("joint"), "--out", tmp_path / "page.html")
    assert outcome.code == 0 and "joint" in outcome.out
    assert "<html" in (tmp_path / "page.html").read_text()


def test_recipe_of_a_run_shows_as_it_is_stored(finished, command):
    outcome = command("show", finished("caf"))
    assert outcome.code == 0
    assert yaml.safe_load(outcome.out) == yaml.safe_load((finished("caf") / "recipe.yaml").read_text())


def test_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"Cannot write .*run: Not a directory"):
        quiet_run(recipe("mib"), tmp_path / "file" / "run")


def test_resume_on_other_images_is_refused(done: Path) -> None:
    document = json.loads((done / "scenario.json").read_text())
    document["steps"][1]["train"] = document["steps"][1]["train"][1:]
    document["steps"][1]["images"] -= 1
    document["hash"] = manifest_hash(document)
    (done / "scenario.json").write_text(json.dumps(document))
    (done / "checkpoints" / "step1.safetensors").unlink()  # it is still to be trained
    with pytest.raises(UserError, match=r"other images: step 1 had .* \(1 differ\)"):
        quiet_run(recipe("mib"), done, resume=True)


def test_settings_without_influence_may_change_on_resume(done: Path) -> None:
    quiet_run(recipe("mib", "train.workers=1", "train.save_seconds=5"), done, resume=True)
    quiet_run(recipe("mib", "train.checkpointing=true"), done, resume=True)
    with pytest.raises(UserError, match=r"train\.log_every"):
        quiet_run(recipe("mib", "train.log_every=3"), done, resume=True)


def test_a_recipe_from_before_a_setting_has_its_default(done: Path) -> None:
    path = done / "recipe.yaml"
    stored = yaml.safe_load(path.read_text())
    assert stored["train"].pop("compile") is False
    path.write_text(yaml.safe_dump(stored))
    quiet_run(recipe("mib"), done, resume=True)
    with pytest.raises(UserError, match=r"train\.compile: False -> True"):
        quiet_run(recipe("mib", "train.compile=true"), done, resume=True)


def test_resume_and_eval_do_not_read_the_pretrained_weights_again(tmp_path: Path) -> None:
    """They are in the checkpoint; the file may be gone."""
    weights = tmp_path / "resnet.safetensors"
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), weights)
    words = ["model.backbone=test_resnet", "model.output_stride=32", f"model.weights={weights}"]
    config = recipe("finetune", *words, "train.epochs=1", "train.epochs_next=1")
    run_until(config, tmp_path / "run", 1)
    weights.unlink()
    quiet_run(config, tmp_path / "run", resume=True)
    confusions, _, _ = evaluate_run(tmp_path / "run", display=Display(quiet=True))
    assert confusions["predict"].sum() > 0
    with pytest.raises(UserError, match="does not exist"):
        quiet_run(config, tmp_path / "other")


def test_an_edited_recipe_is_noticed(done: Path) -> None:
    (done / "steps" / "1.json").unlink()
    text = (done / "recipe.yaml").read_text()
    (done / "recipe.yaml").write_text(text.replace("lr_first: 0.05", "lr_first: 0.06"))
    with pytest.raises(UserError, match="another recipe or method file"):
        quiet_run(stored_recipe(done), done, resume=True)


def test_a_damaged_record_is_found_before_training(done: Path) -> None:
    (done / "checkpoints" / "step1.safetensors").unlink()
    (done / "steps" / "0.json").write_text("{")
    before = content(done)
    with pytest.raises(UserError, match=r"0\.json is not a step record"):
        quiet_run(recipe("mib"), done, resume=True)
    assert content(done) == before


def test_two_processes_do_not_share_a_folder(done: Path) -> None:
    with locked(done), pytest.raises(UserError, match="Another process"), locked(done, patience=0):
        pass
    with locked(done, patience=0):
        assert done.is_dir()


def test_resume_without_checkpoints_says_so(tmp_path: Path, finished: Callable[[str], Path]) -> None:
    folder = shutil.copytree(finished("finetune"), tmp_path / "run")
    shutil.rmtree(folder / "checkpoints")
    said = io.StringIO()
    run(recipe("finetune"), folder, resume=True, display=Display(Console(file=said, width=300)))
    assert "no checkpoint to go on from" in said.getvalue()
    assert_equal_runs(folder, finished("finetune"))


def test_a_run_goes_on_from_what_another_process_has_left(done: Path, finished, monkeypatch) -> None:
    """Nothing is read before the lock is free: it would be stale."""
    reads: list[Path] = []

    @contextmanager
    def waits(folder: Path) -> Iterator[None]:
        assert not reads
        (folder / "checkpoints" / "step1.safetensors").unlink()  # stands for any change
        with locked(folder):
            yield

    load = checkpoint.load_tree
    monkeypatch.setattr(checkpoint, "load_tree", lambda path: (reads.append(path), load(path))[1])
    monkeypatch.setattr("segue.engine.run.locked", waits)
    quiet_run(recipe("mib"), done, resume=True)
    assert reads and reads[0].name == "step0.safetensors"
    assert_equal_runs(done, finished("mib"))


def test_a_folder_that_was_removed_while_one_waited_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with locked(folder):
        assert folder.is_dir()
    assert not (tmp_path / "new").exists(), "a run that is refused leaves nothing"
    with locked(folder, patience=0):
        (folder / "recipe.yaml").write_text("")
    assert (folder / "recipe.yaml").is_file()
