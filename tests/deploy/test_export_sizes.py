"""Files for every size of image, and files for one size alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from foreign_networks import CLASSES, MEAN, STD, network
from torch import nn

import segue
from segue.core.errors import UserError
from segue.deploy.export.module import ImageToLogits
from segue.deploy.export.pictures import picture
from segue.deploy.export.pooling import AnySizePool, pool_at_any_size
from segue.deploy.export.verify import Difference
from segue.deploy.export.write import Report
from segue.deploy.model import Model
from segue.deploy.onnx_model import load_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("size", [2, (3, 3), (6, 6), (None, 2), (4, None)])
@pytest.mark.parametrize("shape", [(6, 12), (7, 5), (13, 1), (3, 4)])
def test_pooling_at_any_size_gives_the_means_of_torch(size, shape):
    maps = torch.randn(2, 3, *shape, dtype=torch.float64)
    plain = nn.AdaptiveAvgPool2d(size)
    network = nn.Sequential(plain)
    expected = network(maps)
    pool_at_any_size(network)
    assert isinstance(network[0], AnySizePool)
    assert torch.allclose(network(maps), expected, rtol=0, atol=1e-14)


def test_a_plain_mean_stays_as_it_is():
    network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d((1, 1)))
    pool_at_any_size(network)
    assert not any(isinstance(layer, AnySizePool) for layer in network)


def test_pools_in_lists_of_a_network_are_found():
    """Pyramid pooling of Hugging Face's UperNet: exporters would fix its windows."""
    module = network("hf UperNet")
    assert any(isinstance(layer, nn.AdaptiveAvgPool2d) for layer in module.modules())
    model = segue.adopt(module, CLASSES, MEAN, STD)
    exported = ImageToLogits(model.network, len(CLASSES))
    pools = [layer for layer in exported.modules() if isinstance(layer, nn.AdaptiveAvgPool2d)]
    assert {type(layer) for layer in pools if layer.output_size != 1} == {AnySizePool}
    assert not any(isinstance(layer, AnySizePool) for layer in model.network.modules())
    images = torch.from_numpy(picture((1, 3, 70, 51), 0))
    with torch.inference_mode():
        found, expected = exported.network(images).logits, model.network(images).logits
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


class Square(nn.Module):
    """A network that takes the root of a number of pixels for both sides, as DPT's code does."""

    def __init__(self, any_batch: bool = True) -> None:
        super().__init__()
        self.any_batch = any_batch
        self.out = nn.Conv2d(3, len(CLASSES), 8, 8)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        map_BKhw = self.out(images / 255)
        side = int((map_BKhw.shape[-2] * map_BKhw.shape[-1]) ** 0.5)
        return map_BKhw.flatten(2).reshape(map_BKhw.shape[0] if self.any_batch else 2, -1, side, side)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model(Square().eval(), CLASSES)


def test_a_file_for_one_size_has_that_size(model, tmp_path):
    file = tmp_path / "map.onnx"
    report = model.export(file, outputs="probabilities", input="float32", size=64)
    assert report.difference.changed == 0 and "64 x 64" in report.lines()[0]
    session = onnxruntime.InferenceSession(file)
    assert session.get_inputs()[0].shape == ["batch", 3, 64, 64]
    (output,) = session.get_outputs()
    assert (output.name, output.shape) == ("probabilities", ["batch", len(CLASSES), 64, 64])
    found = session.run(None, {"image": picture((3, 3, 64, 64), 1).astype(np.float32)})[0]
    assert np.allclose(found.sum(1), 1, atol=1e-5) and found.min() >= 0
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["tile_size"]) == json.loads(about["tiles_size"]) == 64
    with pytest.raises(UserError, match="probabilities alone"):
        load_onnx(file)


def test_segue_itself_wants_files_for_every_size(model, tmp_path):
    model.export(tmp_path / "fixed.onnx", size=64)
    with pytest.raises(UserError, match="64 x 64 pixels alone"):
        load_onnx(tmp_path / "fixed.onnx")
    with pytest.raises(UserError, match="--size"):  # the way out is named
        model.export(tmp_path / "any.onnx")
    with pytest.raises(UserError, match="many sizes"):
        model.export(tmp_path / "half.onnx", smaller="half", size=64)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.onnx"]


@pytest.mark.parametrize("ending", [".pt", ".pt2"])
def test_files_of_torch_for_one_size(model, ending, tmp_path):
    report = model.export(tmp_path / f"map{ending}", size=64)
    assert report.difference.changed == 0


def test_logits_that_differ_are_remarked_though_classes_do_not(tmp_path):
    same, other = Difference(1e-5, 0.0, 8.0), Difference(0.7, 0.0, 8.0)
    assert same.remark == "" and "8" in other.remark
    assert len(Report(tmp_path, 1, same).lines()) == 1
    assert len(Report(tmp_path, 1, other).lines()) == 2


def test_a_file_that_fixes_the_batch_is_not_written(tmp_path, monkeypatch):
    fixed = Model(Square(any_batch=False).eval(), CLASSES)
    monkeypatch.setattr("segue.deploy.export.write.stride_of", lambda network: 8)
    monkeypatch.setattr("segue.deploy.export.verify._reference", lambda network, images: expected(images))

    def expected(images: np.ndarray) -> np.ndarray:
        return np.zeros((len(images), len(CLASSES), *images.shape[-2:]), np.float32)

    with pytest.raises(UserError, match="would answer images of 1 x 64 x 64"):
        fixed.export(tmp_path / "map.pt", size=64)
    assert not list(tmp_path.iterdir())
