"""The paired bootstrap: by hand, and by construction."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from segue.core.bootstrap import mean_ious, paired_interval
from segue.core.errors import UserError
from segue.core.image_counts import ImageCounts, counts_file, digest, read_counts
from segue.core.metrics import iou, mean


def counts(matrices: np.ndarray) -> np.ndarray:
    """Counts of images with these confusion matrices (N x C x C)."""
    return np.stack([np.diagonal(matrices, axis1=1, axis2=2), matrices.sum(2), matrices.sum(1)], axis=1)


def some(images: int = 40, channels: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 50, (images, channels, channels))


def test_all_images_once_give_the_mean_iou_of_the_confusion_matrix() -> None:
    matrices = some()
    (found,) = mean_ious(counts(matrices), np.ones((1, len(matrices))), [1, 2, 3])
    assert found == pytest.approx(mean(iou(matrices.sum(0))[1:]))


def test_a_class_without_ground_truth_is_left_out() -> None:
    matrices = np.zeros((2, 3, 3), int)
    matrices[:, 1, 1], matrices[:, 0, 2] = 5, 5  # class 2 is predicted and never there
    assert mean_ious(counts(matrices), np.ones((1, 2)), [1, 2]) == pytest.approx([1.0])


def test_draws_without_the_class_are_left_out() -> None:
    seen, unseen = np.zeros((1, 2, 2), int) + np.diag([0, 4]), np.zeros((2, 2, 2), int) + np.diag([4, 0])
    ours = counts(np.concatenate([seen, unseen]))
    found = paired_interval([ours], [ours], [1])
    assert (found.difference, found.low, found.high) == (0, 0, 0)
    never = paired_interval([ours[1:]], [ours[1:]], [1])
    assert np.isnan([never.difference, never.low, never.high]).all() and not never.clear


def test_equal_methods_differ_by_nothing() -> None:
    same = counts(some())
    found = paired_interval([same], [same], [1, 2, 3], rounds=50)
    assert (found.difference, found.low, found.high) == (0, 0, 0) and not found.clear


def test_a_method_that_is_better_on_every_image_is_clearly_better() -> None:
    worse, better = some(), some()
    for channel in range(4):
        better[:, channel, channel] += 200
    found = paired_interval([counts(better)] * 2, [counts(worse)] * 2, [1, 2, 3], rounds=200)
    assert 0 < found.low <= found.difference <= found.high and found.clear
    other_way = paired_interval([counts(worse)], [counts(better)], [1, 2, 3], rounds=200)
    assert other_way.difference == pytest.approx(-found.difference) and other_way.clear


def test_pairs_cancel_what_makes_images_hard() -> None:
    """An image that is hard for both widens the interval of unpaired scores, not that of the difference."""
    rng = np.random.default_rng(1)
    easy = rng.integers(0, 2, 60)
    matrices = np.zeros((60, 2, 2), int)
    matrices[:, 1, 1], matrices[:, 1, 0] = 100 * easy, 100 * (1 - easy)
    slightly = matrices.copy()
    slightly[:, 1, 1] += 1
    found = paired_interval([counts(slightly)], [counts(matrices)], [1], rounds=300)
    assert found.high - found.low < 1 and found.clear


def test_other_images_or_other_seeds_are_refused() -> None:
    with pytest.raises(UserError, match="same images"):
        paired_interval([counts(some(40))], [counts(some(39))], [1])
    with pytest.raises(UserError, match="same seeds"):
        paired_interval([counts(some())], [], [1])


def test_counts_are_read_as_they_were_written(tmp_path: Path) -> None:
    stored = ImageCounts(counts(some()), digest(["a", "b"]))
    assert read_counts(tmp_path, 2) is None
    stored.write(tmp_path, 2)
    again = read_counts(tmp_path, 2)
    assert again is not None and again.images == stored.images != digest(["b", "a"])
    assert (again.counts == stored.counts).all()
    counts_file(tmp_path, 2).write_bytes(b"no such file")
    with pytest.raises(UserError, match=r"2\.npz does not hold counts"):
        read_counts(tmp_path, 2)


def packed(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def claiming(shape: tuple[int, ...]) -> bytes:
    """A file whose header speaks of more numbers than it holds."""
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("counts.npy", header.getvalue())
    return file.getvalue()


STRANGE = {
    "one array": packed(counts=np.ones(3))[:60],
    "floats": packed(counts=np.ones((1, 3, 2)), images=np.array("x")),
    "complex": packed(counts=1j * np.ones((1, 3, 2)), images=np.array("x")),
    "more than memory": claiming((10**12, 3, 4)),
    "unpacks to too much": packed(
        counts=np.zeros((2**16 + 1, 3, 1024 // 3 + 1), np.int32), images=np.array("x")
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_strange_counts_are_a_sentence(tmp_path: Path, name: str) -> None:
    path = counts_file(tmp_path, 0)
    path.parent.mkdir()
    path.write_bytes(STRANGE[name])
    with pytest.raises(UserError, match="does not hold counts"):
        read_counts(tmp_path, 0)


def test_damaged_counts_are_a_sentence_or_counts(tmp_path: Path) -> None:
    whole = ImageCounts(counts(some()), digest(["a"])).to_bytes()
    path, chance = counts_file(tmp_path, 0), np.random.default_rng(0)
    path.parent.mkdir()
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.integers(len(whole))] = chance.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(UserError):
            found = read_counts(tmp_path, 0)
            assert found is not None and found.counts.min() >= 0
