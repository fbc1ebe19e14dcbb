"""The paper's items as files, and the means of their columns."""

import math
from pathlib import Path

import pytest

from segue.core.errors import UserError
from segue.core.paper import column_value, read_item, split_sizes
from segue.core.records import StepRecord
from segue.studies.scale import FILES, item_names

TABLE = """
title: A table
kind: table
blocks: {"2-1": {setting: voc 2-1 disjoint, columns: {"1-2": step 0, "3": later}}}
rows: {A: {run: mib, paper: {"2-1": [50.0, NUMBERS]}}}
"""


def record(step: int, *tenths: int) -> StepRecord:
    """Class i has IoU tenths[i] / 10; what is missed is called background."""
    size = 1 + len(tenths)
    matrix = [[0] * size for _ in range(size)]
    matrix[0][0] = 100
    for channel, hits in enumerate(tenths, start=1):
        matrix[channel][channel], matrix[channel][0] = hits, 10 - hits
    classes = ("background", *"abcdef"[: len(tenths)])
    fields = {"run": "r", "method": "m", "dataset": "d", "step": step, "classes": classes, "policy": {}}
    fields |= {"confusion": tuple(map(tuple, matrix)), "groups": (("a", "b"), ("c",), ("d",)), "seed": 0}
    rest = ("versions", "losses", "seconds", "images", "parameters")
    return StepRecord(**fields, **{name: {} for name in rest}, recipe_hash="", peak_memory=0)


def test_columns_are_means_of_groups_of_classes():
    last = record(2, 8, 6, 4, 2)
    values = {
        what: column_value(last, what, (2, 1, 1)) for what in ("step 0", "step 2", "later", "all", "class c")
    }
    assert values == pytest.approx({"step 0": 70, "step 2": 20, "later": 30, "all": 50, "class c": 40})
    assert math.isnan(column_value(last, "class zebra", (2, 1, 1)))


def test_after_step_0_only_its_own_classes_have_a_mean():
    first = record(0, 8, 6)
    assert column_value(first, "step 0", (2, 1, 1)) == pytest.approx(70)
    assert all(math.isnan(column_value(first, what, (2, 1, 1))) for what in ("later", "all", "step 1"))


def test_sizes_of_a_split():
    assert split_sizes("15-1", 20) == (15, 1, 1, 1, 1, 1) and split_sizes("4-4", 11) == (4, 4, 3)


@pytest.mark.parametrize("name", item_names())
def test_every_shipped_item_can_be_read(name: str):
    item = read_item(FILES / f"{name}.yaml")
    assert item.blocks and item.rows
    assert (item.kind == "table") == name.startswith("table")


def test_table_1_is_that_of_the_paper():
    rows = read_item(FILES / "table1.yaml").rows
    assert [name for name in rows if not rows[name].only][-3:] == ["PLOP*", "Ours", "Joint"]
    assert rows["Ours"].paper["15-1 overlapped"] == (55.7, 14.1, 45.3)
    assert all(len(row.paper) == 6 for row in rows.values() if not row.only)


def test_printed_parts_and_all_agree_where_the_paper_does():
    """A number that was copied wrongly would not fit its neighbours; known exceptions stand in the files."""
    rows = read_item(FILES / "table1.yaml").rows
    for name, row in rows.items():
        for block, (old, new, both) in row.paper.items():
            first = int(block.split("-")[0])
            fits = abs((first * old + (20 - first) * new) / 20 - both) <= 0.15
            assert fits or name == "SDR", (name, block)


@pytest.mark.parametrize("numbers", ["60.0, 70.0", "null, null"])
def test_numbers_have_to_fit_the_columns(tmp_path: Path, numbers: str):
    path = tmp_path / "t.yaml"
    path.write_text(TABLE.replace("NUMBERS", numbers))
    with pytest.raises(UserError, match="do not fit the columns"):
        read_item(path)
    path.write_text(TABLE.replace("NUMBERS", "60.0"))
    assert read_item(path).rows["A"].paper["2-1"] == (50.0, 60.0)
