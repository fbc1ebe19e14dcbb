"""Regions to masks: exact pixels, order, names that are no class, corners far away."""

import io

import numpy as np
import pytest
from made_sources import flat, refusal
from PIL import Image, ImageDraw

from segue.core.errors import UserError
from segue.data.annotations.base import (
    Box,
    Disc,
    Drawing,
    Outline,
    Patch,
    Region,
    Rings,
    Runs,
    classes_of,
    split_of,
    value_of,
)
from segue.data.annotations.clip import clip
from segue.data.annotations.draw import draw

CLASSES = ("cat", "dog")


def picture(*regions: Region, size=(8, 6), **options) -> np.ndarray:
    drawing = Drawing(__file__, "x.jpg", regions=regions, **options)  # type: ignore[arg-type]
    return draw(drawing, CLASSES, size)[0]


def outline(*points: tuple[float, float]) -> Outline:
    return Outline(np.array(points, dtype=float))


def rings(*polygons: list[float]) -> Rings:
    return Rings(tuple(np.array(polygon, dtype=float).reshape(-1, 2) for polygon in polygons))


def square(top: int, left: int, bottom: int, right: int, value: int = 1, shape=(6, 8)) -> np.ndarray:
    mask = np.zeros(shape, dtype=np.uint8)
    mask[top:bottom, left:right] = value
    return mask


def test_a_triangle_pixel_by_pixel() -> None:
    mask = picture(Region("cat", outline((1, 1), (5, 1), (1, 5))))
    rows = ["........", ".#####..", ".####...", ".###....", ".##.....", ".#......"]
    assert ["".join("#" if pixel else "." for pixel in row) for row in mask] == rows


@pytest.mark.parametrize("seed", range(30))
def test_polygons_are_filled_as_pil_fills_them(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-15, 35, (7, 2))
    whole = Image.new("L", (20, 17))
    ImageDraw.Draw(whole).polygon([tuple(point) for point in points.tolist()], fill=1, outline=1)
    assert np.array_equal(picture(Region("cat", Outline(points)), size=(20, 17)), np.asarray(whole))


def test_box_disc_and_patch() -> None:
    assert np.array_equal(picture(Region("dog", Box(1.5, 2, 4.9, 99))), square(2, 1, 6, 5, 2))
    disc = picture(Region("cat", Disc(3, 3, 2)))
    assert disc.sum() == 13 and disc[3, 1] and disc[1, 3] and disc[2, 2] and not disc[1, 2]
    buffer = io.BytesIO()
    Image.fromarray(np.array([[0, 255, 255], [255, 0, 1]], dtype=np.uint8)).save(buffer, "PNG")
    patch = picture(Region("cat", Patch(-1, 4, 3, 2, buffer.getvalue())))
    assert np.argwhere(patch).tolist() == [[4, 0], [4, 1], [5, 1]]
    drawing = Drawing(__file__, "x", regions=(Region("cat", Patch(0, 0, 2, 2, buffer.getvalue())),))
    assert "3 x 2 pixels, but its points span 2 x 2" in refusal(draw, drawing, CLASSES, (8, 6))


def test_later_regions_lie_on_top() -> None:
    below, above = Region("cat", Box(0, 0, 5, 5)), Region("dog", Box(2, 2, 3, 3))
    assert picture(below, above)[2, 2] == 2
    assert picture(above, below)[2, 2] == 1


def test_without_an_order_small_regions_stay_visible() -> None:
    small = Region("dog", rings(flat(2, 2, 4, 4)))
    large = Region("cat", rings(flat(0, 0, 6, 6)))
    runs = Region("dog", Runs(6, 8, np.array([0, 6, 42])))
    for regions in ((small, large, runs), (runs, large, small), (large, small, runs)):
        mask = picture(*regions, largest_first=True)
        assert mask[2, 2] == 2 and mask[0, 0] == 2 and mask[0, 1] == 1


