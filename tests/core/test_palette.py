"""Colours of classes: apart from each other and from background; the data set's own where it has some."""

import numpy as np
import pytest

from segue.core.palette import (
    BACKGROUND,
    UNSCORED,
    class_colours,
    distinct_colours,
    flat_palette,
    hexadecimal,
    oklab,
)
from segue.data.datasets.cityscapes import Cityscapes
from segue.data.datasets.voc import Voc


def nearest(colours) -> float:
    lab = oklab(colours)
    distances = np.linalg.norm(lab[:, None] - lab[None], axis=-1) + np.eye(len(lab))
    return float(distances.min())


def test_space_by_known_values():
    assert oklab([(255, 255, 255), (255, 0, 0)]) == pytest.approx(
        np.array([[1, 0, 0], [0.628, 0.2249, 0.1258]]), abs=1e-3
    )


@pytest.mark.parametrize(("count", "apart"), [(8, 0.2), (20, 0.12), (60, 0.07), (150, 0.04)])
def test_colours_can_be_told_apart(count, apart):
    """0.02 is a difference that is just seen."""
    assert nearest([BACKGROUND, UNSCORED, *distinct_colours(count)][1:]) > apart
    assert distinct_colours(count) == distinct_colours(254)[:count], "more classes, the same first colours"


def test_254_classes_differ():
    assert len(set(distinct_colours(254))) == 254


def test_a_data_set_keeps_its_palette():
    person = {"voc": (192, 128, 128), "cityscapes": (220, 20, 60)}
    for table in (Voc.classes, Cityscapes.classes):
        colours = class_colours(table.ids, table.colours)
        assert dict(zip(table.names.values(), colours, strict=True))["person"] == person[table.dataset]
    assert class_colours((3, 1), {1: (1, 1, 1), 3: (3, 3, 3)}) == [(3, 3, 3), (1, 1, 1)], "whatever the order"
    assert class_colours((3, 1), {1: (1, 1, 1)}) == list(distinct_colours(2)), "not for some classes alone"


def test_palette_of_a_picture():
    flat = flat_palette([(1, 2, 3)])
    assert len(flat) == 768 and flat[:6] == [*BACKGROUND, 1, 2, 3] and flat[-3:] == [*UNSCORED]
    assert hexadecimal((1, 2, 255)) == "#0102ff"
