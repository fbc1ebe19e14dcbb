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
from segue.deploy.prepare import Preparation
from segue.models import backbone
from segue.models.caf import CafLayer, LayerConfig
from segue.models.classifier import CLASSIFIERS
from segue.models.segmenter import Segmenter

TINY = ModelConfig(backbone="tiny", head="tiny", output_stride=8)
MODEL = {"backbone": "tiny", "head": "tiny", "output_stride": 8}
LINEAR = {"kind": "linear", "sizes": [2, 1]}
NETWORK = {"model": MODEL, "fusion": None, "classifier": LINEAR}
ABOUT = {"network": NETWORK, "classes": ["background", "a", "b"], "images": {"size": 32, "bits": 12}}
FIRST = {"model": MODEL, "layer": None, "parts": [2, 1], "classes": ["background", "a", "b"]}
"""the header of the first format"""


def about(**changes: object) -> dict:
    """The header of a model whose network is described otherwise."""
    return {**ABOUT, "network": {**NETWORK, **changes}}


def a_model(layer: LayerConfig | None = None, classifier: str = "linear") -> Segmenter:
    torch.manual_seed(0)
    model = Segmenter(TINY)
    model.classifier = CLASSIFIERS[classifier](model.classifier.in_channels)
    if layer is not None:
        model.fusion = CafLayer(model.backbone.channels[-1], layer)
    for channels in LINEAR["sizes"]:
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
    path, images = tmp_path / "sub" / "model.safetensors", Preparation(size=48, bits=9)
    save_model(model, ABOUT["classes"], path, images)
    torch.manual_seed(99)
    again, header = load_model(path)
    assert header.classes == ("background", "a", "b") and header.images == images and not again.training
    images = torch.randint(0, 256, (2, 3, 40, 32), dtype=torch.uint8)
    with torch.inference_mode():
        expected, found = model(images).logits, again(images).logits
    assert found.shape == (2, 3, 5, 4) and torch.allclose(found, expected, rtol=0, atol=1e-5)
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


def write(path: Path, header: object, tensors: dict | None = None, form: str = FORMAT) -> Path:
    text = header if isinstance(header, str) else json.dumps(header)
    path.write_bytes(save(tensors or a_model().state_dict(), {"format": form, "about": text}))
    return path


def test_file_written_by_hand_is_read(tmp_path):
    _, header = load_model(write(tmp_path / "m", {**ABOUT, "colours": [[0, 0, 0], [255, 0, 0], [0, 0, 9]]}))
    assert header.classes == ("background", "a", "b") and header.images == Preparation(size=32, bits=12)
    assert header.colours == ((0, 0, 0), (255, 0, 0), (0, 0, 9))


def test_file_of_a_stranger_fetches_nothing_and_opens_no_other_file(tmp_path, monkeypatch):
    """Whatever its header says of pretrained weights."""
    asked, create = [], timm.create_model

    def created(*words, pretrained=False, **rest):
        asked.append(pretrained)
        return create(*words, **rest)

    config = ModelConfig(backbone="test_resnet", head="tiny", output_stride=32, pretrained=False)
    model = Segmenter(config)
    model.classifier.grow(3, balanced=False)
    monkeypatch.setattr(timm, "create_model", created)
    monkeypatch.setattr(backbone, "read_state", lambda path: asked.append(path))
    described = {**dataclasses.asdict(config), "pretrained": True, "weights": str(tmp_path / "secret.pth")}
    header = about(model=described, classifier={"kind": "linear", "sizes": [3]})
    loaded, *_ = load_model(write(tmp_path / "m", header, model.state_dict()))
    assert asked == [False] and loaded.config == config


