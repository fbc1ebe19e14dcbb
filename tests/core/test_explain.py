"""Every key of a recipe has a meaning, a range in words and a default."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from segue.core import plugins
from segue.core.config import OptimConfig, RunConfig, as_dict
from segue.core.explain import Key, explain, field_docs, range_text
from segue.engine.recipe import resolve


def keys(config: RunConfig) -> dict[str, Key]:
    return {key.name: key for key in explain(config)}


@pytest.mark.parametrize("method", plugins.names("method"))
def test_every_key_of_every_method_is_explained(method):
    for dataset in plugins.names("dataset"):
        for key in keys(resolve(method, dataset, "1-1")).values():
            assert key.meaning and key.range, key.name


def test_value_default_and_range():
    found = keys(resolve("mib", "scenes", "5-2", overrides=["optim.momentum=0.5"]))
    momentum = found["optim.momentum"]
    assert (momentum.value, momentum.default, momentum.required) == (0.5, OptimConfig().momentum, False)
    assert momentum.range == "number at least 0 and below 1"
    assert found["scenario.split"].required
    assert found["train.precision"].range == "fp32, bf16 or fp16"
    assert found["method.params.kd_weight"].value == resolve("mib", "scenes", "5-2").method.params.kd_weight


def test_a_key_is_explained_once_and_none_is_forgotten():
    config = resolve("caf", "scenes", "5-2")

    def leaves(section: dict, where: str = "") -> set[str]:
        inner = {f"{where}{key}": value for key, value in section.items()}
        nested = (leaves(value, f"{key}.") for key, value in inner.items() if isinstance(value, dict))
        return {key for key, value in inner.items() if not isinstance(value, dict)}.union(*nested)

    assert set(keys(config)) == leaves(as_dict(config))


@dataclass
class Plain:
    first: int = 1
    """of two
    lines"""
    second: int = 2

    @dataclass
    class Inner:
        third: int = 3
        """inside"""


@dataclass
class Heir(Plain):
    second: int = 4
    """said by the heir"""


def test_field_docs_are_inherited_and_nested():
    assert field_docs(Plain) == {"first": "of two lines"}
    assert field_docs(Heir) == {"first": "of two lines", "second": "said by the heir"}
    assert field_docs(Plain.Inner) == {"third": "inside"}
    assert [field.name for field in dataclasses.fields(Heir)] == ["first", "second"]


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (bool, "true or false"),
        (Annotated[int, Field(ge=1)] | None, "integer at least 1, or null"),
        (Literal[8, 16], "8 or 16"),
        (tuple[float, float], "[number, number]"),
        (list[str], "list of: text"),
    ],
)
def test_ranges_in_words(hint, text):
    assert range_text(hint) == text


def test_file_with_a_byte_order_mark_is_read(tmp_path):
    path = tmp_path / "mine.py"
    lines = ["@dataclass", "class Mine:", "    rate: float = 1.0", "    'learning rate'", "METHOD = Mine"]
    text = "\n".join(["from dataclasses import dataclass", *lines])
    path.write_text(text, encoding="utf-8-sig")
    assert field_docs(plugins.find("method", str(path))) == {"rate": "learning rate"}
