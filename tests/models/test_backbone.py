"""Backbones by name, and weights from files: what fits is loaded whole, anything else is refused by name."""

import os
import pickle
import re
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from segue.core.backbones import SHORT_LIST
from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.models.backbone import build_backbone, read_state

State = dict[str, Tensor]
SUFFIXES = [".safetensors", ".pth"]
CLASSIFIERS = {
    "test_resnet": ("fc.",),
    "test_efficientnet": ("classifier.", "conv_head.", "bn2."),
    "test_convnext": ("head.", "norm_pre."),
}


def whole(name: str) -> nn.Module:
    """A classification model with weights unlike any fresh one's."""
    torch.manual_seed(1)
    model = timm.create_model(name)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) * 0.2 + 0.1)
    return model.eval()


def save(state: State, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file({name: value.contiguous() for name, value in state.items()}, path)
    else:
        torch.save(state, path)
    return path


def load(path: Path, name: str = "test_resnet", stride: int = 32) -> nn.Module:
    return build_backbone(ModelConfig(backbone=name, output_stride=stride, weights=str(path)))


def refusal(path: Path, name: str = "test_resnet") -> str:
    """The message that a file is refused with; it names the file."""
    with pytest.raises(UserError, match=re.escape(str(path))) as caught:
        load(path, name)
    return str(caught.value)


@pytest.fixture
def state() -> State:
    return whole("test_resnet").state_dict()


# Weights


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("with_classifier", [True, False])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_weight_is_loaded(tmp_path: Path, name: str, with_classifier: bool, suffix: str) -> None:
    state = whole(name).state_dict()
    kept = {key: value for key, value in state.items() if not key.startswith(CLASSIFIERS[name])}
    assert len(kept) < len(state)
    body = load(save(state if with_classifier else kept, tmp_path / f"w{suffix}"), name).body
    loaded = body.state_dict()
    assert len(loaded) >= len(kept) > 10
    for key, value in loaded.items():
        source = key if key in state else key.replace("_", ".", 1)
        assert torch.equal(value, state[source]), key
    if name == "test_convnext":
        assert any(key.startswith("stages_0.") for key in loaded)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_loaded_backbone_computes_what_the_model_does(tmp_path: Path, suffix: str, state: State) -> None:
    model, images = whole("test_resnet"), torch.randn(1, 3, 64, 64)
    backbone = load(save(state, tmp_path / f"w{suffix}")).eval()
    with torch.no_grad():
        torch.testing.assert_close(backbone(images)[-1], model.forward_features(images))


def test_dilated_backbone_takes_the_same_weights(tmp_path: Path, state: State) -> None:
    backbone = load(save(state, tmp_path / "w.pth"), stride=8)
    assert torch.equal(backbone.body.state_dict()["layer4.0.conv1.weight"], state["layer4.0.conv1.weight"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing_weight(tmp_path: Path, suffix: str, state: State) -> None:
    del state["layer2.0.conv1.weight"]
    assert "lacks 'layer2.0.conv1.weight'" in refusal(save(state, tmp_path / f"w{suffix}"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_unknown_weight(tmp_path: Path, suffix: str, state: State) -> None:
    state["layer9.weight"], state["layer9.bias"] = torch.ones(1), torch.ones(1)
    message = refusal(save(state, tmp_path / f"w{suffix}"))
    assert "'layer9.bias'" in message and "2 such entries" in message


def test_weights_of_another_backbone(tmp_path: Path) -> None:
    message = refusal(save(whole("test_convnext").state_dict(), tmp_path / "w.safetensors"))
    assert "not part of this backbone" in message


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", [lambda x: x.to(torch.int8), lambda x: x / 0, lambda x: x * torch.nan])
def test_numbers_that_no_network_can_use(tmp_path: Path, suffix: str, damage, state: State) -> None:
    state["conv1.0.weight"] = damage(state["conv1.0.weight"])
    assert "'conv1.0.weight' is torch." in refusal(save(state, tmp_path / f"w{suffix}"))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_wrong_shape(tmp_path: Path, suffix: str, state: State) -> None:
    state["conv1.0.weight"] = torch.zeros(1, 3, 7, 7)
    message = refusal(save(state, tmp_path / f"w{suffix}"))
    assert "'conv1.0.weight' has shape (1, 3, 7, 7)" in message


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kept", [0, 5, 0.5, 0.99])
def test_truncated_file(tmp_path: Path, suffix: str, kept: float, state: State) -> None:
    path = save(state, tmp_path / f"w{suffix}")
    content = path.read_bytes()
    path.write_bytes(content[: kept if isinstance(kept, int) else int(kept * len(content))])
    assert re.search("is not a readable state dict|is not opened", refusal(path))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_weights_at_all(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_text("not weights, just a text that happens to have this name\n" * 20)
    assert re.search("is not a readable state dict|is not opened", refusal(path))


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("plain", [False, True])
def test_code_in_a_file_is_not_run(tmp_path: Path, plain: bool, state: State) -> None:
    path, trap = tmp_path / "w.pth", Trap(tmp_path / "sprung")
    if plain:
        path.write_bytes(pickle.dumps({"conv1.weight": trap}))
    else:
        torch.save({**state, "conv1.weight": trap}, path)
    assert "holds more than weights" in refusal(path)
    assert not (tmp_path / "sprung").exists()
    if plain:  # the trap works
        pickle.loads(path.read_bytes())
        assert (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "content",
    [
        [torch.ones(1)],
        {"state_dict": {"conv1.weight": torch.ones(1)}},
        torch.ones(1),
        {0: torch.ones(1), "conv1.weight": torch.ones(1)},
    ],
)
def test_not_a_flat_state_dict(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pth")
    assert "flat state dict" in refusal(tmp_path / "w.pth")


def test_missing_file(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere.pth")
    assert "does not exist" in refusal(tmp_path)  # a folder is no file


def test_home_folder_is_understood(tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save(state, tmp_path / "w.pth")
    assert torch.equal(load(Path("~/w.pth")).body.conv1[0].weight, state["conv1.0.weight"])


def test_read_state_gives_the_tensors(tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        stored = read_state(save({"a": torch.arange(3)}, tmp_path / f"w{suffix}"))
        assert list(stored) == ["a"] and stored["a"].tolist() == [0, 1, 2]


# Names and strides


@pytest.mark.parametrize(
    ("wrong", "near"), [("resnet1o1", "resnet101"), ("tinny", "tiny"), ("convnext_tinny", "convnext_tiny")]
)
def test_unknown_backbone_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UserError, match=f"no backbone '{wrong}'. Did you mean '{near}'"):
        build_backbone(ModelConfig(backbone=wrong))


def test_short_list_names_real_backbones() -> None:
    assert set(SHORT_LIST) - {"tiny"} <= set(timm.list_models())


@pytest.mark.parametrize("stride", [16, 32])
def test_tiny_has_one_stride(stride: int) -> None:
    with pytest.raises(UserError, match=r"output stride 8: set model\.output_stride=8"):
        build_backbone(ModelConfig(backbone="tiny", output_stride=stride))


@pytest.mark.parametrize("setting", [{"weights": "w.pth"}, {"pretrained": True}])
def test_tiny_has_no_weights(setting: dict) -> None:
    with pytest.raises(UserError, match="no pretrained weights"):
        build_backbone(ModelConfig(backbone="tiny", output_stride=8, **setting))


def test_backbone_that_cannot_have_the_stride() -> None:
    with pytest.raises(UserError, match="vgg11 cannot give feature maps at output stride 16"):
        build_backbone(ModelConfig(backbone="vgg11", output_stride=16))
    with pytest.raises(UserError, match=r"output stride 16, not 32: set model\.output_stride=16"):
        build_backbone(ModelConfig(backbone="test_vit", output_stride=32))


def test_backbone_with_another_stride_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda name, **options: create(name, **(options | {"output_stride": 32}))
    )
    with pytest.raises(UserError, match=r"output stride 32, not 16: set model.output_stride=32"):
        build_backbone(ModelConfig(backbone="test_resnet", output_stride=16))


def test_weights_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr("segue.models._hub._is_found", lambda _: False)
    with pytest.raises(UserError, match=r"test_resnet could not be fetched: no network.*model.weights=FILE"):
        build_backbone(ModelConfig(backbone="test_resnet", pretrained=True))


def test_backbone_that_takes_no_stride_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def without_stride(name: str, **options: object) -> nn.Module:
        if "output_stride" in options:
            raise TypeError("unexpected keyword argument 'output_stride'")
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", without_stride)
    assert build_backbone(ModelConfig(backbone="test_resnet", output_stride=32)).channels
    with pytest.raises(UserError, match="cannot give feature maps at output stride 16"):
        build_backbone(ModelConfig(backbone="test_resnet", output_stride=16))


# Stages


@pytest.mark.parametrize(
    ("name", "stages", "stride"),
    [
        ("test_resnet", 3, 8),
        ("test_resnet", 4, 8),
        ("test_efficientnet", 4, 16),
        ("test_efficientnet", 4, 8),
        ("mobilenetv2_100", 4, 8),
        ("test_convnext", 3, 16),
    ],
)
def test_fewer_stages_are_the_first_of_all(tmp_path: Path, name: str, stages: int, stride: int) -> None:
    """Their maps are those of the uncut backbone bit for bit, and what comes after them is gone."""
    path = save(whole(name).state_dict(), tmp_path / "w.safetensors")
    config = ModelConfig(backbone=name, output_stride=stride, weights=str(path))
    uncut = build_backbone(config).eval()
    cut = build_backbone(ModelConfig(**{**vars(config), "stages": stages})).eval()
    assert cut.channels == uncut.channels[:stages]
    with torch.no_grad():
        images = torch.rand(2, 3, 64, 64)
        maps, all_maps = cut(images), uncut(images)
    assert len(maps) == stages
    for ours, theirs in zip(maps, all_maps, strict=False):
        assert torch.equal(ours, theirs)
    cut(images)[-1].sum().backward()
    unused = [key for key, parameter in cut.named_parameters() if parameter.grad is None]
    assert unused == [], "nothing is left that no map needs"
    assert sum(p.numel() for p in cut.parameters()) < 0.75 * sum(p.numel() for p in uncut.parameters())


def test_frozen_stages_of_fewer_stages() -> None:
    backbone = build_backbone(ModelConfig(backbone="mobilenetv2_100", output_stride=8, stages=4))
    frozen = {id(p) for module in backbone.first_stages(3) for p in module.parameters()}
    trained = [key for key, p in backbone.named_parameters() if id(p) not in frozen]
    assert 0 < len(trained) < len(list(backbone.parameters()))
    assert all(key.startswith(("body.blocks.3.", "body.blocks.4.")) for key in trained)
    with pytest.raises(UserError, match=r"model\.frozen_stages is 5, but the backbone has 4 stages"):
        backbone.first_stages(5)


@pytest.mark.parametrize("name", ["mobilenetv2_100", "test_efficientnet", "test_resnet", "test_convnext"])
def test_all_stages_are_used_if_none_is_said(name: str) -> None:
    plain = timm.create_model(name, features_only=True, output_stride=32)
    backbone = build_backbone(ModelConfig(backbone=name, output_stride=32))
    assert list(backbone.body.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize(
    ("name", "stages", "stride", "message"),
    [
        ("test_resnet", 6, 16, "model.stages is 6, but the backbone test_resnet has 5 stages."),
        ("test_convnext", 5, 16, "model.stages is 5, but the backbone test_convnext has 4 stages."),
        ("vgg11", 3, 8, "The backbone vgg11 cannot give feature maps at output stride 8."),
        (
            "test_resnet",
            3,
            16,
            "test_resnet with 3 stages has output stride 8, not 16: set model.output_stride=8",
        ),
        ("test_resnet", 2, 8, "with 2 stages has output stride 4, not 8: use more model.stages."),
        ("tiny", 2, 8, "The backbone tiny is used whole: drop model.stages."),
    ],
)
def test_wrong_number_of_stages(name: str, stages: int, stride: int, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        build_backbone(ModelConfig(backbone=name, output_stride=stride, stages=stages))


@pytest.mark.parametrize(("name", "stride"), [("swin_tiny_patch4_window7_224", 32), ("test_vit", 16)])
def test_transformers_give_maps_of_any_crop(name: str, stride: int) -> None:
    """Swin has its channels last, ViT has tokens, and both were made for one size."""
    backbone = build_backbone(ModelConfig(backbone=name, output_stride=stride, pretrained=False)).eval()
    with torch.no_grad():
        maps = backbone(torch.zeros(1, 3, 96, 160))
    assert [each.shape[1] for each in maps] == list(backbone.channels)
    assert maps[-1].shape[-2:] == (96 // stride, 160 // stride)
