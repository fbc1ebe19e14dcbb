"""Model files: the same predictions again, nothing that only training needs, and clear words for bad ones."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import save

from segue.core.config import ModelConfig
from segue.core.errors import UserError
from segue.deploy.model_file import FORMAT, load_model, save_model
from segue.models import backbone
from segue.models.caf import CafLayer, LayerConfig
from segue.models.classifier import CLASSIFIERS
from segue.models.segmenter import Segmenter

TINY = ModelConfig(backbone="tiny", head="tiny", output_stride=8)
ABOUT = {
    "model": {"backbone": "tiny", "head": "tiny", "output_stride": 8},
    "layer": None,
    "classifier": "linear",
    "parts": [2, 1],
    "classes": ["background", "a", "b"],
}


def a_model(layer: LayerConfig | None = None, classifier: str = "linear") -> Segmenter:
    torch.manual_seed(0)
    model = Segmenter(TINY)
    model.classifier = CLASSIFIERS[classifier](model.classifier.in_channels)
    if layer is not None:
        model.fusion = CafLayer(model.backbone.channels[-1], layer)
    for channels in ABOUT["parts"]:
        model.classifier.grow(channels, balanced=False)
    with torch.no_grad():  # no two weights are equal, and running statistics are not those of the start
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.copy_(torch.rand_like(value) * 0.2 + 0.01)
    return model.eval()


@pytest.mark.parametrize(
    "layer",
    [
        None,
        LayerConfig(fusion=False),
        LayerConfig(fusion=False, projection=False, spatial="energy"),
        LayerConfig(fusion=False, output="norm", carrier="z", residual=False, pool="none", channel="linear"),
    ],
)
def test_model_predicts_the_same_after_a_round_trip(layer, tmp_path):
    round_trip(a_model(layer), tmp_path)


def test_model_with_an_unknown_predicts_the_same_after_a_round_trip(tmp_path):
    again = round_trip(a_model(classifier="unknown"), tmp_path)
    assert again.classifier.sizes == (2, 1)


def round_trip(model: Segmenter, tmp_path: Path) -> Segmenter:
    save_model(model, ABOUT["classes"], tmp_path / "sub" / "model.safetensors")
    torch.manual_seed(99)
    again, classes = load_model(tmp_path / "sub" / "model.safetensors")
    assert classes == ("background", "a", "b") and not again.training
    images = torch.randint(0, 256, (2, 3, 40, 32), dtype=torch.uint8)
    with torch.inference_mode():
        expected, found = model(images).logits, again(images).logits
    assert found.shape == (2, 3, 5, 4) and torch.allclose(found, expected, atol=1e-6)
    assert expected.std() > 0.01, "not one value everywhere"
    return again


def test_file_is_plain_safetensors_that_names_no_weights_to_fetch(tmp_path):
    model = a_model()
    model.config = ModelConfig("tiny", "tiny", 8, weights="/gone/weights.pth", pretrained=True)
    save_model(model, ABOUT["classes"], tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"]["format"] == FORMAT and "/gone" not in header["__metadata__"]["about"]
    assert not content.startswith((b"PK", b"\x80"))
    with safe_open(tmp_path / "m", framework="pt") as file:
        assert set(file.keys()) == set(model.state_dict())
    assert load_model(tmp_path / "m")[0].config.pretrained is False


def write(path: Path, about: object, tensors: dict | None = None, form: str = FORMAT) -> Path:
    text = about if isinstance(about, str) else json.dumps(about)
    path.write_bytes(save(tensors or a_model().state_dict(), {"format": form, "about": text}))
    return path


def test_file_written_by_hand_is_read(tmp_path):
    assert load_model(write(tmp_path / "m", ABOUT))[1] == ("background", "a", "b")


def test_file_of_a_stranger_fetches_nothing_and_opens_no_other_file(tmp_path, monkeypatch):
    """Whatever its header says of pretrained weights."""
    asked, create = [], timm.create_model

    def created(*words, pretrained=False, **rest):
        asked.append(pretrained)
        return create(*words, **rest)

    config = ModelConfig(backbone="test_resnet", head="tiny", output_stride=32)
    model = Segmenter(config)
    model.classifier.grow(3, balanced=False)
    monkeypatch.setattr(timm, "create_model", created)
    monkeypatch.setattr(backbone, "read_state", lambda path: asked.append(path))
    header = {**dataclasses.asdict(config), "pretrained": True, "weights": str(tmp_path / "secret.pth")}
    path = write(tmp_path / "m", {**ABOUT, "model": header, "parts": [3]}, model.state_dict())
    loaded, _ = load_model(path)
    assert asked == [False] and loaded.config == config


def test_file_that_names_no_classifier_has_a_plain_one(tmp_path):
    about = {key: value for key, value in ABOUT.items() if key != "classifier"}
    assert type(load_model(write(tmp_path / "m", about))[0].classifier) is CLASSIFIERS["linear"]


def test_classifier_of_ones_own_is_not_written(tmp_path):
    class Mine(CLASSIFIERS["linear"]):
        pass

    model = a_model()
    model.classifier.__class__ = Mine
    with pytest.raises(UserError, match="A classifier of one's own, Mine, cannot be exported"):
        save_model(model, ABOUT["classes"], tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ("{", "does not describe its own weights"),
        ([], "does not describe its own weights"),
        ({**ABOUT, "model": {"backbone": "nonesuch"}}, "no backbone 'nonesuch'"),
        ({**ABOUT, "model": {**ABOUT["model"], "depth": 3}}, "Unknown key 'model.depth'"),
        ({**ABOUT, "layer": {"fusion": "perhaps"}}, "'layer.fusion' is 'perhaps'"),
        ({**ABOUT, "layer": {}}, "does not describe its own weights"),
        ({**ABOUT, "parts": [2, 2]}, "does not describe its own weights"),
        ({**ABOUT, "parts": 3}, "does not describe its own weights"),
        ({**ABOUT, "classifier": "unknown"}, "does not describe its own weights"),
        ({**ABOUT, "classifier": "cubic"}, "'cubic'"),
        ({key: value for key, value in ABOUT.items() if key != "classes"}, "'classes'"),
    ],
)
def test_file_that_describes_something_else_is_refused(about, message, tmp_path):
    path = write(tmp_path / "m.safetensors", about)
    with pytest.raises(UserError, match=message) as error:
        load_model(path)
    assert "m.safetensors" in str(error.value)


def test_file_with_missing_or_additional_weights_is_refused(tmp_path):
    state = a_model().state_dict()
    name = next(iter(state))
    for tensors in ({k: v for k, v in state.items() if k != name}, {**state, "more": torch.zeros(1)}):
        with pytest.raises(UserError, match="does not describe its own weights"):
            load_model(write(tmp_path / "m", ABOUT, tensors))


def test_file_of_another_format_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"is not a model of this version \(segue-model-1\).*segue export"):
        load_model(write(tmp_path / "m", ABOUT, form="segue-model-0"))
    (tmp_path / "foreign").write_bytes(save({"weight": torch.zeros(3)}))
    with pytest.raises(UserError, match="is not a model of this version"):
        load_model(tmp_path / "foreign")


def test_damaged_file_is_refused(tmp_path):
    whole = write(tmp_path / "m", ABOUT).read_bytes()
    for number, content in enumerate((b"", b"no model", whole[:100], whole[:-7], b"\xff" * 8 + whole[8:])):
        path = tmp_path / f"bad{number}"
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"bad{number} is not a readable model file"):
            load_model(path)
    with pytest.raises(UserError, match="is not a readable model file"):
        load_model(tmp_path / "missing")
    torch.save(a_model().state_dict(), tmp_path / "pickle")
    with pytest.raises(UserError, match="pickle is not a readable model file"):
        load_model(tmp_path / "pickle")
