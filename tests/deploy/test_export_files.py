"""Files for other programs: they say what the model says, at any size, or are not written."""

from __future__ import annotations

import ast
import io
import json
import math
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from own_folder import write_folder
from PIL import Image
from torch import nn

import segue
from segue.core.config import ModelConfig
from segue.core.scenario import Step
from segue.deploy.export import formats, verify, write
from segue.deploy.export.endings import ending_of
from segue.deploy.export.module import ImageToLogits
from segue.deploy.export.samples import read_samples
from segue.deploy.model import Model
from segue.deploy.onnx_model import OnnxModel, load_onnx
from segue.deploy.predictor import open_predictor
from segue.deploy.prepare import Preparation

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")

CLASSES = ("background", "a cat", "dög")
ABOUT = Preparation(size=40, bits=12)


def tiny(seed: int = 0) -> segue.Segmenter:
    torch.manual_seed(seed)
    network = segue.Segmenter(ModelConfig(backbone="tiny", head="tiny", output_stride=8))
    network.grow(Step(index=0, new=(1,)), balanced=False)
    network.grow(Step(index=1, new=(2,), old=(1,)), balanced=False)
    with torch.no_grad():  # a random classifier prefers one class everywhere
        for part in network.classifier.parts:
            part.weight *= 20
    return network.eval()


def model_of(network: nn.Module) -> Model:
    return Model(network, CLASSES, ABOUT, colours=((0, 0, 0), (250, 0, 0), (0, 0, 250)))


@pytest.fixture(scope="module")
def model() -> Model:
    return model_of(tiny())


@pytest.fixture(scope="module")
def written(model: Model, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, write.Report]:
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    report = model.export(path)
    assert report is not None
    return path, report


def photo(height: int = 50, width: int = 71, seed: int = 3) -> np.ndarray:
    return np.ascontiguousarray(verify.picture((1, 3, height, width), seed)[0].transpose(1, 2, 0))


def reference(model: Model, images: np.ndarray) -> np.ndarray:
    return verify._reference(model.network, images)


def clear(logits_BKHW: np.ndarray) -> np.ndarray:
    """Pixels whose class no rounding can change."""
    second, first = np.sort(logits_BKHW, axis=1)[:, -2:].swapaxes(0, 1)
    return first - second > 1e-3


def test_onnx_is_one_verified_file_for_any_size(written, model):
    path, report = written
    assert [each.name for each in path.parent.iterdir()] == ["model.onnx"]
    assert report.size == path.stat().st_size and report.remark == "" and report.cost is None
    assert report.difference.changed <= 0.001 and report.difference.largest < 1e-3
    session = verify.open_session(path.read_bytes(), "cpu")
    assert [(each.name, each.type) for each in session.get_inputs()] == [("image", "tensor(uint8)")]
    assert session.get_inputs()[0].shape == ["batch", 3, "height", "width"]
    assert [each.name for each in session.get_outputs()] == ["logits", "mask", "map"]
    for shape in ((1, 3, 33, 51), (3, 3, 64, 40), (1, 3, 1, 9)):
        images = verify.picture(shape, 5)
        expected = reference(model, images)
        logits, mask, map_BKhw = session.run(None, {"image": images})
        assert logits.shape == expected.shape and np.allclose(logits, expected, atol=1e-3)
        assert mask.dtype == np.uint8 and mask.shape == (shape[0], *shape[2:])
        sure = clear(expected)
        assert np.array_equal(mask[sure], expected.argmax(1)[sure])
        assert map_BKhw.shape == (shape[0], 3, math.ceil(shape[2] / 8), math.ceil(shape[3] / 8))


def test_names_stand_where_readers_look_for_them(written):
    found = {each.key: each.value for each in onnx.load(written[0]).metadata_props}
    assert ast.literal_eval(found["names"]) == dict(enumerate(CLASSES))
    assert json.loads(found["class_names"]) == {"0": "background", "1": "a cat", "2": "dög"}
    assert found["model_info labels"] == "background a_cat dög"
    assert json.loads(found["model_info label_info"])["label_names"] == list(CLASSES)
    assert found["model_info mean_values"].split() == ["0.0"] * 3
    assert found["model_info scale_values"].split() == ["1.0"] * 3
    assert found["model_info model_type"] == "Segmentation" and json.loads(found["model_type"]) == "Segmentor"
    assert found["stride"] == "8" and found["version"] == segue.__version__
    assert {"task", "license", "date", "colors", "author"} <= set(found)


