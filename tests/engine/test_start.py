"""Step 0 of another run: a run that takes it ends where it would have ended alone, or is refused it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from several import Several
from tiny_runs import (
    DROPOUT,
    WORDS,
    arguments,
    assert_equal_runs,
    assert_equal_trees,
    checkpoints,
    files,
    log_lines,
    quiet_run,
    run_until,
    weights,
)

from segue.core import plugins
from segue.core.config import ReplayConfig, RunConfig, validate
from segue.core.declaration import Start
from segue.core.errors import UserError
from segue.core.manifest import read_manifest
from segue.engine import run as run_module
from segue.engine.checkpoint import CheckpointStore, load_tree
from segue.engine.recipe import resolve
from segue.engine.start import FirstStep, can_be_taken, first_step, stored_first_step
from segue.methods.base import Method
from segue.methods.caf import CAF
from segue.methods.ewc import EWC
from segue.methods.lwf_mc import LwFMC
from segue.methods.sdr import SDR

SHORT = (
    "data.train=24",
    "train.epochs=1",
    "train.epochs_next=1",
    "train.save_seconds=1000",
    "eval.samples=1",
)
LATER = (
    "optim.lr_next=0.3",
    "train.epochs_next=2",
    "train.norm=frozen",
    "train.log_every=1",
    "eval.thin=2",
    "train.crop_on=new",
)
"""what a run of the same step 0 may have besides"""
ONE_STEP = "offline"


def short(method: str | Path, *words: str, split: str = "2-1") -> RunConfig:
    return resolve(str(method), "scenes", split, overrides=[*WORDS, *SHORT, "train.norm=batch", *words])


def changed(value: Any) -> Any:
    """Another value of a setting."""
    if isinstance(value, ReplayConfig):
        return {"size": value.size + 5}
    return value / 2 + 0.01


def later_settings(config: RunConfig) -> dict[str, Any]:
    """Other values for all settings of which the method says that they play no part in step 0."""
    params, others = config.method.params, {}
    start = plugins.find("method", config.method.name).start
    for name in (each.name for each in dataclasses.fields(params)):
        if not isinstance(getattr(params, name), float | ReplayConfig):
            continue
        value = changed(getattr(params, name))
        if start(validate(type(params), {**dataclasses.asdict(params), name: value}, "")) == start(params):
            others[name] = value
    return others


def donor_of(method: str, words: Sequence[str] = ()) -> RunConfig:
    """A run, as unlike as may be, whose step 0 a method can take: fine-tuning's if it needs no more."""
    config, kind = short(method, *words), plugins.find("method", method)
    if kind.offline:
        return short("finetune", *LATER, split=ONE_STEP)
    if kind.start(config.method.params) == Start():
        return short("finetune", *LATER)
    others = later_settings(config)
    if kind is CAF:
        others = {"kd_weight": 3.0, "modality_dropout": 0.1, "ad": {"maps": "h", "excitation": "trained"}}
    assert others, f"{method} can start from no other run"
    said = [f"method.params.{name}={json.dumps(value)}" for name, value in others.items()]
    return short(method, *words, *LATER, *said)


def assert_same_outcome(ours: Path, theirs: Path) -> None:
    """Same records, weights and pictures bit for bit; the log of step 0 is where it was trained."""
    assert files(ours) == files(theirs)
    for name in files(ours):
        if name.endswith(".safetensors"):
            trees = [load_tree(folder / name) for folder in (ours, theirs)]
            assert_equal_trees(*({**tree, "log_bytes": 0} for tree in trees), name)
        elif name.startswith("steps/"):
            records = [json.loads((folder / name).read_text()) | {"run": ""} for folder in (ours, theirs)]
            assert_equal_trees(*records, name)
        elif name == "log.jsonl":
            assert log_lines(ours) == [line for line in log_lines(theirs) if line["step"] > 0]
        else:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[RunConfig], Path]:
    """The folder of a finished run. Not to be changed: copy it."""
    home, known = tmp_path_factory.mktemp("donors"), []

    def folder(config: RunConfig) -> Path:
        if config not in known:
            quiet_run(config, home / str(len(known)))
            known.append(config)
        return home / str(known.index(config))

    return folder


