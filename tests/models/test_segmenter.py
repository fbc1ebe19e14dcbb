"""Segmenter and Teacher: strides, inputs, freezing, structure."""

import copy

import pytest
import torch
from torch import Tensor, nn

from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.core.scenario import Step
from segue.models.caf import CafLayer
from segue.models.segmenter import Segmenter, Teacher

FAMILIES = ["test_resnet", "test_efficientnet", "test_convnext"]
"""batch norm; batch norm with its activation inside; layer norm and a scale per block"""
FIRST, SECOND = Step(0, (1, 2)), Step(1, (3, 4, 5), (1, 2))


def segmenter(
    backbone: str = "tiny", stride: int = 8, frozen: int = 0, steps: tuple[Step, ...] = (FIRST,)
) -> Segmenter:
    torch.manual_seed(0)
    config = ModelConfig(backbone=backbone, head="tiny", output_stride=stride, frozen_stages=frozen)
    model = Segmenter(config)
    for step in steps:
        model.grow(step, balanced=False)
    return model


def pictures(height: int = 64, width: int = 96, count: int = 2) -> Tensor:
    shape, generator = (count, 3, height, width), torch.Generator().manual_seed(1)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


# Output


@pytest.mark.parametrize("backbone", FAMILIES)
@pytest.mark.parametrize("stride", [8, 16, 32])
def test_logits_come_at_the_output_stride(backbone: str, stride: int) -> None:
    model = segmenter(backbone, stride).eval()
    with torch.no_grad():
        out = model(pictures(64, 96))
    size = (64 // stride, 96 // stride)
    assert out.logits.shape == (2, 3, *size)
    channels = model.backbone.channels
    assert {name: tuple(f.shape) for name, f in out.features.items()} == {
        "z": (2, channels[-1], *size),
        "z_fused": (2, channels[-1], *size),
        "h": (2, 64, *size),
    }
    assert [stage.shape[1] for stage in out.stages] == list(channels)
    assert out.stages[-1] is out.features["z"]


def test_tiny_has_stride_8() -> None:
    with torch.no_grad():
        out = segmenter().eval()(pictures(50, 71))
    assert out.logits.shape == (2, 3, 7, 9)  # rounded up
    assert [stage.shape[1] for stage in out.stages] == [24, 48, 64, 96]


def test_without_a_fusion_layer_z_passes() -> None:
    out = segmenter().eval()(pictures())
    assert out.features["z_fused"] is out.features["z"]


def test_old_features_go_to_the_fusion_layer() -> None:
    class Add(nn.Module):
        def forward(self, z: Tensor, old_z: Tensor | None) -> Tensor:
            return z if old_z is None else z + old_z

    model = segmenter().eval()
    model.fusion = Add()
    with torch.no_grad():
        plain = model(pictures())
        fused = model(pictures(), torch.ones_like(plain.features["z"]))
    torch.testing.assert_close(fused.features["z_fused"], plain.features["z"] + 1)
    torch.testing.assert_close(fused.features["z"], plain.features["z"])
    assert not torch.allclose(fused.logits, plain.logits)


# Input


@pytest.mark.parametrize("backbone", ["tiny", "test_resnet"])
def test_uint8_and_float_pictures_agree(backbone: str) -> None:
    model, images = segmenter(backbone, 8).eval(), pictures()
    with torch.no_grad():
        assert torch.equal(model(images).logits, model(images.float()).logits)


@pytest.mark.parametrize(
    ("backbone", "mean", "std"),
    [
        ("tiny", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
        ("test_resnet", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("test_efficientnet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ],
)
def test_pictures_are_normalised_as_the_backbone_wants(
    backbone: str, mean: tuple[float, ...], std: tuple[float, ...]
) -> None:
    model = segmenter(backbone, 8).eval()
    entered: list[Tensor] = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    images = pictures(32, 32)
    with torch.no_grad():
        model(images)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(entered[0][:, channel].double(), expected, rtol=0, atol=1e-5)


# Structure


def test_grows_by_the_classes_of_a_step_and_background_once() -> None:
    model = segmenter(steps=())
    assert sum(model.classifier.sizes) == 0
    model.grow(FIRST, balanced=False)
    assert sum(model.classifier.sizes) == FIRST.num_channels == 3
    model.grow(SECOND, balanced=True)
    assert sum(model.classifier.sizes) == SECOND.num_channels == 6


def test_growing_looks_at_the_new_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step passes through all earlier ones: what looked at all parts each time grew with their square."""
    model, looked, apply = segmenter(), [0], nn.Module._apply

    def counted(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        looked[-1] += 1
        return apply(self, *args, **kwargs)

    monkeypatch.setattr(nn.Module, "_apply", counted)
    for index in range(1, 20):
        looked.append(0)
        model.grow(Step(index, (index + 2,), tuple(range(1, index + 2))), balanced=True)
    assert len(model.classifier.parts) == 20
    assert 0 < looked[1] == looked[-1]


def test_weights_fit_a_model_grown_the_same_way_only() -> None:
    model = segmenter(steps=(FIRST, SECOND)).eval()
    model.refiner.norm[0].running_mean.add_(1)
    torch.manual_seed(5)
    same = Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8)).eval()
    same.grow(FIRST, balanced=False)
    same.grow(SECOND, balanced=False)
    with torch.no_grad():
        assert not torch.allclose(same(pictures()).logits, model(pictures()).logits)
        same.load_state_dict(model.state_dict(), strict=True)
        assert torch.equal(same(pictures()).logits, model(pictures()).logits)
    with pytest.raises(RuntimeError, match=r"classifier\.parts\.1"):
        segmenter(steps=(FIRST,)).load_state_dict(model.state_dict(), strict=True)
    fused = segmenter(steps=(FIRST, SECOND))
    fused.fusion = CafLayer(96)
    with pytest.raises(RuntimeError, match=r"fusion\.spatial"):
        fused.load_state_dict(model.state_dict(), strict=True)


def test_mean_and_std_are_no_weights() -> None:
    assert not {"mean", "std"} & set(segmenter().state_dict())


# Freezing


@pytest.mark.parametrize(("backbone", "stride"), [("tiny", 8), *((name, 16) for name in FAMILIES)])
@pytest.mark.parametrize("frozen", [1, 2, "all"])
def test_frozen_stages_neither_train_nor_gather_statistics(
    backbone: str, stride: int, frozen: int | str
) -> None:
    if frozen == "all":
        frozen = len(segmenter(backbone, stride).backbone.channels)
    model = segmenter(backbone, stride, frozen).eval()
    with torch.no_grad():
        quiet = model(pictures()).stages
    state = {name: value.clone() for name, value in model.state_dict().items()}
    out = model.train()(pictures())
    last = len(out.stages) - 1
    for number, (stage, before) in enumerate(zip(out.stages, quiet, strict=True)):
        if number < frozen:  # no gradients, and the same in training as in testing
            assert not stage.requires_grad, f"stage {number}"
            assert torch.equal(stage, before), f"stage {number}"
        else:
            assert stage.requires_grad, f"stage {number}"
    out.logits.square().mean().backward()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    optimizer.step()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
    with torch.no_grad():
        after = model.eval()(pictures()).stages
    assert all(torch.equal(after[number], quiet[number]) for number in range(frozen))
    assert any(name.startswith("refiner.") for name in moved)
    if frozen <= last:
        assert not torch.equal(after[last], quiet[last])
        assert any(name.startswith("backbone.") for name in moved)
    else:
        assert not any(name.startswith("backbone.") for name in moved)


def test_without_frozen_stages_the_whole_backbone_trains() -> None:
    assert all(p.requires_grad for p in segmenter("test_convnext", 16).parameters())


@pytest.mark.parametrize(("backbone", "stages"), [("tiny", 4), ("test_resnet", 5)])
def test_more_frozen_stages_than_there_are(backbone: str, stages: int) -> None:
    message = f"frozen_stages is {stages + 1}, but the backbone has {stages} stages"
    with pytest.raises(UserError, match=message):
        segmenter(backbone, 8, stages + 1)


def test_frozen_blocks_are_those_of_the_next_stage() -> None:
    config = ModelConfig(backbone="resnet18", head="tiny", output_stride=16, frozen_stages=4, frozen_blocks=1)
    body = Segmenter(config).train().backbone.body
    assert {name for name, p in body.named_parameters() if p.requires_grad} == {
        f"layer4.1.{name}" for name, _ in body.layer4[1].named_parameters()
    }
    assert [norm.training for norm in (body.layer4[0].bn1, body.layer4[1].bn1)] == [False, True]


def test_blocks_are_counted_over_all_sequences_of_a_stage() -> None:
    """Stage 4 of MobileNetV2 has two sequences: one of four blocks, one of three."""
    config = ModelConfig(
        backbone="mobilenetv2_100", head="tiny", output_stride=16, frozen_stages=3, frozen_blocks=2
    )
    blocks = Segmenter(config).backbone.body.blocks
    trained = [[all(p.requires_grad for p in block.parameters()) for block in part] for part in blocks]
    assert [len(part) for part in trained[:3]] == [1, 2, 3] and not any(map(any, trained[:3]))
    assert trained[3] == [False, False, True, True] and all(trained[4])


@pytest.mark.parametrize(
    ("backbone", "stride", "stages", "blocks", "message"),
    [
        ("resnet18", 16, 4, 2, "stage 5 of the backbone has 2: set at most 1"),
        ("resnet18", 16, 5, 1, "all stages are frozen: set it to 0"),
        ("resnet18", 16, 0, 1, "stage 1 of the backbone has 0: set at most 0"),
        ("mobilenetv2_100", 16, 3, 7, "stage 4 of the backbone has 7: set at most 6"),
        ("tiny", 8, 1, 1, "tiny have no blocks"),
    ],
)
def test_more_frozen_blocks_than_there_are(
    backbone: str, stride: int, stages: int, blocks: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Segmenter(
            ModelConfig(
                backbone=backbone,
                head="tiny",
                output_stride=stride,
                frozen_stages=stages,
                frozen_blocks=blocks,
            )
        )


def test_stages_without_a_place_cannot_be_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = segmenter("test_resnet", 8).backbone
    monkeypatch.setattr(backbone.body.feature_info, "module_name", lambda: ["nowhere"] * 5)
    assert backbone.first_stages(0) == []
    with pytest.raises(UserError, match=r"frozen_stages.*to 0"):
        backbone.first_stages(1)


def test_a_frozen_part_stays_frozen_in_a_copy() -> None:
    model = copy.deepcopy(segmenter(frozen=2)).train()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert [norm.training for norm in norms[:4]] == [False, False, True, True]


@pytest.mark.parametrize(("backbone", "stride"), [("tiny", 8), *((name, 16) for name in FAMILIES)])
def test_frozen_stages_keep_nothing_for_a_way_back(backbone: str, stride: int) -> None:
    images = pictures(64, 64)

    def kept(frozen: int) -> set[tuple[int, ...]]:
        """Shapes of the maps that the backbone keeps for its backward pass."""
        model, shapes = segmenter(backbone, stride, frozen).train(), set()

        def keep(tensor: Tensor) -> Tensor:
            if tensor.dim() == 4 and len(tensor) == len(images):  # a map, not a weight
                shapes.add(tuple(tensor.shape))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model.encode(images)
        return shapes

    stages = len(segmenter(backbone, stride).backbone.channels)
    assert tuple(images.shape) in kept(0), "for the first convolution"
    assert kept(1) and tuple(images.shape) not in kept(1)
    assert kept(stages) == set()


@pytest.mark.parametrize("backbone", ["tiny", "test_efficientnet"])
def test_frozen_norm_survives_train(backbone: str) -> None:
    model = segmenter(backbone, 8)
    model.norm_frozen = True
    nn.Sequential(model).eval().train()  # as part of something larger
    assert model.training and model.refiner.training
    statistics = {name: value.clone() for name, value in model.named_buffers()}
    out = model(pictures())
    assert all(torch.equal(value, statistics[name]) for name, value in model.named_buffers())
    out.logits.square().mean().backward()
    assert all(p.grad is not None for p in model.parameters())  # norms still learn scale and shift
    model.norm_frozen = False
    model.train()(pictures())
    changed = [name for name, value in model.named_buffers() if not torch.equal(value, statistics[name])]
    assert any(name.endswith("running_mean") for name in changed)


# Teacher


def test_teacher_gives_what_the_model_gave() -> None:
    model = segmenter().train()
    teacher = Teacher(copy.deepcopy(model))
    with torch.no_grad():
        expected = model.eval()(pictures())
    model.train()
    out = teacher(pictures())
    torch.testing.assert_close(out.logits, expected.logits)
    assert set(out.features) == {"z", "z_fused", "h"}
    torch.testing.assert_close(out.features, expected.features)
    assert model.training


def test_teacher_hands_out_stages_on_request() -> None:
    teacher = Teacher(segmenter())
    assert teacher(pictures()).stages == []
    stages = teacher(pictures(), stages=4).stages
    assert [stage.shape[1] for stage in stages] == [24, 48, 64, 96]
    assert not any(stage.is_inference() for stage in stages)


def test_teacher_outputs_are_constants_that_autograd_may_keep() -> None:
    model = segmenter()
    teacher = Teacher(copy.deepcopy(model))
    old, new = teacher(pictures()), model.train()(pictures())
    for tensor in (old.logits, *old.features.values()):
        assert not tensor.requires_grad and not tensor.is_inference()
    loss = (new.logits * old.logits).sum() + sum(
        (new.features[n] * old.features[n]).sum() for n in old.features
    )
    loss.backward()  # a product keeps both factors for the way back
    assert all(p.grad is not None for p in model.parameters())
    assert all(p.grad is None and not p.requires_grad for p in teacher.model.parameters())


def test_teacher_does_not_follow_the_student() -> None:
    model = segmenter()
    teacher = Teacher(copy.deepcopy(model))
    before = teacher(pictures()).logits
    model.train()(pictures()).logits.square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    model.grow(SECOND, balanced=True)
    after = teacher(pictures()).logits
    assert torch.equal(after, before) and after.shape[1] == 3
    assert model(pictures()).logits.shape[1] == 6


def test_teacher_is_no_part_of_a_module_that_holds_it() -> None:
    holder = nn.Module()
    holder.teacher = Teacher(segmenter())
    assert not list(holder.parameters()) and not holder.state_dict()
