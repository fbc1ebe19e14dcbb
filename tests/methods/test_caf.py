"""CAF as a method: its variants, each loss term by hand, the old features, test time, poor batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from segue.core.classes import IGNORE
from segue.core.declaration import Start
from segue.core.overrides import merge
from segue.core.scenario import Step
from segue.data.batches import Batch
from segue.engine.device import autocast
from segue.engine.recipe import resolve
from segue.engine.train import Session
from segue.losses import (
    attend,
    attentive_distance,
    background_balance,
    channel_attention,
    unbiased_distillation,
)
from segue.methods._stores import EMPTY, rehearsal_loss
from segue.methods.caf import CAF
from segue.methods.caf.config import PUBLISHED
from segue.methods.mib import MiB
from segue.models.segmenter import Output
from segue.testing import CPU, Bench, check_predictions

VARIANTS = ("segue", "paper", "official", "official_head")
LAYERED = ("segue", "paper", "official")
NO_LAYER = {"projection": False, "fusion": False, "attention": False}


def bench(variant: str = "segue", over: Mapping[str, Any] | None = None) -> Bench:
    """A variant with the published weight of distillation and without rehearsal, unless `over` says it."""
    chosen = merge(PUBLISHED, {"variant": variant, **CAF.variants[variant]})
    return Bench(CAF, merge(chosen, over or {}))


def step_one(
    variant: str = "segue", over: Mapping[str, Any] | None = None, updates: int = 2
) -> tuple[Bench, CAF, Session, Step]:
    """A method that has learned a little at step 0 and, with some updates, at step 1."""
    made = bench(variant, over)
    method = made.method()
    first, second = made.scenario.steps[:2]
    session = made.begin(method, first)
    made.train(session, first, range(2))
    made.finish(session, first)
    session = made.begin(method, second)
    made.train(session, second, range(updates))
    return made, method, session, second


def shake(module: nn.Module, share: float = 0.3) -> None:
    """Other weights, so that every part has an effect."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(share * torch.randn_like(parameter))


@contextmanager
def calls(module: nn.Module) -> Iterator[list[tuple]]:
    """The arguments of every call of a module."""
    seen: list[tuple] = []
    handle = module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments))
    try:
        yield seen
    finally:
        handle.remove()


def student(method: CAF, images: Tensor, old: Output) -> Output:
    """The pass that `losses` makes, with the old features always fused in."""
    name = {"raw": "z", "fused": "z_fused"}[method.config.old_features]
    with torch.no_grad():
        return method.model(images, old.features[name] if method.config.layer.fusion else None)


# Variants