def test_one_flipped_bit_is_noticed(written):
    content = written[0].read_bytes()
    for place in (9, len(content) // 3, len(content) // 2, len(content) - 9):
        with pytest.raises(segue.UserError, match="damaged"):
            OnnxModel(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def test_onnx_predicts_what_the_model_predicts(written, model):
    path, _ = written
    ours = load_onnx(path)
    assert (ours.classes, ours.colours, ours.images) == (model.classes, model.colours, model.images)
    assert ours.digest.startswith("blake2b:") and ours.digest == open_predictor(path).digest
    for size in ((50, 71), (40, 40), (19, 30)):
        pixels = photo(*size)
        found, expected = (each.predict(pixels, probabilities=True) for each in (ours, model))
        # PIL and torchvision may round an intensity differently when they resize
        assert np.abs(found.probabilities - expected.probabilities).max() < 0.05
        assert (found.ids == expected.ids).mean() > 0.99 and found.ids.dtype == expected.ids.dtype
        assert (found.classes, found.colours) == (expected.classes, expected.colours)
    (answer,) = ours.answers([photo()])
    assert np.array_equal(answer.ids, ours.predict(photo()).ids) and answer.confidence.shape == (50, 71)
    pair = np.stack([photo(33, 41, 1), photo(33, 41, 2)])
    assert np.allclose(ours.probabilities(pair), model.probabilities(pair), atol=1e-4)


def test_onnx_predicts_without_torch(written, tmp_path):
    Image.fromarray(photo()).save(tmp_path / "photo.png")
    code = (
        "import sys; from segue.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: print('code', stop.code or 0)\n"
        "print({'torch', 'torchvision', 'onnx'} & set(sys.modules))"
    )
    words = ["predict", str(written[0]), str(tmp_path / "photo.png"), "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "set()", done.stdout + done.stderr
    found = np.asarray(Image.open(tmp_path / "out" / "masks" / "photo.png"))
    assert np.array_equal(found, load_onnx(written[0]).predict(photo()).ids)


@pytest.mark.parametrize(("ending", "kind"), [(".pt", "float32"), (".pt", "uint8"), (".pt2", "uint8")])
def test_files_of_torch_are_verified_too(ending, kind, model, tmp_path):
    path = tmp_path / f"model{ending}"
    report = model.export(path, input=kind)
    assert report.difference.changed <= 0.001 and [each.name for each in tmp_path.iterdir()] == [path.name]
    images = verify.picture((3, 3, 47, 90), 1)
    outputs = verify.runner(path.read_bytes(), ending, ("logits", "mask", "map"))(images.astype(kind))
    assert np.allclose(outputs["logits"], reference(model, images), atol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extra = {formats.ABOUT: ""}
        content = io.BytesIO(path.read_bytes())
        if ending == ".pt":
            torch.jit.load(content, _extra_files=extra)
        else:
            torch.export.load(content, extra_files=extra)
    assert json.loads(extra[formats.ABOUT])["names"] == str(dict(enumerate(CLASSES)))


def test_older_exporter_stands_in_and_one_output_can_be_asked_for(model, tmp_path, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("it does not know this layer\nand more")

    monkeypatch.setattr(formats, "_by_dynamo", broken)
    report = model.export(tmp_path / "model.onnx", outputs="logits", input="float32")
    assert "older exporter" in report.remark and "it does not know this layer" in report.lines()[-1]
    ours = load_onnx(tmp_path / "model.onnx")
    assert [each.name for each in ours.session.get_outputs()] == ["logits"]
    assert ours.session.get_inputs()[0].type == "tensor(float)"
    assert (ours.predict(photo()).ids == model.predict(photo()).ids).mean() > 0.95
    masks = model.export(tmp_path / "mask.onnx", outputs="mask")
    assert math.isnan(masks.difference.largest) and masks.difference.changed <= 0.001
    with pytest.raises(segue.UserError, match="mask alone"):
        load_onnx(tmp_path / "mask.onnx")


class Foreign(nn.Module):
    """Somebody else's network: logits as a tensor, at the image's size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images.float() / 255)


def test_any_network_that_gives_logits_can_be_exported(tmp_path):
    torch.manual_seed(0)
    report = model_of(Foreign()).export(tmp_path / "model.pt")
    assert report.difference.changed == 0
    about = ImageToLogits(Foreign(), 300)(torch.zeros(1, 3, 5, 4))
    assert about[1].dtype == torch.int32, "a byte has no room for 300 classes"


@pytest.mark.parametrize("resize", ["aligned", "nearest"])
def test_network_says_how_its_logits_are_resized(resize, tmp_path):
    network = tiny()
    network.resize = resize
    images = torch.from_numpy(verify.picture((1, 3, 21, 40), 0))
    module = ImageToLogits(network, len(CLASSES))
    logits, mask = module(images)
    usual = ImageToLogits(tiny(), len(CLASSES))(images)[0]
    assert module.names == ("logits", "mask") and not torch.allclose(logits, usual)
    corner = network(images).logits[..., 0, 0]
    assert torch.allclose(logits[..., 0, 0], corner, atol=1e-3) and torch.equal(mask, logits.argmax(1))
    assert model_of(network).export(tmp_path / "model.pt").difference.changed <= 0.001


def test_closed_background_stays_closed(tmp_path):
    model = model_of(tiny())
    model.closed = True
    model.export(tmp_path / "model.pt")
    images = verify.picture((1, 3, 40, 56), 0)
    found = verify.runner((tmp_path / "model.pt").read_bytes(), ".pt", ("logits", "mask", "map"))(images)
    expected = reference(model, images)
    assert (expected.argmax(1) == 0).any() and found["mask"].min() > 0
    assert np.allclose(found["logits"][:, 1:], expected[:, 1:], atol=1e-3)


def test_file_that_takes_one_size_is_refused(tmp_path, monkeypatch):
    def fixed(module: nn.Module, image: torch.Tensor, *_: object) -> tuple[bytes, str]:
        program = torch.export.export(module, (image,))  # no side is dynamic
        torch.export.save(program, file := io.BytesIO())
        return file.getvalue(), ""

    monkeypatch.setattr(write, "encode", fixed)
    with pytest.raises(segue.UserError, match="would fail with images of 1 x 192 x 256"):
        model_of(Foreign()).export(tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("ending", [".pt", ".onnx"])
def test_file_that_differs_is_not_left_behind(ending, model, tmp_path, monkeypatch):
    path = tmp_path / f"model{ending}"
    path.write_bytes(b"the file of before")
    other = ImageToLogits(tiny(seed=1), len(CLASSES)).eval()
    monkeypatch.setattr(write, "ImageToLogits", lambda *_: other)
    monkeypatch.setattr(formats, "_by_dynamo", None)  # the older exporter is quicker
    with pytest.raises(segue.UserError, match=r"is not written: .* % of the pixels"):
        model.export(path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"the file of before"]


def test_ending_decides():
    assert [ending_of(name) for name in ("a.ONNX", "a.pt2", "b/model", "model.v2", "voc-15.5")] == [
        *(".onnx", ".pt2", "", "", ""),
    ]
    for name, meant in (("a.onxn", ".onnx"), ("a.pth", ".pt"), ("a.safetensor", ".safetensors")):
        with pytest.raises(segue.UserError, match=rf"Did you mean \{meant}\?"):
            ending_of(name)
    with pytest.raises(segue.UserError, match=r"not \.tflite"):
        ending_of("a.tflite")


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("a.onnx", {"smaller": "int8"}, r"--images FOLDER"),
        ("a.pt", {"smaller": "half"}, r"ONNX files.*not \.pt"),
        ("a.onnx", {"images": "photos"}, "--int8 or --half"),
        ("a.onnx", {"smaller": "half", "outputs": "mask"}, "--output mask"),
        ("a.safetensors", {"outputs": "mask"}, "weights as they are"),
        ("folder", {"smaller": "half"}, "weights as they are"),
        ("a.onnx", {"smaller": "int8", "images": "nowhere"}, "There is no folder nowhere"),
        ("a.onxn", {}, r"Did you mean \.onnx"),
        ("file/a.onnx", {}, "Cannot write"),
    ],
)
def test_what_cannot_be_written_is_known_at_once(name, choices, message, model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(write, "encode", None)
    with pytest.raises(segue.UserError, match=message):
        model.export(tmp_path / name, **choices)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def labelled(tmp_path) -> Path:
    pictures = {f"{index}": (0, 1 + index % 2) for index in range(8)}
    folder = write_folder(tmp_path / "data", pictures, "0 background\n1 a cat\n2 dög\n")
    (folder / "train.txt").write_text("0\n1\n2\n3\n4\n")
    (folder / "val.txt").write_text("5\n6\n7\n")
    return folder


def test_int8_is_measured_on_labelled_images(model, written, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "encode", lambda *_: (written[0].read_bytes(), ""))
    report = model.export(tmp_path / "small.onnx", smaller="int8", images=labelled)
    cost = report.cost
    assert cost.size < 0.6 and report.size == (tmp_path / "small.onnx").stat().st_size
    assert 0.8 < cost.agreement <= 1 and cost.speed > 0 and "3 test images" in cost.what
    assert all(0 <= score <= 1 for score in cost.miou) and "mIoU" in report.lines()[-1]
    kinds = {node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= kinds
    small = load_onnx(tmp_path / "small.onnx")
    assert small.classes == CLASSES and small.images == ABOUT
    samples = read_samples(labelled, CLASSES, 16)
    truth, before = samples.truth[0], load_onnx(written[0]).predict(samples.measure[0]).ids
    assert set(np.unique(truth)) <= {0, 1, 2} and truth.shape == before.shape


def test_half_and_bare_images(model, written, labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "encode", lambda *_: (written[0].read_bytes(), ""))
    report = model.export(tmp_path / "half.onnx", smaller="half")
    assert report.cost.miou is None and report.cost.agreement > 0.99 and "generated" in report.cost.what
    assert 0.4 < report.cost.size < 0.7
    assert load_onnx(tmp_path / "half.onnx").session.get_outputs()[0].type == "tensor(float)"
    bare = read_samples(labelled / "images", CLASSES, 16)
    assert (len(bare.calibrate), len(bare.measure), bare.truth) == (4, 4, None)
    (labelled / "images" / "zero.png").write_bytes(b"")  # no image: the others will do
    assert len(read_samples(labelled / "images", CLASSES, 16).calibrate) == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(segue.UserError, match="no image that can be read"):
        read_samples(tmp_path / "empty", CLASSES, 16)


def test_numbers_beyond_sixteen_bit_are_refused(tmp_path):
    network = Foreign()
    with torch.no_grad():
        network.layers[0].weight *= 1e6
    with pytest.raises(segue.UserError, match="leave the range of half"):
        model_of(network).export(tmp_path / "half.onnx", smaller="half")
    assert not list(tmp_path.iterdir())


def test_missing_extra_is_named_with_the_command(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for use in (lambda: model.export(tmp_path / "a.onnx"), lambda: OnnxModel(b"")):
        with pytest.raises(segue.UserError, match=r"onnxruntime: pip install 'segue\[onnx\]'"):
            use()


def test_onnx_of_others_is_refused(written, tmp_path):
    model = onnx.load(written[0])
    del model.metadata_props[:]
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "text.onnx").write_text("no graph")
    onnx.helper.set_model_props(model, {"segue": '{"format": "segue-graph-9"}'})
    (tmp_path / "newer.onnx").write_bytes(model.SerializeToString())
    onnx.helper.set_model_props(model, {"segue": "[1"})
    (tmp_path / "broken.onnx").write_bytes(model.SerializeToString())
    for name, message in (
        ("other", "was not written by 'segue export'"),
        ("text", "is not an ONNX file"),
        ("newer", "pip install --upgrade segue"),
        ("broken", "nothing readable"),
        ("nowhere", "Cannot read"),
    ):
        with pytest.raises(segue.UserError, match=message):
            load_onnx(tmp_path / f"{name}.onnx")
    with pytest.raises(segue.UserError, match="not on 'mps'"):
        load_onnx(written[0], device="mps")