def check(config: RunConfig, source: Path, tmp_path: Path) -> None:
    """The contract: to take step 0 or to train it is the same."""
    quiet_run(config, tmp_path / "alone")
    with pytest.MonkeyPatch.context() as patch:
        train = run_module._train

        def later(method: Method, data: Any, step: Any, *rest: Any) -> Any:
            assert not step.first, "step 0 was trained again"
            return train(method, data, step, *rest)

        patch.setattr(run_module, "_train", later)
        record = quiet_run(config, tmp_path / "started", start=source)
    assert record.finished
    assert_same_outcome(tmp_path / "started", tmp_path / "alone")


@pytest.mark.parametrize("method", plugins.names("method"))
def test_step_0_of_another_run_is_as_good_as_ones_own(method: str, donor, tmp_path: Path) -> None:
    check(short(method), donor(donor_of(method)), tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("variant=paper",),
        ("variant=official",),
        ("variant=official_head",),
        ("layer={projection: false, fusion: false, attention: false}", "ad.excitation=trained"),
        ("layer_since=1", "modality_dropout=0.0"),
    ],
    ids=["paper", "official", "official_head", "no layer", "layer added later"],
)
def test_variants_of_caf(words: tuple[str, ...], donor, tmp_path: Path) -> None:
    words = tuple(f"method.params.{word}" for word in words)
    config = short("caf", *words)
    plain = CAF.start(config.method.params) == Start()
    assert plain == ("official_head" in words[0] or len(words) == 2), (
        "only its layer makes its step 0 special"
    )
    check(config, donor(donor_of("caf", words)), tmp_path)


def test_features_are_kept_of_a_step_0_that_another_run_has_trained(donor, tmp_path: Path) -> None:
    """As on real data: the donor kept none, or others."""
    config = short("caf", "method.params.rehearsal={weight: 1.0, per_class: 4, background: 8}")
    for number, kept in enumerate(("weight: 0.0", "weight: 1.0, per_class: 2, background: 3")):
        source = donor(short("caf", f"method.params.rehearsal={{{kept}}}"))
        check(config, source, tmp_path / str(number))


def test_plain_start_from_a_run_that_gathers(donor, tmp_path: Path) -> None:
    check(short("mib"), donor(short("ewc")), tmp_path)


def test_memory_is_kept_from_step_0_on(donor, tmp_path: Path) -> None:
    check(short("dft", "method.params.memory.size=4"), donor(donor_of("dft")), tmp_path)
    assert "memory/0.json" in files(tmp_path / "started")


def test_pretrained_weights_leave_other_random_numbers(tmp_path: Path) -> None:
    """What a method draws for itself comes after them: without reading them it would draw something else."""
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.pth")
    words = ["model.backbone=test_resnet", "model.head=tiny", f"model.weights={tmp_path / 'weights.pth'}"]
    words += ["method.params.layer={projection: false, fusion: false, attention: false}"]
    quiet_run(short("finetune", *words[:3]), tmp_path / "donor")
    check(short("caf", *words), tmp_path / "donor", tmp_path)


