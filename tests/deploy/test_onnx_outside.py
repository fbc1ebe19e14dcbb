"""An ONNX file may name other files for its weights: none is opened, wherever the command was started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from segue.core.errors import UserError
from segue.deploy.onnx_model import open_session

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
SHAPE = (1, 1, 4, 4)


def model(place: str) -> bytes:
    """A file that adds what lies at a place to its input."""
    weights = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=SHAPE)
    weights.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", "0"), ("length", "64")):
        entry = weights.external_data.add()
        entry.key, entry.value = key, value
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "outside", ends[:1], ends[1:], [weights])
    opset = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.parametrize("place", ["secret.bin", "../secret.bin", "{}/secret.bin", "link.bin"])
def test_no_file_beside_the_model_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for folder in (tmp_path, here):
        (folder / "secret.bin").write_bytes(np.arange(16, dtype=np.float32).tobytes())
    (here / "link.bin").symlink_to(tmp_path / "secret.bin")
    monkeypatch.chdir(here)
    with pytest.raises(UserError, match="not an ONNX file that onnxruntime can run"):
        open_session(model(place.format(tmp_path)), "cpu")
