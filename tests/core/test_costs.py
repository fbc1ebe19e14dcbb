"""The file of costs: every method has its row, it is read as it was written, and nothing else is read."""

from __future__ import annotations

import json

import pytest

from segue.core import plugins
from segue.core.costs import COSTS_FILE, COSTS_FORMAT, Cost, Costs, read_costs
from segue.core.errors import UserError

COSTS = Costs(
    command="python -m benchmarks methods --rounds 1",
    versions={"torch": "2.4"},
    setting="scenes 4-2, step 1, batch 16",
    threads=2,
    methods={"mib": Cost(1.5, 1.25, -2.0, 0.5), "joint": Cost(1.1, 1.0, 0.0, None)},
)


def test_every_method_has_its_row():
    stored = read_costs()
    assert set(stored.methods) == set(plugins.names("method")), (
        "run: python -m benchmarks methods --save src/segue/methods/costs.json"
    )
    assert stored.methods["finetune"] == Cost(1.0, 1.0, 0.0, 0.0)
    assert stored.setting.startswith("scenes 4-2, step 1") and stored.command.startswith(
        "python -m benchmarks methods"
    )
    assert stored.versions["torch"] and "/" not in COSTS_FILE.read_text(), "no paths"


def test_what_is_written_is_read(tmp_path):
    COSTS.write(tmp_path / "costs.json")
    assert json.loads((tmp_path / "costs.json").read_text())["format"] == COSTS_FORMAT
    assert read_costs(tmp_path / "costs.json") == COSTS


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Cannot read the costs of the methods, .*gone\.json: No such file"):
        read_costs(tmp_path / "gone.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "segue-costs-0"}, "does not hold costs"),
        ({"methods": ["mib"]}, "'methods' should hold a row"),
        ({"methods": {"mib": 1.5}}, "'methods' should hold a row"),
        ({"methods": {"mib": {"time": 1.5}}}, r"'methods\.mib\.memory' is missing"),
        (
            {"methods": {"mib": {"tme": 1.5}}},
            r"'methods\.mib\.tme'\. Did you mean 'methods\.mib\.time'",
        ),
        ({"threads": "many"}, r"'threads' is 'many'"),
        ({"thread": 2}, r"Unknown key 'thread'"),
        ({"versions": 3}, r"'versions' is 3"),
    ],
)
def test_malformed_file_is_refused(tmp_path, change, message):
    path = tmp_path / "costs.json"
    COSTS.write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message) as error:
        read_costs(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("figure", [-1.0, 0.0, float("nan"), float("inf"), "fast", None])
def test_time_that_is_none_is_refused(tmp_path, figure):
    path = tmp_path / "costs.json"
    COSTS.write(path)
    document = json.loads(path.read_text())
    document["methods"]["mib"]["time"] = figure
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"'methods\.mib\.time' is"):
        read_costs(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"' + COSTS_FORMAT + '"', "[" * 100_000])
def test_what_is_no_costs_is_refused(tmp_path, text):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"costs\.json"):
        read_costs(path)
