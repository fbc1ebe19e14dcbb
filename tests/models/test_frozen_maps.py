"""A backbone that begins after its frozen stages gives what the whole backbone gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.models._speed.frozen import FrozenPart, known_maps
from segue.models.segmenter import Segmenter, Teacher

pytestmark = pytest.mark.precision("float64")
NETWORKS = [
    *(("tiny", count, 8, None, 0) for count in (1, 2, 4)),
    *(("mobilenetv2_100", count, 8, 4, 0) for count in (1, 3, 4)),
    *(("resnet18", count, 16, None, 0) for count in (1, 2, 5)),
    ("efficientnet_lite0", 3, 16, None, 0),
    *(("resnet18", count, 16, None, 1) for count in (1, 4)),
    ("mobilenetv2_100", 3, 16, None, 2),
]


def images(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (2, 3, 64, 64), generator=generator, dtype=torch.uint8)


def network(
    backbone: str = "tiny", count: int = 2, stride: int = 8, stages: int | None = None, blocks: int = 0
) -> Segmenter:
    torch.manual_seed(0)
    model = Segmenter(
        ModelConfig(
            backbone=backbone,
            head="tiny",
            output_stride=stride,
            stages=stages,
            frozen_stages=count,
            frozen_blocks=blocks,
        )
    )
    model.grow(Step(index=0, new=(1, 2)), balanced=False)
    model.norm_frozen = True
    return model.train()


@pytest.mark.parametrize(("backbone", "count", "stride", "stages", "blocks"), NETWORKS)
@pytest.mark.parametrize("every", [False, True])
def test_outputs_and_gradients_are_those_of_the_whole(backbone, count, stride, stages, blocks, every) -> None:
    model, pictures, found = network(backbone, count, stride, stages, blocks), images(), []
    assert model.begins_after_frozen
    for maps in ((), model.frozen_maps(pictures, every)):
        model.zero_grad()
        with known_maps(pictures, maps):
            out = model(pictures)
        out.logits.square().sum().backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        found.append((out, grads))
    (whole, grads), (begun, ours) = found
    known = count if blocks else count - 1  # a block inside a stage is no stage
    assert len(begun.stages) == len(whole.stages) - (0 if every else known)
    for one, other in zip(begun.stages[::-1], whole.stages[::-1], strict=False):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    assert ours.keys() == grads.keys()
    for name in grads:
        torch.testing.assert_close(ours[name], grads[name], rtol=1e-9, atol=1e-9)


def frozen_calls(model: Segmenter) -> list[None]:
    """Grows with every use of the first convolution."""
    calls: list[None] = []
    first = next(module for module in model.backbone.modules() if isinstance(module, nn.Conv2d))
    first.register_forward_hook(lambda *_: calls.append(None))
    return calls


def test_student_and_teacher_share_what_is_known() -> None:
    model = network()
    teacher, pictures = Teacher(network()), images()
    expected = teacher(pictures).logits
    maps = model.frozen_maps(pictures)
    calls = [frozen_calls(model), frozen_calls(teacher.model)]
    with known_maps(pictures, maps):
        model(pictures)
        found = teacher(pictures).logits
    assert calls == [[], []]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_other_images_go_through_the_whole() -> None:
    model, pictures = network(), images()
    calls = frozen_calls(model)
    with known_maps(pictures, (torch.zeros(2, 48, 16, 16),)):
        for other in (images(1), pictures.clone(), pictures[:1]):
            model(other)
    model(pictures)
    assert len(calls) == 4


class Strange(nn.Module):
    """A backbone with an operation between its stages that is no module."""

    channels = (3, 3)

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.one, self.two, self.scale = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), scale

    def forward(self, x: Tensor) -> list[Tensor]:
        first = self.one(x) * self.scale
        return [first, self.two(first)]

    def first_stages(self, count: int) -> list[nn.Module]:
        return [self.one, self.two][:count]


@pytest.mark.parametrize(("scale", "possible"), [(1.0, True), (2.0, False)])
def test_a_backbone_is_tried_before_it_is_trusted(scale: float, possible: bool) -> None:
    backbone = Strange(scale)
    assert FrozenPart(backbone, 1).fits(backbone) is possible
    assert not FrozenPart(backbone, 0).fits(backbone)


@pytest.mark.parametrize("every", [False, True])
def test_statistics_of_what_is_trained_stay(every: bool) -> None:
    model = network()
    model.norm_frozen = False
    before = {name: value.clone() for name, value in model.train().state_dict().items()}
    model.frozen_maps(images(), every)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
