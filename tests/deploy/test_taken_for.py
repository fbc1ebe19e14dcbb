"""What a new object was taken for does not count as a loss of old classes; other regions of the class do."""

from __future__ import annotations

import numpy as np

from segue.deploy.taken_for import taken_for_new

DOG, CAT = 1, 2


def scene(side: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A drawn bird, void around it, a dog over both and beyond; another dog, a cat beside the first."""
    before, drawn, void = (np.zeros((side, side), dtype=kind) for kind in (np.uint8, bool, bool))
    drawn[2:4, 2:4] = True
    void[1:5, 1:5] = ~drawn[1:5, 1:5]
    before[2:8, 2:8] = DOG
    before[2:8, 8:10] = CAT
    before[10:, 10:] = DOG
    return before, drawn, void


def test_the_whole_region_under_a_new_object_and_no_other() -> None:
    before, drawn, void = scene()
    found = taken_for_new(before, drawn, void)
    assert found[2:8, 2:8].all(), "the dog that was a bird"
    assert not found[10:, 10:].any() and not found[2:8, 8:10].any(), "another dog, and a cat beside it"
    assert not found[before == 0].any()


def test_a_region_beside_the_void_rim_counts_as_touching() -> None:
    before, drawn, void = scene()
    before[:] = 0
    before[5, 1:5] = DOG
    assert taken_for_new(before, drawn, void)[5, 1:5].all()


def test_nothing_drawn_nothing_found() -> None:
    before, drawn, void = scene()
    assert not taken_for_new(before, np.zeros_like(drawn), void).any()


def test_large_images_are_searched_at_a_smaller_size() -> None:
    large = [np.kron(each, np.ones((100, 100), each.dtype)).astype(each.dtype) for each in scene()]
    found = taken_for_new(*large)
    assert found.shape == large[0].shape and found[300:700, 300:700].all() and not found[1000:, 1000:].any()