def test_weights_that_were_exchanged_since_are_found_out(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    torch.save(timm.create_model("test_resnet").state_dict(), weights)
    config = short("finetune", "model.backbone=test_resnet", "model.head=tiny", f"model.weights={weights}")
    quiet_run(config, tmp_path / "donor")
    assert can_be_taken(tmp_path / "donor")
    torch.save({key: 2 * value for key, value in torch.load(weights).items()}, weights)
    os.utime(weights, ns=(0, 0))
    assert not can_be_taken(tmp_path / "donor")
    with pytest.raises(UserError, match=r"weights\.pth is not the file that step 0 was trained with"):
        quiet_run(config, tmp_path / "taker", start=tmp_path / "donor")


@pytest.mark.parametrize(
    ("kind", "start", "source"),
    [
        (LwFMC, Start(), short("finetune")),
        (EWC, Start(), short("finetune")),
        (SDR, Start({"settings": ""}, {"settings": ""}), short("sdr", "method.params.attraction=1")),
    ],
    ids=["not plain", "gathers", "not later"],
)
def test_a_wrong_start_is_found_out(kind, start, source, monkeypatch, donor, tmp_path: Path) -> None:
    source = donor(source)
    monkeypatch.setattr(kind, "start", lambda config: start)
    with pytest.raises(AssertionError):
        check(short(kind.__module__.split(".")[-1]), source, tmp_path)
    assert (tmp_path / "started").exists(), "it was not refused, but found to differ"


def test_settings_with_the_same_first_classes_share_it(donor, tmp_path: Path) -> None:
    """As 15-5 and 15-1 do."""
    three, words = "1-2", ("train.epochs=1",)
    check(short("mib", *words, split="1-1"), donor(short("finetune", *words, split=three)), tmp_path)
    assert len(read_manifest(tmp_path / "started" / "scenario.json")["steps"]) == 3


def test_stopped_and_resumed(donor, tmp_path: Path) -> None:
    config, words = (
        short("mib", "train.epochs_next=3", "train.save_seconds=0"),
        {"start": donor(short("ewc"))},
    )
    quiet_run(config, tmp_path / "straight", **words)
    with pytest.MonkeyPatch.context() as patch:  # before it is tested
        patch.setattr(run_module, "record_step", lambda *_: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            quiet_run(config, tmp_path / "stopped", **words)
    assert checkpoints(tmp_path / "stopped") == ["step0"]
    run_until(config, tmp_path / "stopped", 2)  # also without saying again where it began
    assert checkpoints(tmp_path / "stopped")[:2] == ["step0", "step1-00000001"]
    quiet_run(config, tmp_path / "stopped", resume=True, **words)
    assert_equal_runs(tmp_path / "stopped", tmp_path / "straight")


def test_started_run_is_a_donor_itself(donor, tmp_path: Path) -> None:
    quiet_run(short("mib"), tmp_path / "second", start=donor(short("finetune")))
    check(short("plop"), tmp_path / "second", tmp_path)


def test_a_run_may_begin_again_from_its_own_step_0(donor, tmp_path: Path) -> None:
    shutil.copytree(donor(short("mib")), tmp_path / "run")
    quiet_run(short("mib"), tmp_path / "run", overwrite=True, start=tmp_path / "run")
    assert_equal_trees(weights(tmp_path / "run", 1), weights(donor(short("mib")), 1))
    assert {line["step"] for line in log_lines(tmp_path / "run")} == {1}


def test_two_processes(donor, several: Several, tmp_path: Path) -> None:
    """Only the first reads the other run: all take the same step 0."""
    source = tmp_path / "source"
    shutil.copytree(donor(short("finetune")), source)
    words = [*SHORT, "train.norm=batch", "--from", source, "--device", "cpu"]
    assert several.run(*arguments("plop", tmp_path / "run"), *words) == [0, 0], several.said(0)
    wrong = several.run(*arguments("ewc", tmp_path / "wrong"), *words)
    assert wrong[0] == 2 and "ewc gathers state" in several.said(0) and not (tmp_path / "wrong").exists()
    assert_equal_trees(
        {name: value for name, value in weights(tmp_path / "run", 0).items() if name.startswith("model.")},
        weights(source, 0),
    )
    assert log_lines(tmp_path / "run")[0]["step"] == 1


# What is refused


def refusal(config: RunConfig, source: Path, tmp_path: Path) -> str:
    with pytest.raises(UserError) as caught:
        quiet_run(config, tmp_path / "refused", start=source)
    assert not (tmp_path / "refused").exists(), "nothing is written before it is refused"
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "split", "lines"),
    [
        (("optim.lr_first=0.3",), "2-1", ["optim.lr_first: 0.05 -> 0.3"]),
        (("train.seed=1", "train.epochs=2"), "2-1", ["train.seed: 42 -> 1", "train.epochs: 1 -> 2"]),
        (("scenario.void=ignore",), "2-1", ["scenario.void: 'background' -> 'ignore'"]),
        (("data.train=23",), "2-1", ["data.train: 24 -> 23", "images: "]),
        (("scenario.hold_out=0.2",), "2-1", ["images: "]),
        ((), "1-1", ["classes: ", "images: "]),
    ],
)
def test_another_step_0_is_refused_with_the_differences(words, split, lines, donor, tmp_path: Path) -> None:
    source = donor(short("finetune"))
    message = refusal(short("mib", *words, split=split), source, tmp_path)
    first, *rest = message.splitlines()
    assert first == f"Step 0 of {source} is another one than this run's (theirs -> ours):"
    assert len(rest) == len(lines)
    for line in lines:
        assert any(found.strip().startswith(line) for found in rest), (line, rest)


