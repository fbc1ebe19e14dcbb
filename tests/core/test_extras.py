"""Packages of the extras: found, or asked for with the command that installs them."""

import json
import sys

import pytest

from segue.core.errors import UserError
from segue.core.extras import needed


def test_a_module_that_is_there() -> None:
    assert needed("json", "none", "A test") is json


def test_a_missing_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError) as refused:
        needed("onnx.helper", "onnx", "model.onnx")
    said = str(refused.value)
    assert (
        said.startswith("model.onnx needs") and "pip install 'segue[onnx]'" in said and "helper" not in said
    )