def test_classifier_of_ones_own_is_written_once_it_has_a_name(tmp_path, monkeypatch):
    class Mine(CLASSIFIERS["linear"]):
        pass

    model = a_model()
    model.classifier.__class__ = Mine
    with pytest.raises(UserError, match=r"classifier Mine .*CLASSIFIERS\['mine'\] = Mine"):
        save_model(model, ABOUT["classes"], tmp_path / "m")
    assert not list(tmp_path.iterdir())
    with monkeypatch.context() as patch:
        patch.setitem(CLASSIFIERS, "mine", Mine)
        assert type(round_trip(model, tmp_path).classifier) is Mine
    with pytest.raises(UserError, match="There is no classifier 'mine'"):
        load_model(tmp_path / "sub" / "model.safetensors")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{", "does not describe its own weights"),
        ([], "does not describe its own weights"),
        (FIRST, "Unknown key 'model'"),
        ({**ABOUT, "more": 1}, "Unknown key 'more'"),
        ({**ABOUT, "images": {"size": 0}}, "'images.size' is 0"),
        ({**ABOUT, "images": {"size": 32, "mean": 0}}, "Unknown key 'images.mean'"),
        ({**ABOUT, "classes": ["background", "a"]}, "2 names for 3 channels"),
        ({**ABOUT, "colours": [[0, 0, 0]]}, "1 colours for 3 channels"),
        ({**ABOUT, "colours": [[0, 0, 256]] * 3}, "'colours.0.2' is 256"),
        ({**ABOUT, "network": {}}, "'model'"),
        ({**ABOUT, "network": {**NETWORK, "more": 1}}, "Unknown key 'more'"),
        ({key: value for key, value in ABOUT.items() if key != "classes"}, "'classes'"),
        (about(model={"backbone": "nonesuch"}), "no backbone 'nonesuch'"),
        (about(model={**MODEL, "depth": 3}), "Unknown key 'model.depth'"),
        (about(model=[]), "does not describe its own weights"),
        (about(fusion={"kind": "caf", "config": {"fusion": "perhaps"}}), "'fusion.fusion' is 'perhaps'"),
        (about(fusion={"kind": "caf", "config": {}}), "does not describe its own weights"),
        (about(fusion={"kind": "os.system", "config": {}}), "There is no fusion layer 'os.system'"),
        (about(fusion={"kind": "caf", "config": {}, "more": 1}), "Unknown key 'fusion.more'"),
        (about(classifier={"kind": "linear", "sizes": [2, 2]}), "does not describe its own weights"),
        (about(classifier={"kind": "linear", "sizes": [3, 0]}), "'classifier.sizes.1' is 0"),
        (about(classifier={"kind": "linear", "sizes": 3}), "'classifier.sizes' is 3"),
        (about(classifier={"kind": "unknown", "sizes": [2, 1]}), "does not describe its own weights"),
        (about(classifier={"kind": "cubic", "sizes": [2, 1]}), "There is no classifier 'cubic'"),
    ],
)
def test_file_that_describes_something_else_is_refused(header, message, tmp_path):
    path = write(tmp_path / "m.safetensors", header)
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
    with pytest.raises(UserError, match=r"is not a model of this version.*segue export"):
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


def test_classifier_larger_than_the_names_is_refused_before_it_is_built(tmp_path, monkeypatch):
    path = write(tmp_path / "m.safetensors", about(classifier={"kind": "linear", "sizes": [10**9]}))
    monkeypatch.setattr(CLASSIFIERS["linear"], "grow", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(UserError, match="3 names for 1000000000 channels"):
        load_model(path)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    model = a_model()
    tensors = model.state_dict()
    name = next(name for name, value in tensors.items() if value.is_floating_point())
    tensors[name] = torch.full_like(tensors[name], float("nan"))
    with pytest.raises(UserError, match=f"{name} holds NaN"):
        load_model(write(tmp_path / "m.safetensors", ABOUT, tensors))


def test_one_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(a_model(), ("background", "a", "b"), path)
    content = path.read_bytes()
    places = torch.randint(8, len(content), (40,), generator=torch.Generator().manual_seed(0)).tolist()
    for place in [*places, len(content) - 1]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(UserError, match=r"model\.safetensors"):
            load_model(path)


def test_file_without_a_digest_is_of_an_older_version(tmp_path: Path) -> None:
    model = a_model()
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    (tmp_path / "old.safetensors").write_bytes(save(tensors, {"format": FORMAT, "about": json.dumps(ABOUT)}))
    network, _ = load_model(tmp_path / "old.safetensors")
    assert network.state_dict().keys() == tensors.keys()
