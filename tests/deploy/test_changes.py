"""The images with most change: only ten are kept, small, and the difference is what it says."""

import numpy as np

from segue.deploy.changes import MAX_SIDE, MOST_IMAGES, MostChanged

CLASSES, COLOURS = ("background", "cat", "bird"), ((230, 230, 230), (200, 0, 0), (0, 0, 200))


def seen(*changed: int, size: tuple[int, int] = (4, 25)) -> MostChanged:
    """Images in which cat becomes bird on so many pixels; half of each image counts."""
    kept = MostChanged(CLASSES, COLOURS)
    for place, number in enumerate(changed):
        before = np.ones(size, dtype=np.uint8)
        after = before.copy()
        after.flat[:number] = 2
        counted = np.zeros(size, dtype=bool)
        counted[: size[0] // 2] = True
        kept.see(f"n{place}", np.full((*size, 3), 100, dtype=np.uint8), before, after, counted)
    return kept


def test_the_largest_changes_stay_and_the_first_of_equals():
    found = seen(*range(20, 0, -1), 30, 20).changes()
    assert len(found) == MOST_IMAGES
    assert [change.key for change in found[:4]] == ["n20", "n0", "n21", "n1"]
    assert found[0].share == 60 and found[0].what == "cat → bird"


def test_a_difference_shows_pixels_that_count():
    (change,) = seen(60).changes()
    picture = np.asarray(change.difference)
    assert (picture[:2] == COLOURS[2]).all(), "cat became bird where nothing new is drawn"
    assert (picture[2:] == picture[3, 3, 0]).all(), "elsewhere the image in grey"
    assert tuple(np.asarray(change.before)[0, 0]) == COLOURS[1]
    assert tuple(np.asarray(change.after)[0, 0]) == COLOURS[2]


def test_pictures_are_small_and_nothing_changed_is_no_change():
    (change,) = seen(0, size=(900, 30)).changes()
    pictures = (change.image, change.before, change.after, change.difference)
    assert {picture.size for picture in pictures} == {(11, MAX_SIDE)}
    assert change.share == 0 and change.what == ""


def test_the_legend_names_what_is_shown():
    assert [(entry.name, entry.new) for entry in seen(9).legend(known=2)] == [
        ("background", False),
        ("cat", False),
        ("bird", True),
    ]
    assert [entry.name for entry in seen(0).legend(known=2)] == ["background", "cat"]