@pytest.mark.parametrize(("method", "source"), [("ewc", "finetune"), ("ewc", "pi"), ("rw", "ewc")])
def test_what_was_not_gathered_cannot_be_taken(method: str, source: str, donor, tmp_path: Path) -> None:
    folder = donor(short(source))
    message = refusal(short(method), folder, tmp_path)
    assert message == f"{method} gathers state while it trains step 0: it cannot start from {folder}."


def test_a_model_that_was_replaced_is_no_start_for_others(donor, tmp_path: Path) -> None:
    folder = donor(short("acil"))
    for method, words in (("mib", ()), ("acil", ("method.params.ridge=3",))):
        message = refusal(short(method, *words), folder, tmp_path)
        assert message.startswith(f"When step 0 of {folder} ended, acil replaced the model that was trained:")


def test_a_replaced_model_is_a_start_for_the_same_settings(donor, tmp_path: Path) -> None:
    check(short("acil"), donor(short("acil", "method.params.confidence=0.2")), tmp_path)


def test_other_settings_of_what_is_gathered_are_refused(donor, tmp_path: Path) -> None:
    assert "gathers state" in refusal(short("ewc"), donor(short("ewc", "method.params.alpha=0.5")), tmp_path)


def test_folders_without_a_finished_step_0_are_refused(donor, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    message = refusal(short("mib"), tmp_path / "empty", tmp_path)
    assert message == f"{tmp_path / 'empty'} is not a run folder: it has no recipe.yaml."
    assert "is not a run folder" in refusal(short("mib"), tmp_path / "nowhere", tmp_path)
    run_until(short("finetune"), tmp_path / "early", 1)
    file = CheckpointStore(tmp_path / "early").path(0)
    message = refusal(short("mib"), tmp_path / "early", tmp_path)
    assert message == f"{tmp_path / 'early'} has no finished step 0 ({file})."
    assert not can_be_taken(tmp_path / "early") and not can_be_taken(tmp_path / "empty")


def test_damaged_step_0_is_refused(donor, tmp_path: Path) -> None:
    shutil.copytree(donor(short("finetune")), tmp_path / "source")
    assert can_be_taken(tmp_path / "source")
    path = CheckpointStore(tmp_path / "source").path(0)
    path.write_bytes(path.read_bytes()[:-9])
    assert re.search(
        r"step0\.safetensors.*(damaged|not)", refusal(short("mib"), tmp_path / "source", tmp_path)
    )
    assert not can_be_taken(tmp_path / "source")


def test_edited_recipe_is_refused(donor, tmp_path: Path) -> None:
    """It fits after the edit, but was not what the step was trained with."""
    source = tmp_path / "source"
    shutil.copytree(donor(short("finetune", "optim.lr_first=0.3")), source)
    recipe = source / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("lr_first: 0.3", "lr_first: 0.05"))
    message = refusal(short("mib"), source, tmp_path)
    assert message == f"{source}: its recipe or its method file was changed since step 0 was trained."
    assert not can_be_taken(source)


# Methods of one's own


def own(path: Path, old: str = "", new: str = "") -> Path:
    assert old in DROPOUT
    path.write_text(DROPOUT.replace(old, new, 1))
    return path


def decided(method: Path | str, *words: str) -> Any:
    return first_step(short(method, *words), {"steps": [{"new": [], "images": 0, "train": []}]})


def test_a_method_file_shares_with_the_same_file_only(donor, tmp_path: Path) -> None:
    mine, other = own(tmp_path / "mine.py"), own(tmp_path / "other.py", "0.3", "0.4")
    assert not decided(mine).can_start_from(decided("finetune"))
    assert not decided("finetune").can_start_from(decided(mine))
    assert not decided(other).can_start_from(decided(mine)), "the classes have the same name"
    shutil.copy(mine, tmp_path / "copy.py")
    check(short(tmp_path / "copy.py"), donor(short(mine)), tmp_path)
    own(mine, "0.3", "0.5")
    message = refusal(short(mine), donor_folder := donor(short(tmp_path / "copy.py")), tmp_path)
    assert str(donor_folder) in message and "method.file: " in message