def test_regions_under_others_are_counted() -> None:
    boxes = [Box(0, 0, 3, 3), Box(1, 1, 2, 2), Box(0, 0, 1, 3), Box(2, 0, 3, 3), Box(50, 50, 60, 60)]
    drawing = Drawing(__file__, "x", regions=tuple(Region("cat", box) for box in boxes))
    drawn = draw(drawing, CLASSES, (8, 6))
    assert (drawn.empty, drawn.hidden) == (1, 2)
    many = [Region("cat", Box(x, y, x, y)) for x in range(20) for y in range(20)]
    drawing = Drawing(__file__, "x", regions=(*many, Region("dog", Box(0, 0, 0, 0))))
    drawn = draw(drawing, CLASSES, (20, 20))
    assert drawn.hidden == 1 and drawn.mask[0, 0] == 2 and (drawn.mask == 1).sum() == 399


def test_names_that_are_no_class() -> None:
    for name in ("void", "IGNORE", "Unlabelled", "unlabeled", "out of roi", "ego vehicle", "__ignore__"):
        assert value_of(name, CLASSES) == 255
    assert value_of("rectification border", CLASSES) == 255
    assert value_of("Background", CLASSES) == value_of("_background_", CLASSES) == 0
    assert [value_of(name, CLASSES) for name in CLASSES] == [1, 2]
    assert picture(Region("cat", Box(0, 0, 7, 5)), Region("background", Box(1, 1, 7, 5))).sum() == 8 + 5


def test_at_most_254_classes(tmp_path) -> None:
    names = [f"class {number}" for number in range(255)]
    assert len(classes_of([*names[:254], "void", "background"], tmp_path)) == 254
    assert "255 classes" in refusal(classes_of, names, tmp_path)
    assert "no class" in refusal(classes_of, ["void", "background"], tmp_path)


def test_regions_without_a_pixel_are_counted() -> None:
    far = Box(50, 50, 60, 60)
    regions = [far, Disc(-9, -9, 2), outline((20, 1), (30, 1), (30, 5)), rings(flat(20, 20, 30, 30))]
    drawing = Drawing(__file__, "x", regions=tuple(Region("cat", geometry) for geometry in regions))
    mask, empty, hidden = draw(drawing, CLASSES, (8, 6))
    assert (empty, hidden) == (4, 0) and not mask.any()


@pytest.mark.parametrize("kind", ["outline", "rings"])
@pytest.mark.parametrize("far", [1e3, 1e7, 1e100, 1.7e308])
def test_corners_far_away_are_cut_and_do_not_bend_what_is_inside(kind: str, far: float) -> None:
    """A half plane: everything right of x = 4, from -far to far."""
    points = [(4.0, -far), (far, -far), (far, far), (4.0, far)]
    geometry = (
        outline(*points) if kind == "outline" else rings([number for point in points for number in point])
    )
    assert np.array_equal(picture(Region("cat", geometry)), square(0, 4, 6, 8))


@pytest.mark.parametrize("seed", range(20))
def test_cutting_keeps_the_inside(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-300, 300, (9, 2))
    cut = clip(points, 20, 20)
    assert len(cut) == 0 or (cut.min() >= -20 and cut.max() <= 40)
    large = Image.new("L", (600, 600))
    for_both = []
    for polygon in (points, cut):
        canvas = large.copy()
        if len(polygon):
            ImageDraw.Draw(canvas).polygon([tuple(point) for point in (polygon + 300).tolist()], fill=1)
        for_both.append(np.asarray(canvas)[300:320, 300:320])
    assert (for_both[0] != for_both[1]).mean() < 0.06, "rounded corners may shift single pixels of a border"


def test_a_polygon_that_takes_for_ever_is_refused() -> None:
    points = np.tile([[-5000.0, -5000.0], [9000.0, 9000.0]], (400, 1))
    with pytest.raises(UserError, match="so many or so long edges"):
        picture(Region("cat", Rings((points,))), size=(5000, 5000))
    with pytest.raises(UserError, match="so many or so long edges"):
        picture(Region("cat", Outline(np.zeros((1_000_001, 2)))), size=(1, 1000))


def test_words_for_splits() -> None:
    told = {
        "instances_train2017": "train",
        "Validation": "val",
        "valid": "val",
        "test": "test",
        "train_extra": "train",
    }
    assert {word: split_of(word) for word in told} == told
    for word in ("latest", "interval", "default", "train_val", ""):
        assert split_of(word) is None
