"""The baselines that train the whole network: every loss term by hand at their second step, and settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from step_one import state_of, step_one
from torch import Tensor

import segue.methods
from segue.core import plugins
from segue.core.classes import IGNORE
from segue.core.config import validate
from segue.core.declaration import keeps, keeps_with
from segue.data.batches import Batch
from segue.engine.recipe import resolve
from segue.losses import (
    binary_cross_entropy,
    binary_distillation,
    cross_entropy,
    distillation,
    local_pod,
    unbiased_cross_entropy,
    unbiased_distillation,
    upsample,
)
from segue.losses.pixel import class_balance
from segue.losses.prototypes import attraction, class_sums, repulsion, sparsity
from segue.losses.pseudo import count_uncertainty, pseudo_labels, thresholds
from segue.methods.base import StepContext
from segue.testing import CPU, Bench

SIZE = (32, 32)


def bench(name: str, params: dict | None = None) -> Bench:
    return Bench(plugins.find("method", name), params or {})


def compare(ours: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(ours) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(ours[name], value.to(ours[name].dtype), rtol=1e-4, atol=0, msg=name)
        assert value > 0, name


# All methods


def test_methods_are_short() -> None:
    files = sorted(Path(segue.methods.__file__).parent.glob("*.py"))
    assert len(files) > 10
    assert [path.name for path in files if len(path.read_text().splitlines()) > 220] == []


@pytest.mark.parametrize("name", plugins.names("method"))
def test_every_method_says_where_it_comes_from_and_what_it_keeps(name: str) -> None:
    kind = plugins.find("method", name)
    about = kind.about
    assert about.title and about.paper and 2016 <= about.year <= 2026
    words = {word.strip() for word in keeps(kind).replace(" (optional)", "").split(",")}
    known = "nothing, teacher, importance, prototypes, features, memory, sums, all images"
    assert words <= {*known.split(", ")}
    assert words and ("nothing" not in words or len(words) == 1)
    assert ("teacher" in words) == kind.uses_teacher
    assert {*keeps_with(kind, kind.Config()).split(", ")} <= words | {"nothing"}


@pytest.mark.parametrize(
    ("name", "params", "kept"),
    [
        ("mib", {}, "teacher"),
        ("dft", {}, "nothing"),
        ("dft", {"memory": {"size": 9}}, "memory of 9 images"),
        ("ssul", {"memory": {"size": 9}}, "memory of 9 images"),
        ("incseg", {}, "teacher"),
        ("incseg", {"memory": {"size": 9}}, "teacher, memory of 9 images"),
        ("caf", {}, "teacher, features"),
        ("caf", {"rehearsal": {"weight": 0.0}}, "teacher"),
    ],
)
def test_what_is_optional_counts_only_if_it_is_on(name: str, params: dict[str, Any], kept: str) -> None:
    kind = plugins.find("method", name)
    assert keeps_with(kind, validate(kind.Config, params, "method.params")) == kept


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("lwf", {"kd_weight": 100}),
        ("lwf_mc", {"kd_weight": 10}),
        ("ilt", {"kd_weight": 100, "feature_weight": 100}),
        ("ewc", {"weight": 500, "alpha": 0.9}),
        ("pi", {"weight": 500}),
        ("rw", {"weight": 100, "alpha": 0.9, "every": 10}),
        ("plop", {"pod_factor": 0.01, "pod_logits_factor": 5e-4, "median": "fixed"}),
        (
            "sdr",
            {"kd_weight": 100, "matching": 1e-2, "attraction": 1e-3, "repulsion": 1e-3, "sparsity": 1e-3},
        ),
    ],
)
def test_weights_are_those_of_the_papers_on_voc(name: str, weights: dict[str, float]) -> None:
    assert dataclasses.asdict(resolve(name, "voc", "15-5").method.params) == weights


def test_plop_has_other_weights_on_ade20k() -> None:
    (found,) = [x for x in plugins.find("method", "plop").benchmark_values if x.dataset == "ade20k"]
    assert found.split is None
    assert found.values == {"method": {"params": {"pod_factor": 1e-3, "pod_logits_factor": 1e-5}}}


@pytest.mark.parametrize("name", ["lwf", "lwf_mc", "ilt", "sdr", "plop", "incseg"])
def test_new_classifiers_start_as_the_paper_says(name: str) -> None:
    made = step_one(name, updates=0)
    parts = made.method.model.classifier.parts
    shares = torch.equal(parts[1].weight, parts[0].weight[:1].expand_as(parts[1].weight))
    assert shares == (name in ("plop", "incseg"))


# LwF, LwF-MC, ILT


@pytest.mark.parametrize("name", ["lwf", "ilt"])
def test_first_step_is_plain_cross_entropy(name: str) -> None:
    made = bench(name)
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    batch = made.batch(step, 0)
    compare(method(batch), {"ce": cross_entropy(method.model(batch.images).logits, batch.labels)})


def test_lwf_mc_is_binary_from_the_first_step_on() -> None:
    made = bench("lwf_mc")
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    batch = made.batch(step, 0)
    compare(method(batch), {"bce": binary_cross_entropy(method.model(batch.images).logits, batch.labels)})


def test_terms_of_lwf() -> None:
    made = step_one("lwf")
    batch = made.bench.batch(made.step, 0)
    new, old = (upsample(out(batch.images).logits, SIZE) for out in (made.new, made.old))
    expected = {"ce": cross_entropy(new, batch.labels), "kd": 100 * distillation(new, old)}
    compare(made.method(batch), expected)


def test_terms_of_lwf_mc() -> None:
    made = step_one("lwf_mc")
    batch = made.bench.batch(made.step, 0)
    new, old = (upsample(out(batch.images).logits, SIZE) for out in (made.new, made.old))
    expected = {"bce": binary_cross_entropy(new, batch.labels), "kd": 10 * 3 * binary_distillation(new, old)}
    compare(made.method(batch), expected)


def test_terms_of_ilt() -> None:
    made = step_one("ilt")
    batch = made.bench.batch(made.step, 0)
    new, old = made.new(batch.images), made.old(batch.images)
    expected = {
        "ce": cross_entropy(new.logits, batch.labels),
        "kd": 100 * distillation(upsample(new.logits, SIZE), upsample(old.logits, SIZE)),
        "features": 100 * (new.features["z"] - old.features["z"]).square().mean(),
    }
    compare(made.method(batch), expected)


# SDR


def structure(z: Tensor, labels: Tensor, prototypes: Tensor) -> dict[str, Tensor]:
    known = prototypes.abs().sum(1) > 0
    return {
        "attraction": 1e-3 * attraction(z, labels, prototypes, known),
        "repulsion": 1e-3 * repulsion(z, labels, len(prototypes)),
        "sparsity": 1e-3 * sparsity(z, labels, len(prototypes)),
    }


def test_terms_of_sdr() -> None:
    made = step_one("sdr")
    method, batch = made.method, made.bench.batch(made.step, 0)
    new, old = made.new(batch.images), made.old(batch.images)
    z, labels = new.features["z"], batch.labels[:, 4::8, 4::8]
    seen = torch.where(labels == 0, old.logits.argmax(1), labels)
    held = [c for c in (1, 2) if (seen == c).any()]
    assert held and (seen == 0).any(), "the teacher sees old classes and background"
    terms = method(batch)
    apart = [
        (z.movedim(1, -1)[seen == c].mean(0) - method.prototypes[c]).square().mean()
        for c in held  # old prototypes have not moved in this step
    ]
    expected = {
        "ce": unbiased_cross_entropy(new.logits, batch.labels, 3),
        "kd": 100 * unbiased_distillation(new.logits, old.logits, size=SIZE),
        "matching": 1e-2 * torch.stack(apart).mean(),
        **structure(z, seen, method.prototypes),
    }
    compare(terms, expected)


def test_terms_of_sdr_in_the_first_step() -> None:
    made = bench("sdr")
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    batch = made.batch(step, 0)
    terms, out = method(batch), method.model(batch.images)
    expected = {"ce": cross_entropy(out.logits, batch.labels)}
    labels = batch.labels[:, 4::8, 4::8]
    compare(terms, {**expected, **structure(out.features["z"], labels, method.prototypes)})


def test_prototype_of_a_constant_class_is_that_constant() -> None:
    made = bench("sdr")
    method = made.method()
    method.grow(made.scenario[0])
    generator = torch.Generator().manual_seed(0)
    constant = torch.randn(3, 96, generator=generator)
    batches = [torch.randint(0, 3, (b, 4, 4), generator=generator) for b in (1, 3, 2)]
    for order in ((0, 1, 2), (2, 0, 1)):
        method.prototypes.zero_(), method.counts.zero_()
        for labels in (batches[i] for i in order):
            method.remember(constant[labels].movedim(-1, 1), labels)
        torch.testing.assert_close(method.prototypes[1:], constant[1:])
        assert torch.equal(method.prototypes[0], torch.zeros(96)) and method.counts[0] == 0


def test_prototypes_are_means_over_all_pixels_so_far() -> None:
    made = bench("sdr")
    method = made.method()
    method.grow(made.scenario[0])
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(6, 96, 4, 4, generator=generator) + 5
    labels = torch.randint(0, 3, (6, 4, 4), generator=generator)
    labels[0, 0], labels[:5][labels[:5] == 2] = IGNORE, 1  # the second batch has another share of classes
    method.remember(z[:5], labels[:5])
    assert method.counts[2] == 0 and torch.equal(method.prototypes[2], torch.zeros(96))
    method.remember(z[5:], labels[5:])
    sums, counts = class_sums(z, labels, 3)
    torch.testing.assert_close(method.prototypes[1:], sums[1:] / counts[1:, None], rtol=1e-5, atol=1e-5)
    assert method.counts.tolist() == [0, *counts[1:].tolist()] and counts.min() > 0


def test_prototypes_are_of_labelled_classes_and_old_ones_stay() -> None:
    made = step_one("sdr", updates=0)
    method = made.method
    kept = method.prototypes.clone()
    assert kept.shape == (5, 96) and kept[1:3].abs().sum(1).min() > 0 and not kept[3:].any()
    made.bench.train(made.session, made.step, range(2))
    assert torch.equal(method.prototypes[:3], kept[:3]) and method.prototypes[3:].abs().sum(1).min() > 0
    assert {"prototypes", "counts"} <= set(method.state_dict())


def test_labels_shrink_to_the_middle_of_a_place() -> None:
    made = bench("sdr")
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    batch = made.batch(step, 0, label=0)
    batch.labels[:, 4::8, 4::8], batch.labels[:, ::8, ::8] = 2, 1
    method(batch)
    assert method.counts.tolist() == [0, 0, 4 * 4 * 4]


def test_class_that_no_image_showed_is_neither_matched_nor_attracted() -> None:
    made = step_one("sdr")
    method, batch = made.method, made.bench.batch(made.step, 0)
    z = made.new(batch.images).features["z"]
    labels = torch.tensor([1, 2, 3, 0]).repeat(4, 4, 1)
    both = method.mismatch(z, labels)
    method.counts[2] = 0
    squares = (z[..., 0].mean((0, 2)) - method.prototypes[1]).square().mean()
    torch.testing.assert_close(method.mismatch(z, labels), squares)
    assert not torch.isclose(both, squares)
    known = torch.tensor([False, True, False, True, True])
    near = attraction(z, labels, method.prototypes, known)
    assert method.structure(z, labels)["attraction"].item() == pytest.approx(1e-3 * near.item(), rel=1e-4)
    assert method.mismatch(z, torch.zeros_like(labels)) == 0


# PLOP


def from_loader(made, median: str) -> Tensor:
    """Thresholds of the pass before the step."""
    batches = made.bench.context(made.step, torch.Generator()).loader
    logits = [upsample(made.old(batch.images).logits, SIZE) for batch in batches]
    counts = [count_uncertainty(o, b.labels, 5, median) for o, b in zip(logits, batches, strict=True)]
    return thresholds(sum(counts), 5, median)


@pytest.mark.parametrize("median", ["fixed", "official"])
def test_terms_of_plop(median: str) -> None:
    made = step_one("plop", {"median": median})
    method, batch = made.method, made.bench.batch(made.step, 0)
    new, old = made.new(batch.images), made.old(batch.images)
    limits = from_loader(made, median)
    assert limits.shape == (3,) and torch.equal(method.thresholds, limits)
    assert not torch.equal(limits, from_loader(made, {"fixed": "official"}.get(median, "fixed")))
    if median == "official":  # by hand: some are kept and some not
        limits = method.thresholds.copy_(from_loader(made, "fixed"))
    labels, kept = pseudo_labels(batch.labels, upsample(old.logits, SIZE), limits, 5)
    assert kept.min() > 0 and kept.max() < 1 and kept.unique().numel() > 1
    each = F.cross_entropy(upsample(new.logits, SIZE), labels, ignore_index=IGNORE, reduction="none")
    maps = [[*out.stages, out.features["h"], out.logits] for out in (old, new)]
    expected = {"ce": (each * kept[:, None, None]).mean(), "pod": local_pod(*maps, 3, 2, 0.01, 5e-4)}
    compare(method(batch), expected)


def test_plop_compares_six_maps_without_a_stem() -> None:
    method = bench("plop").method()
    out = SimpleNamespace(stages=list("s1234"), features={"h": "h", "z": "4"}, logits="o")
    assert method.maps(out) == list("1234ho")


class Loader(list):
    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


def test_plop_passes_over_the_images_once_before_every_step_but_the_first() -> None:
    made = bench("plop")
    method = made.method()
    for step in made.scenario.steps[:2]:
        method.grow(step)
        method.model.norm_frozen = not step.first
        method.train()
        before = state_of(method.model)
        loader = Loader([made.batch(step, seed) for seed in (50, 51)])
        method.begin_step(StepContext(step, loader, CPU, torch.Generator()))
        assert loader.passes == (0 if step.first else 1)
        assert all(torch.equal(value, before[name]) for name, value in method.model.state_dict().items())
        assert not any(parameter.grad is not None for parameter in method.parameters())
    assert method.state_dict()["thresholds"].shape == (3,) and method.thresholds.min() >= 0.001
    assert not method.thresholds.requires_grad


def test_plop_in_the_first_step_is_plain_cross_entropy() -> None:
    made = bench("plop")
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    assert method.state_dict()["thresholds"].shape == (0,)
    batch = made.batch(step, 0)
    compare(method(batch), {"ce": cross_entropy(method.model(batch.images).logits, batch.labels)})


def test_plop_image_without_background_has_no_part_in_the_cross_entropy() -> None:
    made = step_one("plop")
    terms = made.method(made.bench.batch(made.step, 0, label=3))
    assert terms["ce"].item() == 0 and terms["pod"] > 0


# Inc.Seg


def test_terms_of_incseg() -> None:
    made = step_one("incseg", {"confidence": 0.5, "balance": 0.7})
    method, batch = made.method, made.bench.batch(made.step, 0)
    batch.labels[0, :4], batch.labels[1, :4] = IGNORE, 1  # an image that is shown again has old labels
    probability = upsample(made.old(batch.images).logits, SIZE).softmax(1).movedim(1, -1).tolist()
    expected = batch.labels.clone()
    for b, y, x in (batch.labels == 0).nonzero().tolist():
        p = probability[b][y][x]
        expected[b, y, x] = p.index(max(p)) if max(p) >= 0.5 else IGNORE
    assert torch.equal(method.relabelled(batch), expected)
    assert set(expected[batch.labels == 0].tolist()) == {0, 1, 2, IGNORE}
    weights = class_balance(expected, 5, 0.7)
    compare(method(batch), {"ce": cross_entropy(made.new(batch.images).logits, expected, weights)})


def test_incseg_in_the_first_step_is_balanced_cross_entropy() -> None:
    made = bench("incseg")
    method, step = made.method(), made.scenario[0]
    made.begin(method, step)
    batch: Batch = made.batch(step, 0)
    logits, weights = method.model(batch.images).logits, class_balance(batch.labels, 3, 0.5)
    compare(method(batch), {"ce": cross_entropy(logits, batch.labels, weights)})
    assert weights.unique().numel() > 1


def test_mib_takes_the_background_of_earlier_images_for_new_classes() -> None:
    made = step_one("mib", {"kd_weight": 0.0})
    batch = made.bench.batch(made.step, 3, label=0)
    p = made.method.model(batch.images).logits.detach()
    p = upsample(p, batch.labels.shape[-2:]).softmax(1)
    old, new = p[:, : made.step.num_old].sum(1), p[:, made.step.num_old :].sum(1) + p[:, 0]
    for mark, expected in ((False, old), (True, new)):
        earlier = torch.full((len(p),), mark)
        found = made.method.losses(dataclasses.replace(batch, earlier=earlier))["ce"]
        torch.testing.assert_close(found.detach(), -expected.log().mean())
