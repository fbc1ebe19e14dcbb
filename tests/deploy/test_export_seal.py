"""Exported files that were damaged or edited are refused: a flipped bit in a weight is no other error."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from foreign_networks import CLASSES, MEAN, STD, network
from outer_files import Colours, write_onnx, write_script

from segue.core.errors import UserError
from segue.deploy.adopt import adopt
from segue.deploy.export.seal import KEY, OPEN, check_seal, sealed
from segue.deploy.onnx_model import load_onnx
from segue.deploy.teachers import open_teacher
from segue.models.weights_file import open_weights

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
NAMES = ("background", "cat", "dog")
SAID = {"classes": NAMES, "mean": (0.5,) * 3, "std": (0.5,) * 3}


@pytest.fixture(name="written")
def written_fixture(tmp_path: Path) -> Path:
    """As `segue export` seals what it writes (tests/deploy/test_export_files.py)."""
    path = write_onnx(tmp_path / "model.onnx", meta={KEY: OPEN})
    path.write_bytes(sealed(path.read_bytes()))
    return path


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def test_every_flipped_bit_in_an_onnx_file_is_noticed(written: Path) -> None:
    content = written.read_bytes()
    check_seal(content, "model.onnx")
    for place in range(len(content)):
        with pytest.raises(UserError, match=r"model\.onnx is damaged"):
            check_seal(flipped(content, place), "model.onnx")


def test_nan_in_an_onnx_file_is_noticed_by_every_reader(written: Path, tmp_path: Path) -> None:
    model = onnx.load(written)
    weight = next(each for each in model.graph.initializer if len(each.dims) == 4)
    values = onnx.numpy_helper.to_array(weight).copy()
    values.flat[0] = float("nan")
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, tmp_path / "nan.onnx")
    assert open_teacher(str(written), **SAID).classes == NAMES
    for read in (load_onnx, lambda path: open_teacher(str(path), **SAID)):
        with pytest.raises(UserError, match=r"nan\.onnx is damaged"):
            read(tmp_path / "nan.onnx")


def test_files_without_a_seal_are_of_others_or_older(tmp_path: Path) -> None:
    foreign = write_onnx(tmp_path / "foreign.onnx")
    assert sealed(foreign.read_bytes()) == foreign.read_bytes()
    assert open_teacher(str(foreign), **SAID).classes == NAMES


def test_one_flipped_bit_in_a_torchscript_file_is_noticed(tmp_path: Path) -> None:
    path = write_script(tmp_path / "m.pt")
    open_teacher(str(path), **SAID)
    content = path.read_bytes()
    weight = Colours().conv.weight.detach().numpy().tobytes()
    path.write_bytes(flipped(content, content.index(weight) + 5))
    with pytest.raises(UserError, match=r"m\.pt is damaged"):
        open_teacher(str(path), **SAID)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, '{"names": ["a"]}'])
def test_what_stands_in_a_torchscript_file_may_be_anything(text: str, tmp_path: Path) -> None:
    path = write_script(tmp_path / "m.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch will drop TorchScript one day
        module = torch.jit.load(path)
        torch.jit.save(module, path, _extra_files={"segue.json": text})
    with pytest.raises(UserError, match=r"m\.pt"):
        open_teacher(str(path), **SAID)


def test_one_flipped_bit_in_a_file_of_weights_is_noticed(tmp_path: Path) -> None:
    weight = torch.randn(64, generator=torch.Generator().manual_seed(0))
    path = tmp_path / "a.pth"
    torch.save({"a": weight, "b": torch.ones(3)}, path)
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, whole.index(weight.numpy().tobytes()) + 9))
    with pytest.raises(UserError, match=r"a\.pth is damaged"):
        open_weights(path)


def test_files_of_weights_without_checksums_and_of_old_versions_are_read(tmp_path: Path) -> None:
    before = torch.serialization.get_crc32_options()
    try:
        torch.serialization.set_crc32_options(False)
        torch.save({"a": torch.ones(3), "b": torch.zeros(2)}, tmp_path / "none.pth")
    finally:
        torch.serialization.set_crc32_options(before)
    torch.save({"a": torch.ones(3)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("none.pth", "old.pth"):
        assert open_weights(tmp_path / name)["a"].tolist() == [1, 1, 1]


def test_network_with_nan_is_not_adopted() -> None:
    module = network("own U-Net")
    name = next(name for name, value in module.state_dict().items() if value.ndim == 4)
    with torch.no_grad():
        module.state_dict()[name].flatten()[0] = float("nan")
    with pytest.raises(UserError, match=name):
        adopt(module, CLASSES, MEAN, STD)
