"""Folded norms: the same maps and gradients, less to remember, nothing folded that alters what comes out."""

from __future__ import annotations

import copy
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.models._speed.fold import TOLERANCE, fold_norms, link_norms, unlink_norms
from segue.models.segmenter import Segmenter, Teacher

BACKBONES = {
    "tiny": 8,
    "test_resnet": 16,
    "test_efficientnet": 16,
    "test_convnext": 16,
    "mobilenetv2_100": 16,
    "tf_efficientnet_lite0": 8,
    "resnet18": 16,
}
"""name -> output stride"""


def norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def shaken(model: nn.Module) -> nn.Module:
    """Norms as after training: statistics, scales and shifts that are not those of the start."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for norm in norms(model):
            norm.running_mean.copy_(torch.randn(norm.num_features, generator=generator) / 5)
            norm.running_var.copy_(torch.rand(norm.num_features, generator=generator) + 0.5)
            norm.weight.copy_(torch.rand(norm.num_features, generator=generator) + 0.5)
            norm.bias.copy_(torch.randn(norm.num_features, generator=generator) / 5)
    return model.eval()


def segmenter(backbone: str = "tiny", stride: int = 8) -> Segmenter:
    torch.manual_seed(0)
    model = Segmenter(ModelConfig(backbone=backbone, head="tiny", output_stride=stride))
    model.grow(Step(0, (1, 2)), balanced=False)
    return shaken(model.to(memory_format=torch.channels_last))


def pictures(size: int = 80) -> Tensor:
    return torch.randint(0, 256, (2, 3, size, size), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("backbone", "dtype", "tolerance"),
    [*((name, torch.float64, 1e-12) for name in BACKBONES), ("mobilenetv2_100", torch.float32, TOLERANCE)],
)
def test_a_folded_teacher_gives_the_same_maps(backbone: str, dtype: torch.dtype, tolerance: float) -> None:
    model = segmenter(backbone, BACKBONES[backbone]).to(dtype)
    teacher = Teacher(copy.deepcopy(model))
    # one norm stays: that of the sum of two convolutions in the head
    assert norms(teacher.model) == [teacher.model.refiner.norm[0]]
    assert len(norms(model)) > 1, "the model itself is left alone"
    with torch.no_grad():
        expected = model(pictures())
    out = teacher(pictures(), stages=len(expected.stages))
    pairs = [(out.logits, expected.logits), *zip(out.stages, expected.stages, strict=True)]
    pairs += [(out.features[name], expected.features[name]) for name in expected.features]
    for ours, theirs in pairs:
        assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


def test_folding_draws_no_random_numbers_and_is_always_the_same() -> None:
    model, state = segmenter("test_efficientnet", 16), torch.get_rng_state()
    first, second = (Teacher(copy.deepcopy(model)).model.state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(("backbone", "stride"), BACKBONES.items())
def test_a_student_with_fixed_statistics_is_folded_too(backbone: str, stride: int) -> None:
    """The same maps and gradients as with norms, to the last digits of float64."""
    model = segmenter(backbone, stride).double()
    plain = copy.deepcopy(model)
    unlink_norms(plain)
    for each in (model, plain):
        each.norm_frozen = True
        each.train()
    found, expected = (
        {name: p.grad for name, p in trained(each).named_parameters()} for each in (model, plain)
    )
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).abs().max() <= 1e-10 * gradient.abs().max().clamp_min(1e-30), name


def trained(model: Segmenter) -> Segmenter:
    out = model(pictures())
    weights = torch.randn(
        out.logits.shape, generator=torch.Generator().manual_seed(2), dtype=out.logits.dtype
    )
    (out.logits * weights).sum().backward()
    return model


def test_the_student_starts_as_its_teacher_bit_for_bit() -> None:
    """A distance of norms has a gradient of full length wherever it is not exactly zero."""
    model = segmenter("test_efficientnet", 16)
    model.norm_frozen = True
    student, teacher = model.train()(pictures()), Teacher(copy.deepcopy(model))(pictures(), stages=2)
    assert torch.equal(student.features["h"], teacher.features["h"])
    assert all(torch.equal(a, b) for a, b in zip(student.stages[-2:], teacher.stages, strict=True))


def test_folding_keeps_fewer_maps() -> None:
    model = segmenter()
    model.norm_frozen = True
    model.train()
    plain = copy.deepcopy(model)
    unlink_norms(plain)
    kept = []
    for each in (model, plain):
        sizes: dict[int, int] = {}
        weights = {p.untyped_storage().data_ptr() for p in each.parameters()}

        def note(tensor: Tensor, sizes: dict[int, int] = sizes, weights: set[int] = weights) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            out = each(pictures(256))
        kept.append(sum(sizes.values()))
        del out
    assert kept[0] < 0.75 * kept[1]


def test_norms_in_training_work_as_ever() -> None:
    model = segmenter()
    plain = copy.deepcopy(model)
    unlink_norms(plain)
    found, expected = (each.train()(pictures()).logits for each in (model, plain))
    assert torch.equal(found, expected)
    for (name, ours), theirs in zip(model.named_buffers(), plain.buffers(), strict=True):
        assert torch.equal(ours, theirs), name
    assert not torch.equal(model.eval()(pictures()).logits, found)


def test_linking_leaves_no_trace() -> None:
    torch.manual_seed(0)
    model = Odd()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    link_norms(model, lambda images: [model(images)])
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_copies_have_weights_of_their_own() -> None:
    model = segmenter()
    twin = copy.deepcopy(model)
    expected = model(pictures()).logits
    with torch.no_grad():
        for norm in norms(twin):
            norm.weight.mul_(2)
    assert torch.equal(model(pictures()).logits, expected)
    assert not torch.equal(twin(pictures()).logits, expected)


def test_a_teacher_is_gone_when_nobody_needs_it() -> None:
    """At once: the next one would not fit beside it."""
    model = segmenter()
    model.checkpoint()
    teacher = Teacher(copy.deepcopy(model))
    kept = [weakref.ref(parameter) for parameter in teacher.model.parameters()]
    gc.disable()
    try:
        del teacher
        assert not any(reference() is not None for reference in kept)
    finally:
        gc.enable()


def test_weights_stay_channels_last() -> None:
    folded = Teacher(segmenter()).model.backbone.stages[1][0].weight
    assert folded.is_contiguous(memory_format=torch.channels_last) and not folded.is_contiguous()


class Odd(nn.Module):
    """A plain pair; a convolution whose output goes elsewhere, too; a norm after an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.plain_norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.shared, self.shared_norm = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.late, self.late_norm = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.plain_norm(self.plain(x / 255)).relu()
        x = self.shared(x)
        x = (self.shared_norm(x) + x).relu()
        return self.late_norm(self.late(x).relu())


