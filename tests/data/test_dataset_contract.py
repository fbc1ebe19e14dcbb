"""A new data set is checked by default, and items can be taken from it."""

from dataclasses import dataclass

import numpy as np
import pytest

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.data import Sample, SegDataset
from segue.data.index import class_index


@dataclass(frozen=True)
class Config:
    value: int = 1
    height: int = 4


class Plain(SegDataset):
    Config = Config
    about = "one picture"
    protocol = {}  # noqa: RUF012
    classes = ClassTable("plain", {1: "a", 2: "b"})
    keys = ("only",)

    def __init__(self, config: Config, split: str = "train") -> None:
        self.config = config

    def read(self, index: int) -> Sample:
        mask = np.full((self.config.height, 5), self.config.value, dtype=np.uint8)
        return Sample("only", np.zeros((4, 5, 3), dtype=np.uint8), mask)

    def fingerprint(self) -> str:
        return repr(self.config)


def test_items_and_index() -> None:
    data = Plain(Config(2))
    assert data[0].key == "only" and len(data) == 1
    assert np.flatnonzero(class_index(data)[0]).tolist() == [2]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(value=77), "The mask of only holds the value 77, which is no class id of plain"),
        (Config(height=3), "The mask of only is 5 x 3 pixels, but its image only is 5 x 4"),
    ],
)
def test_bad_masks_are_refused_without_any_code_of_the_data_set(config: Config, message: str) -> None:
    with pytest.raises(UserError, match=message):
        class_index(Plain(config))
