"""DFT and SSUL: what is frozen, what is trained, SSUL's labels, its unknown, and the model it deploys."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from step_one import state_of, step_one

from segue.core import plugins
from segue.core.classes import IGNORE
from segue.core.declaration import replay_memory
from segue.data.batches import Batch
from segue.data.saliency import salient_pixels
from segue.deploy.model_file import load_model, save_model
from segue.engine.optim import param_groups
from segue.engine.recipe import resolve
from segue.losses import binary_cross_entropy, cross_entropy, unbiased_cross_entropy, upsample
from segue.testing import Bench

SIZE = (32, 32)
TRAINED = {"dft": ["classifier.parts.{}"], "ssul": ["classifier.parts.{}", "classifier.unknown"]}
"""what a step trains, by its number"""


def bench(name: str, params: dict | None = None) -> Bench:
    return Bench(plugins.find("method", name), params or {})


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("norm_frozen", [True, False])
def test_only_the_new_classifier_learns(name: str, norm_frozen: bool) -> None:
    """Nothing else changes: no weight, and no statistic of a norm either."""
    made = bench(name)
    method = made.method()
    for step in made.scenario:
        session = made.begin(method, step)
        method.model.norm_frozen = norm_frozen and not step.first
        method.train()
        before = state_of(method)
        made.train(session, step, range(3))
        after = state_of(method)
        changed = [key for key in after if not torch.equal(before[key], after[key])]
        if step.first:
            assert any(key.startswith("model.backbone") for key in changed)
        else:
            parts = tuple(f"model.{part.format(step.index)}" for part in TRAINED[name])
            assert changed and all(key.startswith(parts) for key in changed)
            weights = [key for key, _ in method.named_parameters() if key.startswith(parts)]
            assert set(weights) <= set(changed)
        made.finish(session, step)


@pytest.mark.parametrize("name", TRAINED)
def test_no_gradient_enters_the_frozen_network(name: str) -> None:
    made = step_one(name)
    assert made.method.teacher is None
    out = made.method.model(made.bench.batch(made.step, 0).images)
    assert not out.features["h"].requires_grad and out.logits.requires_grad
    groups = param_groups(made.method)
    assert not groups["backbone"] and not groups["layer"]
    trained = {id(p) for p in groups["head"] + groups["new"]}
    parts = tuple(part.format(1) for part in TRAINED[name])
    assert trained == {id(p) for key, p in made.method.model.named_parameters() if key.startswith(parts)}


@pytest.mark.parametrize("name", TRAINED)
def test_old_answers_stay(name: str) -> None:
    made = step_one(name)
    images = made.bench.batch(made.step, 0).images
    old, new = made.old(images).logits, made.new(images).logits
    kept = slice(1, 3) if name == "ssul" else slice(0, 3)  # the unknown, part of SSUL's background, learns
    torch.testing.assert_close(new[:, kept], old[:, kept])


# DFT


def test_term_of_dft() -> None:
    made = step_one("dft")
    method, batch = made.method, made.bench.batch(made.step, 0)
    terms = method(batch)
    assert list(terms) == ["ce"]
    logits = made.new(batch.images).logits
    torch.testing.assert_close(terms["ce"], cross_entropy(logits, batch.labels))
    terms["ce"].backward()
    ours = [p.grad.clone() for p in method.model.classifier.parts[1].parameters()]
    method.zero_grad()
    unbiased_cross_entropy(method.model(batch.images).logits, batch.labels, 3).backward()
    unbiased = [p.grad for p in method.model.classifier.parts[1].parameters()]
    for left, right in zip(ours, unbiased, strict=True):  # new channels learn the same
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)
        assert right.abs().max() > 1e-4


def test_dft_leaves_the_background_as_it_was() -> None:
    made = step_one("dft", updates=0)
    old, new = made.before.classifier.parts[0], made.method.model.classifier.parts[0]
    assert torch.equal(old.bias, new.bias) and torch.equal(old.weight, new.weight)


# SSUL: labels


def ssul_batch(made: Bench, step, seed: int = 0) -> Batch:
    """Dark pictures with a bright square in a corner, and some void."""
    batch = made.batch(step, seed)
    batch.images = (batch.images // 8).to(torch.uint8)
    batch.images[:, :, :12, :12] += 200
    batch.labels[0, :2] = IGNORE
    return batch


def test_background_that_stands_out_is_unknown_in_the_first_step() -> None:
    made = bench("ssul")
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    batch = ssul_batch(made, step)
    salient = salient_pixels(batch.images)
    expected = batch.labels.clone()
    expected[(batch.labels == 0) & salient] = 3
    assert expected.unique().tolist() == [0, 1, 2, 3, IGNORE]
    scores = upsample(method.model.classifier.scores(method.model(batch.images).features["h"]), SIZE)
    assert scores.shape[1] == 4
    assert torch.equal(method.relabelled(batch, scores), expected)
    terms = method(batch)
    assert list(terms) == ["bce"]
    torch.testing.assert_close(terms["bce"], binary_cross_entropy(scores, expected))


def test_background_of_a_later_step_is_an_old_class_unknown_or_background() -> None:
    made = step_one("ssul", {"confidence": 0.75})
    method, batch = made.method, made.bench.batch(made.step, 0)
    batch.images[:, :, :12, :12] = batch.images[:, :, :12, :12] // 2 + 128
    batch.labels[0, :2] = IGNORE
    with torch.no_grad():
        h = made.before(batch.images).features["h"]
        old = upsample(made.before.classifier.scores(h), SIZE).sigmoid()[:, :3].movedim(1, -1).tolist()
        scores = upsample(method.model.classifier.scores(h), SIZE)
    salient, expected = salient_pixels(batch.images).tolist(), batch.labels.tolist()
    cases = set()
    for b in range(4):
        for y in range(32):
            for x in range(32):
                if batch.labels[b, y, x] == 0:
                    p = old[b][y][x]
                    best = p.index(max(p))
                    sure = best > 0 and p[best] >= 0.75
                    expected[b][y][x] = best if sure else 5 if salient[b][y][x] else 0
                    cases.add((sure, best, salient[b][y][x]))
    assert {(sure, stands_out) for sure, _, stands_out in cases} == set(product((True, False), repeat=2))
    assert {(sure, best) for sure, best, _ in cases} == {(False, 0), *product((True, False), (1, 2))}
    assert method.relabelled(batch, scores).tolist() == expected
    value = binary_cross_entropy(scores, torch.tensor(expected))
    torch.testing.assert_close(method(batch)["bce"], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("scores", "label", "salient_label"),
    [
        ((-5, -5, -5, -5, -5, -5), 0, 5),
        ((5, -5, -5, -5, -5, -5), 0, 5),  # sure of background is no reason
        ((-5, 5, -5, -5, -5, -5), 1, 1),
        ((-5, 0, -5, -5, -5, -5), 1, 1),  # just sure enough
        ((-5, -0.1, -0.2, -5, -5, -5), 0, 5),
        ((5, 4, -5, -5, -5, -5), 0, 5),  # background is more likely
        ((-5, 4, 3, 9, 9, 9), 1, 1),  # new classes and the unknown have no say
    ],
)
def test_what_becomes_of_a_background_pixel(scores: tuple, label: int, salient_label: int) -> None:
    """Channels: background, two old classes, two new ones, unknown."""
    method = bench("ssul", {"confidence": 0.5}).method()
    method.step = bench("ssul").scenario[1]
    salient = torch.tensor([[[False, True, True, True]]])
    batch = Batch(torch.zeros(1, 3, 1, 4), torch.tensor([[[0, 0, 3, IGNORE]]]), ["a"])
    batch.salient = salient
    maps = torch.tensor(scores).float().view(1, 6, 1, 1).expand(-1, -1, 1, 4)
    assert method.relabelled(batch, maps).tolist() == [[[label, salient_label, 3, IGNORE]]]


def test_a_map_that_comes_with_the_images_is_used_instead() -> None:
    made = step_one("ssul", {"confidence": 1.0})
    batch = ssul_batch(made.bench, made.step)
    batch.salient = torch.zeros(4, *SIZE, dtype=torch.bool)
    batch.salient[:, 20:] = True
    scores = torch.full((4, 6, *SIZE), -5.0)
    labels = made.method.relabelled(batch, scores)
    unlabelled = batch.labels == 0
    assert (labels[:, 20:][unlabelled[:, 20:]] == 5).all() and (labels[:, :20][unlabelled[:, :20]] == 0).all()


# SSUL: classifier


def test_new_classes_start_as_the_unknown() -> None:
    made = step_one("ssul", updates=0)
    classifier, old = made.method.model.classifier, made.before.classifier
    assert classifier.sizes == (3, 2)
    for key, value in old.unknown.state_dict().items():
        assert torch.equal(classifier.unknown.state_dict()[key], value)
        assert torch.equal(
            classifier.parts[1].state_dict()[key], value.expand_as(classifier.parts[1].state_dict()[key])
        )
    images = made.bench.batch(made.step, 0).images
    scores = classifier.scores(made.new(images).features["h"])
    torch.testing.assert_close(scores[:, 3:5], scores[:, 5:].expand(-1, 2, -1, -1))


def test_unknown_counts_as_background_in_predictions() -> None:
    made = step_one("ssul")
    method, images = made.method.eval(), made.bench.batch(made.step, 0).images
    with torch.no_grad():
        scores = method.model.classifier.scores(method.model(images).features["h"])
        p = scores.sigmoid()
        logits = method.model(images).logits
        predicted = method.predict(images)
    torch.testing.assert_close(logits[:, 1:], scores[:, 1:-1])
    inside = (p[:, 0] + p[:, -1]) < 0.999
    assert inside.any()
    torch.testing.assert_close(logits.sigmoid()[:, 0][inside], (p[:, 0] + p[:, -1])[inside])
    expected = F.interpolate(logits, SIZE, mode="bilinear", align_corners=False)
    assert predicted.shape == (4, 5, *SIZE)
    torch.testing.assert_close(predicted, expected)


def test_deployed_ssul_is_written_and_read(tmp_path: Path) -> None:
    made = step_one("ssul")
    model, images = made.method.deployed(), made.bench.batch(made.step, 0).images
    names = made.bench.scenario.channel_names(made.step)
    save_model(model, names, tmp_path / "model.safetensors")
    again, header = load_model(tmp_path / "model.safetensors")
    assert header.classes == names and type(again.classifier) is type(model.classifier)
    with torch.no_grad():
        torch.testing.assert_close(again(images).logits, model(images).logits)
        torch.testing.assert_close(
            upsample(again(images).logits, SIZE), made.method.eval().predict(images), rtol=1e-4, atol=1e-5
        )
    assert again.state_dict().keys() == model.state_dict().keys()


# Settings


def test_recipe_of_ssul_on_voc() -> None:
    recipe = resolve("ssul", "voc", "15-5", overrides=["preset=paper"])
    assert (recipe.optim.lr_first, recipe.optim.lr_next, recipe.optim.head_factor) == (1e-3, 1e-3, 10)
    assert (recipe.train.epochs, recipe.train.batch_size, recipe.train.crop) == (50, 32, 513)
    assert recipe.method.params.confidence == 0.7 and recipe.method.params.memory.size == 0
    assert resolve("ssul", "scenes", "2-1").train.epochs != 50
    assert resolve("ssul", "voc", "15-5", overrides=["train.epochs=3"]).train.epochs == 3


def test_settings_of_ssul_on_ade20k() -> None:
    (found,) = [x for x in plugins.find("method", "ssul").benchmark_values if x.dataset == "ade20k"]
    assert found.split is None
    assert found.values["optim"] == {"lr_first": 5e-3, "lr_next": 5e-3, "head_factor": 10.0}
    assert found.values["train"] == {"epochs": 100, "batch_size": 24, "crop": 513}


@pytest.mark.parametrize("name", ["dft", "ssul", "incseg"])
def test_memory_is_off_unless_asked_for(name: str) -> None:
    assert replay_memory(bench(name).params) is None
    assert replay_memory(bench(name, {"memory": {"size": 7}}).params).size == 7