def test_edited_method_file_is_refused(tmp_path: Path) -> None:
    mine = own(tmp_path / "mine.py")
    quiet_run(short(mine), tmp_path / "source")
    own(mine, "0.3", "0.5")
    assert "method file was changed" in refusal(short(mine), tmp_path / "source", tmp_path)


def test_a_method_file_may_say_that_it_starts_as_others_do(donor, tmp_path: Path) -> None:
    said = "    Config = Config\n    start = staticmethod(plain_start)\n"
    plain = own(tmp_path / "plain.py", "    Config = Config\n", said)
    text = plain.read_text().replace("0.3, self.training", "0.3, False")
    plain.write_text(text.replace("About, Method", "About, Method, plain_start"))
    check(short(plain), donor(short("finetune")), tmp_path)


def test_what_a_method_file_inherits_does_not_count(tmp_path: Path) -> None:
    text = "from segue.methods.{0} import METHOD as Base\nclass Mine(Base):\n    pass\nMETHOD = Mine\n"
    for name in ("mib", "lwf_mc", "ewc", "caf"):
        path = tmp_path / f"{name}_mine.py"
        path.write_text(text.format(name))
        ours = decided(path)
        assert not ours.can_start_from(decided(name)) and not ours.can_start_from(decided("finetune"))
        assert ours.can_start_from(decided(path)) and ours.gathered is not None
    assert not decided(tmp_path / "lwf_mc_mine.py").can_start_from(
        decided(tmp_path / "lwf_mc_mine.py", "method.params.kd_weight=1")
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "fits"),
    [
        ((None, None), ("state", None), True),
        ((None, None), (None, "other"), False),
        ((None, "other"), (None, None), True),
        ((None, "other"), (None, "another"), False),
        (("state", "other"), ("state", "other"), True),
        (("state", "other"), ("state", None), False),
        (("state", None), ("state", "other"), False),
    ],
)
def test_what_is_gathered_and_what_is_replaced_decide_who_may_start(ours, theirs, fits) -> None:
    assert FirstStep({}, *ours).can_start_from(FirstStep({}, *theirs)) is fits


def test_who_starts_as_others_do_and_who_gathers_state() -> None:
    starts = {name: plugins.find("method", name) for name in plugins.names("method")}
    starts = {name: kind.start(kind.Config()) for name, kind in starts.items()}
    assert {name for name, start in starts.items() if start.model} == {
        *("caf", "dkd", "incseg", "lwf_mc", "rcil", "sdr", "ssul", "star")
    }
    assert {name for name, start in starts.items() if start.gathered is not None} == {
        *("dkd", "ewc", "pi", "rw", "sdr")
    }
    assert {name for name, start in starts.items() if start.replaced is not None} == {"acil"}


def test_stored_first_step_is_that_of_the_run(donor) -> None:
    config = short("ewc")
    found, recipe = stored_first_step(donor(config))
    assert recipe == config and found == first_step(config, read_manifest(donor(config) / "scenario.json"))
    assert found.hash.startswith("sha256:")


@dataclasses.dataclass(frozen=True)
class Rooted:
    root: str


def test_other_weights_of_the_same_name_decide_another_step_0_but_a_place_does_not(tmp_path: Path) -> None:
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"one")
    config = short("finetune")
    (here := tmp_path / "here").mkdir()
    config = replace(config, data=Rooted(str(here)))
    config = replace(config, model=replace(config.model, weights=str(weights)))
    manifest = {"steps": [{"train": ["a"], "images": 1, "new": ["cat"]}]}
    before = first_step(config, manifest)
    assert first_step(config, manifest).hash == before.hash
    elsewhere = replace(config, data=Rooted("there"))
    moved = first_step(elsewhere, manifest)
    assert moved.hash == before.hash
    assert before.has_pictures_of(before) and not moved.has_pictures_of(before), "both places are there"
    here.rmdir()
    assert moved.has_pictures_of(before)
    weights.write_bytes(b"two")
    os.utime(weights, ns=(0, 0))
    assert first_step(config, manifest).hash != before.hash