def test_what_alters_the_maps_is_left_alone() -> None:
    torch.manual_seed(0)
    model = shaken(Odd())
    folded = copy.deepcopy(model)
    link_norms(folded, lambda images: [folded(images)])
    with torch.no_grad():
        torch.testing.assert_close(folded(pictures()), model(pictures()))
    fold_norms(folded)
    assert isinstance(folded.plain_norm, nn.Identity)
    assert norms(folded) == [folded.shared_norm, folded.late_norm]
    assert torch.equal(folded.shared.weight, model.shared.weight) and folded.shared.bias is not None
    with torch.no_grad():
        torch.testing.assert_close(folded(pictures()), model(pictures()))


class Shared(nn.Module):
    """A convolution or a norm that has several partners, and a plain pair."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(3, 8, 3, padding=1)
        self.norm, self.other = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.late, self.late_norm = nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
        self.statistics = nn.BatchNorm2d(4, track_running_stats=False)

    def forward(self, images: Tensor) -> Tensor:
        x = images / 255
        if self.kind == "conv":
            y = self.norm(self.first(x)) + self.other(self.first(1 - x))
        elif self.kind == "output":
            y = self.first(x)
            y = self.norm(y) * self.other(y)
        elif self.kind == "norm":
            y = self.norm(self.first(x)) * self.norm(self.second(x))
        else:
            y = self.norm(self.first(x)) * self.norm(self.first(1 - x))
        return self.late_norm(self.late(y)) + self.statistics(self.late(y.relu()))


@pytest.mark.parametrize("kind", ["conv", "output", "norm", "twice"])
def test_modules_with_several_partners(kind: str) -> None:
    torch.manual_seed(0)
    model = Shared(kind).eval()
    with torch.no_grad():
        expected = model(pictures())
        link_norms(model, lambda images: [model(images)])
        torch.testing.assert_close(model(pictures()), expected)
    linked = [name for name, module in model.named_modules() if "forward" in module.__dict__]
    assert linked == (["first", "norm"] if kind == "twice" else [])  # `late` goes to no norm once


def test_threads_do_not_disturb_each_other() -> None:
    model = segmenter()
    images = [pictures(size) for size in (32, 48, 64, 80)]
    with torch.no_grad():
        expected = [model(each).logits for each in images]

    def run(number: int) -> bool:
        with torch.no_grad():
            return torch.equal(model(images[number % 4]).logits, expected[number % 4])

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(80)))


@pytest.mark.parametrize("reason", ["size", "nan"])
def test_a_network_that_cannot_be_tried_stays_as_it_is(reason: str) -> None:
    model = shaken(Odd())
    if reason == "nan":
        nn.init.constant_(model.plain.weight, float("nan"))

    def maps(images: Tensor) -> list[Tensor]:
        if reason == "size" and images.shape[-1] != 224:
            raise AssertionError("224 pixels are wanted")
        return [model(images)]

    link_norms(model, maps)
    fold_norms(model)
    assert len(norms(model)) == 3
