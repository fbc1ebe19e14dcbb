"""`train.cache_frozen`: outputs of frozen stages are computed once, and nothing else changes."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from rich.console import Console
from tiny_runs import assert_equal_runs, assert_equal_trees, log_lines, quiet_run, recipe, run_until, weights

from segue.core.config import RunConfig, recipe_hash
from segue.core.errors import UserError
from segue.core.progress import Display
from segue.core.records import read_run
from segue.engine import frozen_cache
from segue.engine.frozen_cache import FrozenCache
from segue.engine.restore import evaluate_run
from segue.engine.run import run

VIEWS = ("model.frozen_stages=2", "train.views=2", "train.workers=0")
CACHED = (*VIEWS, "train.cache_frozen=true")


@pytest.fixture
def caches(monkeypatch: pytest.MonkeyPatch) -> list[FrozenCache]:
    """The caches that are made from now on."""
    made: list[FrozenCache] = []

    class Watched(FrozenCache):
        def __init__(self, *arguments, **settings) -> None:
            super().__init__(*arguments, **settings)
            made.append(self)

    monkeypatch.setattr(frozen_cache, "FrozenCache", Watched)
    return made


def losses(config: RunConfig, folder: Path) -> list[float]:
    quiet_run(config, folder)
    return losses_of(folder)


def losses_of(folder: Path) -> list[float]:
    return [value for line in log_lines(folder) for value in line["losses"].values()]


@pytest.mark.parametrize("method", ["mib", "caf"])
def test_losses_are_those_of_the_same_views(method: str, tmp_path: Path) -> None:
    """Float16 has an error of 0.0005. A high learning rate would enlarge it, as it does every rounding."""
    calm = ("optim.lr_first=0.002", "optim.lr_next=0.002")
    plain, cached = (losses(recipe(method, *calm, *words), tmp_path / words[-1]) for words in (VIEWS, CACHED))
    assert cached == pytest.approx(plain, rel=1e-3, abs=1e-5)


@pytest.mark.precision("float64")
@pytest.mark.parametrize(
    ("method", "views"), [("caf", "train.views=2"), ("caf", "train.views=0"), ("plop", "train.views=2")]
)
def test_rounding_to_float16_is_the_only_difference(
    method: str, views: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FrozenCache, "kept_as", torch.float64)
    plain, cached = (losses(recipe(method, *words, views), tmp_path / words[-1]) for words in (VIEWS, CACHED))
    assert cached == pytest.approx(plain, rel=1e-10, abs=1e-10)
    for step in (0, 1):
        ours, theirs = (read_run(tmp_path / words[-1]).steps[step].confusion for words in (CACHED, VIEWS))
        assert ours == theirs, "tests begin after the frozen stages, too"


def test_every_view_is_computed_once(tmp_path: Path, caches: list[FrozenCache]) -> None:
    quiet_run(recipe("mib", *CACHED, "train.epochs_next=6"), tmp_path / "run")
    _, _, second = caches
    images, batches = 19, 2 * 8
    assert second.computed <= 2 * images < 6 * batches
    assert second.bytes == second.computed * 48 * 8 * 8 * 2, "float16, of the last frozen stage alone"


def test_test_images_are_computed_once_in_a_run(tmp_path: Path, caches: list[FrozenCache]) -> None:
    done = quiet_run(recipe("caf", *CACHED, "train.epochs=1", "train.epochs_next=1"), tmp_path / "run")
    tested = [step.images["test"] for step in done.steps]
    assert caches[0].computed == tested[-1] < sum(tested)


def test_a_test_anew_is_the_one_of_the_run(tmp_path: Path) -> None:
    done = quiet_run(recipe("caf", *CACHED, "train.epochs=1", "train.epochs_next=1"), tmp_path / "run")
    found, *_ = evaluate_run(tmp_path / "run", 1)
    assert [matrix.tolist() for matrix in found.values()] == [done.steps[1].matrix.tolist()]


def test_room_alters_the_time_alone(tmp_path: Path, caches: list[FrozenCache]) -> None:
    room = 5e-5
    quiet_run(recipe("mib", *CACHED), tmp_path / "run")
    quiet_run(recipe("mib", *CACHED, f"train.cache_gb={room}"), tmp_path / "little")
    ample, little = caches[2], caches[5]
    assert 0 < little.bytes <= room * 1e9 < ample.bytes and little.computed > ample.computed
    assert_equal_trees(weights(tmp_path / "little", 1), weights(tmp_path / "run", 1))


def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    config = recipe("caf", *CACHED)
    quiet_run(config, tmp_path / "straight")
    run_until(config, tmp_path / "run", 4)
    run_until(config, tmp_path / "run", 9)
    quiet_run(config, tmp_path / "run", resume=True)
    assert_equal_runs(tmp_path / "run", tmp_path / "straight")


def test_maps_of_an_image_do_not_depend_on_its_batch(make_cache: Callable[..., FrozenCache]) -> None:
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    places = [(0, 5), (1, 6), (2, 7), (3, 8)]
    together, alone = make_cache(), make_cache()
    (maps,) = together(images, places)
    for index, place in enumerate(places):
        (own,) = alone(images[index : index + 1], [place])
        assert torch.equal(maps[index], own[0])
    assert torch.equal(together(images.flip(0), places[::-1])[0], maps.flip(0)) and together.computed == 4


def test_what_float16_cannot_hold_is_kept_as_it_is(make_cache: Callable[..., FrozenCache]) -> None:
    cache, images = make_cache(), torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        for norm in cache.model.backbone.modules():
            if isinstance(norm, torch.nn.BatchNorm2d):
                norm.bias += 1e5
    (maps,) = cache(images, [(0, 0)])
    assert maps.isfinite().all() and torch.equal(cache(images, [(0, 0)])[0], maps)


@pytest.fixture
def make_cache() -> Callable[..., FrozenCache]:
    from segue.engine.build import build_method

    return lambda **settings: FrozenCache(
        build_method(recipe("mib", *CACHED), torch.device("cpu")).model, 1e9, **settings
    )


def test_nothing_frozen_is_said_and_trained_as_ever(tmp_path: Path) -> None:
    text = io.StringIO()
    words = ("train.views=2", "train.workers=0", "train.epochs=1", "train.epochs_next=1")
    run(
        recipe("mib", *words, "train.cache_frozen=true"),
        tmp_path / "run",
        display=Display(Console(file=text)),
    )
    assert text.getvalue().count("model.frozen_stages is 0") == 1
    quiet_run(recipe("mib", *words), tmp_path / "plain")
    assert_equal_trees(weights(tmp_path / "run", 1), weights(tmp_path / "plain", 1))


def test_a_backbone_that_cannot_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.models._speed.frozen.FrozenPart.fits", lambda *_: False)
    text = io.StringIO()
    run(
        recipe("mib", *CACHED, "train.epochs=1", "train.epochs_next=1"),
        tmp_path / "run",
        display=Display(Console(file=text, width=300)),
    )
    assert text.getvalue().count("tiny cannot begin after its frozen stages") == 1


def test_a_compiler_sees_no_such_network(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"train\.cache_frozen"):
        quiet_run(recipe("mib", *CACHED, "train.compile=true"), tmp_path / "run")


def test_room_is_no_part_of_a_recipes_identity() -> None:
    hashes = [
        recipe_hash(recipe("mib", *words))
        for words in ((), ("train.cache_gb=2",), ("train.views=2",), ("train.cache_frozen=true",))
    ]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3


DISK = (*CACHED, "train.cache_disk_gb=1")


def stored(cache: Path) -> list[Path]:
    return sorted((cache / "frozen").glob("*/*.maps"))


def test_another_run_takes_the_outputs_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: list[FrozenCache]
) -> None:
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))
    quiet_run(recipe("mib", *CACHED), tmp_path / "plain")
    quiet_run(recipe("mib", *DISK), tmp_path / "first")
    computed = sum(cache.computed for cache in caches[-3:])
    quiet_run(recipe("caf", *DISK), tmp_path / "second")
    assert computed == len(stored(tmp_path / "cache")) > 0
    assert sum(cache.computed for cache in caches[-3:]) == 0, "the same images, views and stages"
    assert losses_of(tmp_path / "first") == losses_of(tmp_path / "plain")
    assert_equal_trees(weights(tmp_path / "first", 1), weights(tmp_path / "plain", 1))


def test_stages_with_other_weights_have_other_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: list[FrozenCache]
) -> None:
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))
    for seed in (0, 1):
        quiet_run(recipe("mib", *DISK, f"train.seed={seed}"), tmp_path / str(seed))
    assert all(cache.computed for cache in caches), "a seed draws the first weights, too"


def test_a_resumed_run_knows_its_outputs_by_the_weights_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: list[FrozenCache]
) -> None:
    """Not by those that it was built with, which are random: other runs have the same."""
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.pth")
    words = ("model.backbone=test_resnet", "model.output_stride=16", "train.epochs=1")
    config = recipe("mib", *DISK, *words, f"model.weights={tmp_path / 'weights.pth'}")
    quiet_run(config, tmp_path / "run")
    for file in ("checkpoints/step1.safetensors", "steps/1.json"):
        (tmp_path / "run" / file).unlink()
    caches.clear()
    quiet_run(config, tmp_path / "run", resume=True)
    assert caches and not any(cache.computed for cache in caches)


def test_outputs_with_a_flipped_bit_are_computed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: list[FrozenCache]
) -> None:
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))
    quiet_run(recipe("mib", *DISK), tmp_path / "first")
    for place, byte in zip(stored(tmp_path / "cache")[:3], (0, 40, -1), strict=True):
        content = bytearray(place.read_bytes())
        content[byte] ^= 1
        place.write_bytes(content)
    quiet_run(recipe("mib", *DISK), tmp_path / "second")
    assert sum(cache.computed for cache in caches[-3:]) == 3
    assert_equal_runs(tmp_path / "second", tmp_path / "first")


def test_the_disk_holds_no_more_than_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "cache"))
    quiet_run(recipe("mib", *CACHED, "train.cache_disk_gb=0.0001"), tmp_path / "run")
    assert 0 < sum(place.stat().st_size for place in stored(tmp_path / "cache")) <= 100_000
