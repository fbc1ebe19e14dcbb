"""What a run will take, said before it starts; a run that memory cannot hold is stopped, others are not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from foreign_folders import tiny_folder
from foreign_networks import CLASSES, MEAN, STD, network
from short_runs import SHORT

from segue import adopt
from segue.core import machine
from segue.core.config import RunConfig
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.engine.build import build_scenario
from segue.engine.recipe import resolve
from segue.plan import preflight
from segue.plan.footprint import footprint, step_session
from segue.plan.preflight import before_run, forecast, need_of

QUIET = Display(quiet=True)
GIB = 2**30


def recipe(*words: str, method: str = "caf") -> RunConfig:
    return resolve(method, "scenes", "2-1", overrides=[*SHORT, *words])


def own(*words: str) -> RunConfig:
    return resolve("caf", "folder", "cat/dog", overrides=["model.pretrained=false", *words])


def test_estimate_is_near_the_planners() -> None:
    """Which follows every tensor of real iterations."""
    config = resolve("caf", "scenes", "5-2")
    need = need_of(config)
    scenario, _ = build_scenario(config, preflight.open_set(config, "train"))
    found = [
        footprint(step_session(config, scenario, k, torch.device("cpu")), config, scenario[k]) for k in (0, 2)
    ]
    planned = max(each.peak(16) for each in found)
    assert 0.6 < need.memory / planned < 1.6
    assert 0.6 < need.flops / max(each.flops for each in found) < 1.6


def test_memory_follows_crop_batch_and_precision() -> None:
    plain = need_of(own("preset=laptop"))
    assert need_of(own("preset=laptop", "train.crop=512")).image == pytest.approx(4 * plain.image, rel=0.1)
    assert need_of(own("preset=laptop", "train.accumulate=4")).at_once == 2
    half = need_of(own("preset=laptop", "train.precision=bf16"))
    assert half.image < 0.8 * plain.image and half.fixed == plain.fixed
    assert need_of(own("preset=paper")).memory > 8 * plain.memory


def test_a_teacher_counts() -> None:
    alone, taught = (need_of(recipe(method=name)) for name in ("finetune", "mib"))
    assert taught.fixed > alone.fixed and taught.flops > alone.flops


def test_only_steps_that_are_trained_count() -> None:
    every, first = (need_of(recipe("train.epochs=3", method=name)).seen for name in ("finetune", "acil"))
    assert every is not None and first is not None and 0 < first < every
    assert first == need_of(recipe("train.epochs=3", "train.epochs_next=9", method="acil")).seen


def test_of_equal_memory_the_longest_run_is_told(monkeypatch) -> None:
    monkeypatch.setattr(preflight, "_line", lambda recipe, *_: recipe.method.name)
    recipes = [recipe(method=name) for name in ("finetune", "acil")]
    found = [forecast(order, "cpu", "Each run") for order in (recipes, recipes[::-1])]
    assert [each.text for each in found if each is not None] == ["finetune", "finetune"]


@pytest.mark.parametrize(
    ("word", "number"),
    [("train.crop=60000", "60000"), ("train.crop=100000000000000000000", "100000000000000000000"),
     ("data.train=2000000000", "GiB"), ("data.size=100000", "GiB")],
)  # fmt: skip
def test_what_cannot_fit_is_refused_by_numbers_and_quickly(word: str, number: str) -> None:
    config, began = recipe(word), time.monotonic()
    with pytest.raises(UserError, match="memory") as refused:
        before_run([config], "cpu", QUIET)
    assert number in str(refused.value) and "free" in str(refused.value)
    assert time.monotonic() - began < 5


def test_refusal_names_what_would_fit(monkeypatch) -> None:
    config = own("preset=paper")
    monkeypatch.setattr(preflight, "free_memory", lambda: 6 * GIB)
    with pytest.raises(UserError, match=r"train\.accumulate=\d+ or train\.crop=\d+ would fit") as refused:
        before_run([config], "cpu", QUIET)
    words = str(refused.value).partition(" would fit")[0].split(". ")[-1].split(" or ")
    for word in words:
        before_run([own("preset=paper", word)], "cpu", QUIET)


def test_refused_only_beyond_a_clear_factor(monkeypatch, capsys) -> None:
    config = recipe("train.crop=256")
    need = need_of(config).memory
    monkeypatch.setattr(preflight, "free_memory", lambda: int(need / 1.4))
    before_run([config], "cpu", Display())
    assert "Memory is tight." in capsys.readouterr().err
    monkeypatch.setattr(preflight, "free_memory", lambda: int(need / 1.6))
    with pytest.raises(UserError):
        before_run([config], "cpu", QUIET)
    monkeypatch.setattr(preflight, "free_memory", lambda: None)
    before_run([config], "cpu", QUIET)


def test_one_line_says_time_memory_and_disk(segue, tmp_path: Path) -> None:
    words = ("train", "mib", "--on", "scenes", "--split", "2-1", *SHORT)
    code, _, err = segue(*words, "--out", tmp_path / "run")
    (line,) = [line for line in err.splitlines() if line.startswith("This run will take")]
    assert code == 0 and "minute" in line and "of memory" in line and "of disk" in line
    code, _, err = segue(*words, "--out", tmp_path / "other", "train.crop=60000")
    assert code == 2 and "Traceback" not in err and not (tmp_path / "other").exists()
    code, _, err = segue(
        "compare", *words[2:], "--methods", "mib,caf", "--out", tmp_path / "c", "train.crop=60000"
    )
    assert code == 2 and "would need" in err


def test_a_backbone_that_cannot_be_followed_is_trained_all_the_same(monkeypatch, capsys) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("needs numbers")

    monkeypatch.setattr(preflight, "_iteration", fails)
    before_run([recipe()], "cpu", Display())
    assert capsys.readouterr().err == "", "what it will take is not known"


def test_errors_of_another_kind_are_not_hidden(monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("a slip of our own")

    monkeypatch.setattr(preflight, "_iteration", fails)
    with pytest.raises(KeyError):
        before_run([recipe()], "cpu", QUIET)


@pytest.mark.parametrize("name", ["torchvision LRASPP", "smp Unet", "hf SegFormer", "own U-Net"])
def test_networks_of_other_libraries_are_estimated(name: str) -> None:
    adopted = adopt(network(name), CLASSES, MEAN, STD).network
    small, large = (need_of(recipe(f"train.crop={crop}"), adopted) for crop in (64, 128))
    assert large.image > 2 * small.image and large.flops > 2 * small.flops
    assert small.fixed > 4 * sum(each.numel() for each in adopted.parameters())
    found = forecast([recipe()], "cpu", "This run", adopted)
    assert found is not None and "of memory" in found.text


@pytest.mark.parametrize("kind", ["smp", "hf"])
def test_a_recipes_network_of_another_library_is_estimated(kind: str, tmp_path: Path) -> None:
    named = f"model.network={tiny_folder(tmp_path, kind)}"
    config = resolve("mib", "scenes", "2-1", overrides=[named, "model.pretrained=false", "train.crop=64"])
    found = forecast([config], "cpu", "This run")
    assert config.model.network is not None and found is not None and "of memory" in found.text


def test_memory_of_a_container_counts(tmp_path: Path) -> None:
    assert machine._free_in_container(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 50\n")
    assert machine._free_in_container(tmp_path) is None, "no limit"
    (tmp_path / "memory.max").write_text("1000\n")
    assert machine._free_in_container(tmp_path) == 750
    assert (machine.free_memory() or 1) > 0