def leaves(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= leaves(value, f"{where}{key}.") if isinstance(value, Mapping) else {where + key: value}
    return flat


DIFFERENCES = {
    "segue": {},
    "paper": {
        "ad_weight": 1000.0, "balanced": True, "gamma": "literal", "gamma_max": None, "modality_dropout": 0.0,
        "layer.output": "none", "layer.pool": "none", "layer.channel": "linear", "layer.spatial": "linear",
        "ad.form": "printed", "ad.detach": False, "ad.norm": "map", "ad.target": "raw",
        "ad.excitation": "trained",
    },
    "official": {
        "ad_weight": 1000.0, "balanced": True, "gamma": "logit", "gamma_max": None, "modality_dropout": 0.0,
        "old_features": "fused", "layer.carrier": "z", "layer.residual": False, "layer.scaled": False,
        "layer.output": "norm", "layer.pool": "after", "layer.start": "random", "layer.spatial": "energy",
        "ad.norm": "map",
    },
    "official_head": {
        "ad_weight": 1000.0, "layer.projection": False, "layer.fusion": False, "layer.attention": False,
        "ad.channel": False, "ad.spatial": False, "ad.norm": "mean",
    },
}  # fmt: skip
"""in what each variant differs from the defaults, beside `PUBLISHED`"""


@pytest.mark.parametrize("variant", DIFFERENCES)
def test_variants_differ_in_the_documented_choices_only(variant: str) -> None:
    plain = leaves(dataclasses.asdict(CAF.Config()))
    recipe = resolve("caf", "voc", "15-5", overrides=[f"method.params.variant={variant}"])
    resolved = leaves(dataclasses.asdict(recipe.method.params))
    assert resolved.keys() == plain.keys() and resolved.pop("variant") == variant
    expected = DIFFERENCES[variant] | ({} if variant == "segue" else leaves(PUBLISHED))
    assert {key: value for key, value in resolved.items() if value != plain[key]} == expected
    made = Bench(CAF, {"variant": variant, **CAF.variants[variant]})
    assert leaves(dataclasses.asdict(made.params)) == {**resolved, "variant": variant}


def test_every_variant_is_listed() -> None:
    assert set(VARIANTS) == set(CAF.variants) == set(DIFFERENCES)


def test_a_word_of_ones_own_wins_over_the_variant() -> None:
    words = ["method.params.variant=official", "method.params.layer.scaled=true", "method.params.ad_weight=7"]
    params = resolve("caf", "scenes", "2-1", overrides=words).method.params
    assert params.layer.scaled is True and params.ad_weight == 7
    assert params.layer.spatial == "energy" and params.ad.norm == "map"


@pytest.mark.parametrize(("projection", "fusion", "attention"), list(product((False, True), repeat=3)))
@pytest.mark.parametrize("carrier", ["v", "z"])
def test_every_set_of_parts_predicts_and_deploys(
    projection: bool, fusion: bool, attention: bool, carrier: str
) -> None:
    """The rows of Table 5."""
    parts = {"projection": projection, "fusion": fusion, "attention": attention}
    parts |= {"carrier": carrier, "residual": carrier == "v"}
    made = bench("segue", {"layer": parts})
    assert (made.method().model.fusion is not None) == (projection or fusion or attention)
    check_predictions(made)


# Excitation


def test_trained_excitation_learns_while_the_teachers_copy_stands_still() -> None:
    made, method, session, step = step_one("paper", updates=1)  # at the very start h equals the teacher's
    drawn = bench("paper").method().excitation.state_dict()
    before = {name: value.clone() for name, value in method.excitation.state_dict().items()}
    assert {name.split(".")[0] for name in before} == {"z", "h"}
    method(made.batch(step, 0))["ad"].backward()
    for name, parameter in method.excitation.named_parameters():
        assert parameter.grad.abs().max() > 0, name
    session.optimizer.zero_grad(set_to_none=True)
    made.train(session, step, range(3))
    for name, value in method.excitation.state_dict().items():
        assert torch.equal(value, before[name]) == torch.equal(value, drawn[name]) == ("old_" in name), name
    made.finish(session, step)

    ended = {name: value.clone() for name, value in method.excitation.state_dict().items()}
    session = made.begin(method, made.scenario.steps[2])
    for name in ("squeeze", "excite"):
        for m in ("z", "h"):
            old = getattr(method.excitation[m], f"old_{name}")
            assert torch.equal(old, ended[f"{m}.{name}"])
            assert not torch.equal(old, ended[f"{m}.old_{name}"])
    made.train(session, made.scenario.steps[2], range(1))
    assert torch.equal(method.excitation["z"].old_squeeze, ended["z.squeeze"])


def test_trained_excitation_weighs_each_map_by_its_own_models_weights() -> None:
    _, method, _, _ = step_one("paper", updates=0)
    shake(method.excitation)
    m = torch.randn(2, 96, 4, 4)
    excitation = method.excitation["z"]
    for old, weights in (
        (False, (excitation.squeeze, excitation.excite)),
        (True, (excitation.old_squeeze, excitation.old_excite)),
    ):
        expected = attend(m, channel_attention(m, *weights), True, "printed", False)
        torch.testing.assert_close(method.attended(m, "z", old), expected)
    assert (method.attended(m, "z") - method.attended(m, "z", old=True)).abs().max() > 1e-3


@pytest.mark.parametrize("variant", ["segue", "official"])
def test_frozen_excitation_is_no_parameter_and_never_moves(variant: str) -> None:
    made, method, session, step = step_one(variant, updates=0)
    drawn = {name: value.clone() for name, value in bench(variant).method().excitation.state_dict().items()}
    made.train(session, step, range(2))
    assert not list(method.excitation.parameters())
    assert set(drawn) == {f"{m}.{name}" for m in ("z", "h") for name in ("squeeze", "excite")}
    for name, value in method.excitation.state_dict().items():
        assert torch.equal(value, drawn[name]), name
    assert all(a is b for a, b in zip(*map(method.excitation["z"].weights, (False, True)), strict=True))
    assert any(name.startswith("excitation.") for name in method.state_dict())


# Losses


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_weight_of_zero_drops_its_term(variant: str) -> None:
    for over, names in (
        ({}, {"ce", "kd", "ad"}),
        ({"kd_weight": 0}, {"ce", "ad"}),
        ({"ad_weight": 0}, {"ce", "kd"}),
        ({"kd_weight": 0, "ad_weight": 0}, {"ce"}),
    ):
        made, method, _, step = step_one(variant, over, updates=0)
        assert set(method(made.batch(step, 0))) == names
        first = bench(variant, over).method()
        made.begin(first, made.scenario.steps[0])
        assert set(first(made.batch(made.scenario.steps[0], 0))) == {"ce"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_multiply_their_terms(variant: str) -> None:
    more = {"kd_weight": 30.0, "ad_weight": 7 * bench(variant).params.ad_weight}
    terms = []
    for over in ({}, more):
        made, method, _, step = step_one(variant, {**over, "modality_dropout": 0}, updates=0)
        shake(method.model)
        terms.append({name: value.item() for name, value in method(made.batch(step, 0)).items()})
    assert terms[1]["ce"] == pytest.approx(terms[0]["ce"])
    assert terms[1]["kd"] == pytest.approx(3 * terms[0]["kd"])
    assert terms[1]["ad"] == pytest.approx(7 * terms[0]["ad"]) and terms[0]["ad"] > 0


def by_hand(
    logits: Tensor, old_logits: Tensor, labels: Tensor, gamma: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Unbiased cross-entropy and distillation from probabilities, class by class."""
    size, num_old = labels.shape[-2:], old_logits.shape[1]
    p, t = (F.interpolate(x, size=size, mode="bilinear").softmax(1) for x in (logits, old_logits))
    ce = torch.zeros(labels.shape)
    for label in range(p.shape[1]):
        likely = p[:, :num_old].sum(1) if label < num_old else p[:, label]
        ce = torch.where(labels == label, -likely.log(), ce)
    background = t[:, 0] * (p[:, 0] + p[:, num_old:].sum(1)).log()
    kept = sum(t[:, c] * p[:, c].log() for c in range(1, num_old))
    return ce.mean(), -(torch.as_tensor(gamma).reshape(-1, 1, 1) * background + kept).mean() / num_old


def test_official_head_is_mib_and_plain_feature_distillation() -> None:
    made, method, _, step = step_one("official_head")
    batch = made.batch(step, 0)
    batch.labels[:, :4] = IGNORE
    terms, old = method(batch), method.teacher(batch.images)
    with torch.no_grad():
        out = method.model(batch.images)
        ce, kd = by_hand(out.logits, old.logits, batch.labels, 1.0)
        z, h = (F.mse_loss(out.features[name], old.features[name]) for name in ("z", "h"))
    torch.testing.assert_close(terms["ce"].detach(), ce)
    torch.testing.assert_close(terms["kd"].detach(), 10 * kd)
    torch.testing.assert_close(terms["ad"].detach(), 1000 * (z + h))
    assert z > 0 and h > 0 and method.model.fusion is None


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_equal_the_sum_of_their_parts(variant: str) -> None:
    """Every variant: both pixel losses by hand, its gamma, and L_AD from its choices."""
    made, method, _, step = step_one(variant, {"modality_dropout": 0})
    if method.model.fusion is not None:
        shake(method.model.fusion, 0.1)
    shake(method.excitation)  # where it is trained: other weights than the teacher's
    batch, ad = made.batch(step, 0), method.config.ad
    terms, old = method(batch), method.teacher(batch.images)
    out = student(method, batch.images, old)
    gamma = {"paper": "literal", "official": "logit"}.get(variant)
    gamma = background_balance(old.logits, gamma) if gamma else 1.0
    ce, kd = by_hand(out.logits, old.logits, batch.labels, gamma)
    torch.testing.assert_close(terms["ce"].detach(), ce)
    torch.testing.assert_close(terms["kd"].detach(), 10 * kd)
    total = 0.0
    for name in ("z", "h"):
        source = out.features["z_fused" if name == "z" else "h"]
        target = old.features[("z" if variant == "paper" else "z_fused") if name == "z" else "h"]
        maps = []
        for m, is_old in ((source, False), (target, True)):
            s = channel_attention(m, *method.excitation[name].weights(is_old)) if ad.channel else None
            maps.append(attend(m, s, ad.spatial, ad.form))
        total += attentive_distance(*maps, ad.norm, unit_energy=variant in ("segue", "official"))
    torch.testing.assert_close(terms["ad"].detach(), method.config.ad_weight * total.detach())
    assert total > 0


@pytest.mark.parametrize("variant", ["segue", "paper"])
def test_features_are_compared_in_full_precision(variant: str) -> None:
    made, method, _, step = step_one(variant)
    images = made.batch(step, 0).images
    with torch.no_grad():
        out, old = method.model(images), method.teacher(images)
        exact = method.feature_distance(out, old)
        with autocast(CPU, "bf16"):
            assert torch.equal(method.feature_distance(out, old), exact)
    assert exact > 0


@pytest.mark.parametrize("maps", ["z", "h"])
def test_both_maps_add_up(maps: str) -> None:
    """Table 7: z + h, or one of them."""
    over = {"ad": {"channel": False}, "modality_dropout": 0}
    values = {}
    for name in ("z+h", "z", "h"):
        made, method, _, step = step_one("segue", merge(over, {"ad": {"maps": name}}), updates=0)
        shake(method.model, 0.05)
        values[name] = method(made.batch(step, 0))["ad"].item()
    assert values["z+h"] == pytest.approx(values["z"] + values["h"])
    assert 0 < values[maps] < values["z+h"]


def test_without_its_parts_it_is_mib() -> None:
    """Same losses and same weights, step by step."""
    off = {"layer": NO_LAYER, "ad_weight": 0, "balanced": False}
    ours, theirs = bench("segue", off), Bench(MiB, {"kd_weight": 10.0})
    caf, mib = ours.method(), theirs.method()
    assert caf.model.state_dict().keys() == mib.model.state_dict().keys()
    for step in ours.scenario.steps:
        sessions = ours.begin(caf, step), theirs.begin(mib, step)
        ours.train(sessions[0], step, range(2))
        theirs.train(sessions[1], step, range(2))
        terms = caf(ours.batch(step, 5)), mib(theirs.batch(step, 5))
        assert terms[0].keys() == terms[1].keys() and (step.first or "kd" in terms[0])
        for name, value in terms[0].items():
            torch.testing.assert_close(value, terms[1][name])
        ours.finish(sessions[0], step)
        theirs.finish(sessions[1], step)
    for name, value in caf.model.state_dict().items():
        torch.testing.assert_close(value, mib.model.state_dict()[name])


@pytest.mark.parametrize("reading", ["logit", "ratio", "literal"])
@pytest.mark.parametrize("bound", [0.05, 1.0, None])
def test_gamma_is_the_background_balance_and_bounded(reading: str, bound: float | None) -> None:
    over = {"balanced": True, "gamma": reading, "gamma_max": bound, "modality_dropout": 0}
    made, method, _, step = step_one("segue", over, updates=1)
    with torch.no_grad():  # images of foreground have a large gamma
        method.teacher.model.classifier.parts[0].bias[0] -= 1
    batch = made.batch(step, 0)
    terms, old = method(batch), method.teacher(batch.images)
    gamma = background_balance(old.logits, reading)
    assert gamma.shape == (4,) and (gamma > 1).all()
    if bound is not None:
        gamma = torch.full((4,), bound)
    torch.testing.assert_close(method.background_weight(old.logits), gamma)
    out = student(method, batch.images, old)
    torch.testing.assert_close(
        terms["kd"].detach(), 10 * by_hand(out.logits, old.logits, batch.labels, gamma)[1]
    )
    plain = 10 * unbiased_distillation(out.logits, old.logits, None, batch.labels.shape[-2:])
    assert (terms["kd"] - plain).abs() > 1e-3 or bound == 1.0


def test_gamma_below_the_bound_stays_and_unbalanced_has_none() -> None:
    logits = torch.zeros(2, 3, 4, 4)
    logits[0, 0], logits[1, 0] = 3.0, -3.0
    method = step_one("segue", {"balanced": True, "gamma": "ratio", "gamma_max": 1.0}, updates=0)[1]
    expected = torch.tensor([2 * torch.exp(torch.tensor(-3.0)).item(), 1.0])
    torch.testing.assert_close(method.background_weight(logits), expected)
    assert step_one("segue", updates=0)[1].background_weight(logits) is None


# The teacher and its features


@pytest.mark.parametrize(("share", "used"), [(0.0, {True}), (1.0, {False}), (0.5, {True, False})])
@pytest.mark.parametrize("variant", LAYERED)
def test_modality_dropout_is_the_share_without_old_features(
    share: float, used: set[bool], variant: str
) -> None:
    made, method, _, step = step_one(variant, {"modality_dropout": share}, updates=0)
    image = made.batch(step, 0).split(4)[0]
    with calls(method.model.fusion) as seen, torch.no_grad():
        for _ in range(12):
            method(image)
    assert len(seen) == 12 and {arguments[1] is not None for arguments in seen} == used


@pytest.mark.parametrize(("which", "name"), [("raw", "z"), ("fused", "z_fused")])
def test_the_layer_gets_the_teachers_features(which: str, name: str) -> None:
    made, method, _, step = step_one("segue", {"old_features": which, "modality_dropout": 0}, updates=0)
    shake(method.teacher.model.fusion)
    batch = made.batch(step, 0)
    features = method.teacher(batch.images).features
    assert (features["z"] - features["z_fused"]).abs().max() > 0.01
    with calls(method.model.fusion) as seen:
        method(batch)
        method.eval().predictors()["concat"](batch.images)
    for arguments in seen:
        torch.testing.assert_close(arguments[1], features[name])
    assert len(seen) == 2


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("over", [{}, {"kd_weight": 0}, {"ad_weight": 0}])
def test_the_teacher_is_asked_once_per_iteration(variant: str, over: dict[str, float]) -> None:
    made, method, session, step = step_one(variant, over, updates=0)
    with calls(method.teacher.model) as seen:
        for number in range(1, 4):
            made.train(session, step, range(number, number + 1))
            assert len(seen) == number


@pytest.mark.parametrize("variant", VARIANTS)
def test_teacher_and_deployed_model_have_no_old_branch(variant: str) -> None:
    _, method, _, _ = step_one(variant, updates=0)
    method.eval()
    own = {name for name in method.model.state_dict() if name.startswith("fusion.")}
    old = {name for name in own if name.startswith(("fusion.fusion.", "fusion.project_old."))}
    assert bool(old) == (variant in LAYERED)
    for model in (method.teacher.model, method.deployed()):
        assert {name for name in model.state_dict() if name.startswith("fusion.")} == own - old
        assert not model.training
    assert set(old) <= set(method.model.state_dict())  # the student keeps its own


# Test time


@pytest.mark.parametrize("variant", VARIANTS)
def test_strategies_need_a_teacher_and_a_fusion(variant: str) -> None:
    made = bench(variant)
    method = made.method()
    first, second = made.scenario.steps[:2]
    made.finish(made.begin(method, first), first)
    assert tuple(method.predictors()) == ("skip",)
    made.begin(method, second)
    expected = ("skip", "zero", "concat") if variant in LAYERED else ("skip",)
    assert tuple(method.predictors()) == expected
    if variant in LAYERED:
        alone = step_one(variant, {"layer": {"fusion": False}}, updates=0)[1]
        assert tuple(alone.predictors()) == ("skip",)


@pytest.mark.parametrize("variant", LAYERED)
def test_strategies_differ_in_the_old_features_only(variant: str) -> None:
    """`predict` is skip; only concat follows the teacher."""
    made, method, _, step = step_one(variant)
    shake(method.model.fusion)
    method.eval()
    images = made.batch(step, 3).images
    with torch.inference_mode():
        before = predictions(method, images)
        torch.testing.assert_close(before["skip"], method.predict(images))
        torch.testing.assert_close(before["skip"], upsampled(method.deployed()(images).logits))
        old = method.teacher(images).features[{"raw": "z", "fused": "z_fused"}[method.config.old_features]]
        torch.testing.assert_close(before["concat"], upsampled(method.model(images, old).logits))
        shake(method.teacher.model)
        after = predictions(method, images)
    assert torch.equal(after["skip"], before["skip"]) and torch.equal(after["zero"], before["zero"])
    for other in (after["concat"], before["skip"], before["zero"]):
        assert (before["concat"] - other).abs().max() > 1e-3
    assert (before["skip"] - before["zero"]).abs().max() > 1e-3


def predictions(method: CAF, images: Tensor) -> dict[str, Tensor]:
    return {name: predict(images) for name, predict in method.predictors().items()}


def upsampled(logits: Tensor) -> Tensor:
    return F.interpolate(logits, size=(32, 32), mode="bilinear")


@pytest.mark.parametrize("variant", LAYERED)
def test_strategies_share_one_pass_of_the_encoder(variant: str) -> None:
    made, method, _, step = step_one(variant, updates=0)
    method.eval()
    with calls(method.model.backbone) as seen, torch.inference_mode():
        predictors = method.predictors()
        for seed in (3, 4):
            images = made.batch(step, seed).images
            found = {name: predict(images) for name, predict in predictors.items()}
    assert len(seen) == 2, "once for each batch"
    with torch.inference_mode():
        torch.testing.assert_close(found, predictions(method, images))


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_maps_are_energy_and_structured_attention(variant: str) -> None:
    made, method, _, step = step_one(variant)
    if method.model.fusion is not None:
        shake(method.model.fusion)
    images = made.batch(step, 3).images
    with torch.inference_mode():
        maps, out = method.eval().attention_maps(images), method.model(images)
    squares = out.features["z_fused"].square().sum(1)
    torch.testing.assert_close(maps["energy"], squares / squares.square().sum((1, 2), keepdim=True).sqrt())
    assert set(maps) == ({"energy", "attention"} if variant in LAYERED else {"energy"})
    if variant in LAYERED:
        layer = method.model.fusion
        with torch.inference_mode():
            v = layer.project_new(out.features["z"])
            attention = (layer.channel_attention(v) * layer.spatial_attention(v)).mean(1)
        torch.testing.assert_close(maps["attention"], attention)


# Poor batches, in every precision


def poor_batches(made: Bench, step: Step) -> Iterator[tuple[str, Batch]]:
    yield "all background", made.batch(step, 2, 0)
    yield "all void", made.batch(step, 2, IGNORE)
    small = made.batch(step, 2, 0)
    small.labels[0, 7, 11] = step.num_channels - 1
    yield "an object of one pixel", small
    for value in (0, 255):
        batch = made.batch(step, 2)
        yield (
            f"constant images of {value}",
            Batch(torch.full_like(batch.images, value), batch.labels, batch.keys),
        )


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_poor_batches_give_finite_losses_and_gradients(variant: str, precision: str) -> None:
    """With the old features and, where the variant may do without them, without; nothing is scaled."""
    for share in (0.0, 1.0) if variant == "segue" else (0.0,):
        made = bench(variant, {"modality_dropout": share})
        method = made.method()
        for step in made.scenario.steps[:2]:
            session = made.begin(method, step)
            for what, batch in poor_batches(made, step):
                with autocast(CPU, precision):
                    losses = method(batch.split(2)[0])
                sum(losses.values()).backward()
                where = f"{what} at step {step.index}, {precision}"
                assert set(losses) == ({"ce"} if step.first else {"ce", "kd", "ad"})
                for name, value in losses.items():
                    assert torch.isfinite(value), f"{name} is {value.item()}: {where}"
                moved = False
                for name, parameter in method.named_parameters():
                    if parameter.grad is not None:
                        assert torch.isfinite(parameter.grad).all(), f"gradient of {name}: {where}"
                        moved = moved or bool(parameter.grad.any())
                assert moved or (what == "all void" and step.first), where
                session.optimizer.zero_grad(set_to_none=True)
            made.train(session, step, range(2))
            made.finish(session, step)


# Rehearsal

REHEARSAL = {"rehearsal": {"weight": 0.5, "per_class": 4, "background": 8}}


def test_rehearsal_holds_the_classifier_to_what_was_kept() -> None:
    made, method, _, second = step_one(over={**REHEARSAL, "modality_dropout": 0})
    batch = made.batch(second, 0)
    terms = method.losses(batch)
    logits = method.model(batch.images, method.old_features(method.teacher(batch.images))).logits
    drawn = method.memory.draw(method.generator), method.memory.per_class
    whole = rehearsal_loss(*drawn, method.model.classifier, logits, batch.labels, second)
    assert terms["rehearsal"].item() == pytest.approx(0.5 * whole.item())
    gradients = torch.autograd.grad(
        terms["rehearsal"], list(method.model.parameters()), allow_unused=True, retain_graph=True
    )
    moved = {
        name
        for (name, _), gradient in zip(method.model.named_parameters(), gradients, strict=True)
        if gradient is not None and gradient.any()
    }
    assert "classifier.parts.0.weight" in moved and any(name.startswith("backbone.") for name in moved)
    pure = made.batch(second, 0, label=0)  # no new class: what is kept teaches the classifier alone
    kept = torch.autograd.grad(
        method.losses(pure)["rehearsal"], list(method.model.backbone.parameters()), allow_unused=True
    )
    assert all(gradient is None or not gradient.any() for gradient in kept)


def test_memory_fills_at_the_end_of_a_step_and_is_part_of_the_state() -> None:
    made, method, session, second = step_one(over=REHEARSAL)
    first = made.scenario.steps[0]
    rooms = 8 + 4 * (first.num_channels - 1), 4 * len(second.new)
    assert len(method.memory.labels) == sum(rooms)
    assert set(method.memory.labels[: rooms[0]].tolist()) - {EMPTY} <= set(range(first.num_channels))
    assert (method.memory.labels[: rooms[0]] != EMPTY).any() and (
        method.memory.labels[rooms[0] :] == EMPTY
    ).all()
    made.finish(session, second)
    filled = set(method.memory.labels[rooms[0] :].tolist()) - {EMPTY}
    assert filled and filled <= set(range(second.num_old, second.num_channels))
    again = made.method()
    for step in made.scenario.steps[:2]:
        again.grow(step)
    again.load_state_dict(method.state_dict(), strict=True)
    assert torch.equal(again.memory.features, method.memory.features)


def test_background_may_be_left_out_of_the_memory() -> None:
    made, method, _, second = step_one(over={"rehearsal": {**REHEARSAL["rehearsal"], "background": 0}})
    kept = {*method.memory.labels.tolist()} - {EMPTY}
    assert kept and 0 not in kept
    assert method.losses(made.batch(second, 0))["rehearsal"].isfinite()


def test_without_rehearsal_nothing_is_kept() -> None:
    _, method, _, _ = step_one()
    assert method.memory is None and not [name for name in method.state_dict() if "memory" in name]


# The layer as an addition to a bare network, and the weight of the distillation

ADDED = {"layer_since": 1}


@pytest.mark.parametrize("variant", LAYERED)
def test_layer_of_step_one_joins_a_bare_network(variant: str) -> None:
    made = bench(variant, ADDED)
    method = made.method()
    first, second, third = made.scenario.steps[:3]
    session = made.begin(method, first)
    made.train(session, first, range(2))
    assert method.model.fusion is None and CAF.start(made.params) == Start()
    made.finish(session, first)
    session = made.begin(method, second)
    assert method.model.fusion is not None and method.teacher.model.fusion is None
    before = {name: value.clone() for name, value in method.model.fusion.state_dict().items()}
    made.train(session, second, range(3))
    after = method.model.fusion.state_dict()
    assert any(not torch.equal(value, after[name]) for name, value in before.items()), "it is trained"
    made.finish(session, second)
    layer = method.model.fusion
    made.begin(method, third)
    assert method.model.fusion is layer and method.teacher.model.fusion is not None, "it is added once"


def test_default_layer_changes_nothing_when_it_is_added() -> None:
    made = bench(over=ADDED)
    method = made.method()
    first, second = made.scenario.steps[:2]
    session = made.begin(method, first)
    made.train(session, first, range(2))
    made.finish(session, first)
    images = made.batch(second, 0).images
    with torch.no_grad():
        before = method.model.eval()(images).features["h"]
        made.begin(method, second)
        old = method.teacher(images).features["z"]
        method.model.eval()
        torch.testing.assert_close(method.model(images).features["h"], before)
        torch.testing.assert_close(method.model(images, old).features["h"], before)


@pytest.mark.parametrize(
    ("dataset", "variant", "expected"),
    [("voc", "segue", (1.0, "growth")), ("scenes", "segue", (10.0, "channels"))]
    + [(dataset, variant, (10.0, "channels")) for dataset in ("voc", "scenes") for variant in VARIANTS[1:]],
)
def test_which_distillation_is_the_default(dataset: str, variant: str, expected: tuple) -> None:
    split = {"voc": "15-5", "scenes": "5-2"}[dataset]
    found = resolve("caf", dataset, split, overrides=[f"method.params.variant={variant}"]).method.params
    assert (found.kd_weight, found.kd_norm, found.layer_since) == (*expected, 0)


def test_step_zero_with_a_layer_is_its_own() -> None:
    assert "layer" in CAF.start(bench(over={"layer_since": 0}).params).model
    assert CAF.start(bench(over={"layer": NO_LAYER}).params) == Start()


@pytest.mark.parametrize(
    ("norm", "old", "new", "expected"),
    [
        ("growth", 15, 1, 3 * 16 * 4.0),
        ("growth", 15, 5, 3 * 16 * 2.0),
        ("growth", 2, 2, 3 * 3 * 2**0.5),
        ("channels", 15, 5, 3.0),
    ],
)
def test_weight_of_the_distillation(norm: str, old: int, new: int, expected: float) -> None:
    method = bench(over={"kd_norm": norm, "kd_weight": 3.0}).method()
    method.step = Step(1, tuple(range(old + 1, old + new + 1)), tuple(range(1, old + 1)))
    assert method.distillation_weight == pytest.approx(expected)


def test_growing_distillation_is_a_sum_over_channels() -> None:
    made, method, _, step = step_one(over={"kd_norm": "growth", "kd_weight": 1.0, "modality_dropout": 1.0})
    batch = made.batch(step, 0)
    out, old = method.model(batch.images), method.teacher(batch.images)
    mean = unbiased_distillation(out.logits, old.logits, size=batch.labels.shape[-2:])
    whole = mean * step.num_old * (len(step.seen) / len(step.new)) ** 0.5
    torch.testing.assert_close(method.losses(batch)["kd"], whole)
