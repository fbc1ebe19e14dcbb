"""Pictures of where two models answer otherwise."""

import numpy as np

from segue.deploy.difference import DIMMED, difference, thinned

COLOURS = [(0, 0, 0), (200, 10, 30)]


def test_the_new_answer_stands_where_it_is_another_one() -> None:
    image = np.full((2, 3, 3), 100, dtype=np.uint8)
    after = np.ones((2, 3), dtype=np.uint8)
    differs = np.array([[True, False, False], [False, False, True]])
    found = np.asarray(difference(image, after, differs, COLOURS))
    assert (found[differs] == COLOURS[1]).all()
    assert (found[~differs] == round(100 * DIMMED)).all()


def test_places_are_spread_evenly() -> None:
    assert thinned(9, 3).tolist() == [1, 4, 7]
    assert thinned(4, 4).tolist() == [0, 1, 2, 3]
