"""Run-length masks: as pycocotools decodes them, and a sentence for whatever pycocotools would choke on."""

import numpy as np
import pytest
from made_sources import flat, refusal
from pycocotools import mask as coco

from segue.core.errors import UserError
from segue.data.annotations.base import Drawing, Region, Rings
from segue.data.annotations.draw import draw
from segue.data.annotations.rle import paint_runs, read_runs

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning:pycocotools")
"""its own decoding has not caught up with numpy 2"""


def decode(segmentation: dict) -> np.ndarray:
    runs = read_runs(segmentation, "x.json")
    canvas = np.zeros((runs.width, runs.height), dtype=np.uint8).T
    paint_runs(canvas, runs, 1)
    assert runs.area == canvas.sum()
    return canvas


@pytest.mark.parametrize("seed", range(8))
def test_compressed_masks_as_pycocotools_decodes_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 90, 2).tolist()
    block = 1 + seed % 7
    mask = np.kron(rng.random((height, width)) < rng.random(), np.ones((block, block))).astype(np.uint8)
    encoded = coco.encode(np.asfortranarray(mask))
    text = {"size": list(mask.shape), "counts": encoded["counts"].decode()}
    assert np.array_equal(decode(text), mask)
    assert np.array_equal(decode(text), coco.decode(encoded))
    plain = read_runs(text, "x").counts.tolist()
    assert np.array_equal(decode({"size": list(mask.shape), "counts": plain}), mask)


@pytest.mark.parametrize("value", [0, 1])
def test_uniform_masks(value: int) -> None:
    mask = np.full((300, 400), value, dtype=np.uint8)
    encoded = coco.encode(np.asfortranarray(mask))
    assert np.array_equal(decode({"size": [300, 400], "counts": encoded["counts"].decode()}), mask)


@pytest.mark.parametrize("seed", range(8))
def test_polygons_as_pycocotools_fills_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    polygons = [rng.uniform(-15, 40, 2 * rng.integers(3, 9)).tolist() for _ in range(rng.integers(1, 4))]
    region = Region("cat", Rings(tuple(np.array(polygon).reshape(-1, 2) for polygon in polygons)))
    mask = draw(Drawing(__file__, "x", regions=(region,)), ("cat",), (25, 20)).mask
    assert np.array_equal(mask, coco.decode(coco.merge(coco.frPyObjects(polygons, 20, 25))))


def test_a_rectangle_of_whole_numbers() -> None:
    region = Region("cat", Rings((np.array(flat(2, 1, 5, 3)).reshape(-1, 2),)))
    mask = draw(Drawing(__file__, "x", regions=(region,)), ("cat",), (8, 6)).mask
    assert np.argwhere(mask).tolist() == [[y, x] for y in (1, 2) for x in (2, 3, 4)]


GOOD = coco.encode(np.asfortranarray(np.eye(9, dtype=np.uint8)))["counts"].decode()


@pytest.mark.parametrize(
    ("size", "counts", "message"),
    [
        ([9, 9], GOOD[:-1], "add up"),
        ([9, 9], GOOD + "1", "add up"),
        ([9, 9], GOOD + "a", "cut off or damaged"),
        ([9, 9], GOOD[:3] + "/" + GOOD[4:], "cut off or damaged"),
        ([9, 9], GOOD[:3] + "p" + GOOD[4:], "cut off or damaged"),
        ([9, 9], "\u00e9" + GOOD, "cut off or damaged"),
        ([9, 9], "\ud800", "cut off or damaged"),
        ([9, 9], "oooooooooo0", "too large"),
        ([9, 9], "oooooo0" * 50, "add up"),
        ([9, 9], "", "add up"),
        ([9, 9], [], "add up"),
        ([9, 9], [80], "add up"),
        ([9, 9], [81, -1, 1], "from 0"),
        ([9, 9], [82, -1], "from 0"),
        ([9, 9], [81.0], "from 0"),
        ([9, 9], [True, 80], "from 0"),
        ([9, 9], [2**64, 81 - 2**64], "from 0"),
        ([9, 9], None, "list or text"),
        ([9, 9], {"a": 1}, "list or text"),
        ([9], GOOD, "[height, width]"),
        ([0, 9], [0], "[height, width]"),
        ([9, True], [9], "[height, width]"),
        ([-9, -9], GOOD, "[height, width]"),
        ([9.0, 9.0], GOOD, "[height, width]"),
        ([2**40, 2**40], [2**80], "[height, width]"),
        (None, GOOD, "[height, width]"),
    ],
)
def test_what_is_damaged_is_refused(size, counts, message: str) -> None:
    assert decode({"size": [9, 9], "counts": GOOD}).trace() == 9
    text = refusal(read_runs, {"size": size, "counts": counts}, "x.json, annotation 7")
    assert text.startswith("x.json, annotation 7") and message in text


def test_random_text_never_passes_as_another_size() -> None:
    rng = np.random.default_rng(0)
    passed = 0
    for _ in range(3000):
        text = "".join(map(chr, rng.integers(46, 114, rng.integers(0, 12))))
        try:
            runs = read_runs({"size": [6, 7], "counts": text}, "x")
        except UserError:
            continue
        passed += 1
        assert runs.counts.sum() == 42 and runs.counts.min() >= 0
    assert passed < 300
