"""Lists of indices: read from any file without harm, held against the classes, compared with the rule."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.core.manifest import manifest
from segue.core.scenario import make_scenario
from segue.data import index_lists
from segue.data.index_lists import ListComparison, lists_to_keys, read_index_lists

ABC = ClassTable("abc", {1: "a", 2: "b", 3: "c"})
# The data set lists its images in an order of its own; indices count them by name.
KEYS = ("im3", "im0", "im2", "im1", "im4")
SHOWN = {"im0": {1}, "im1": {1, 3}, "im2": {2}, "im3": {3}, "im4": {0}}


def presence() -> np.ndarray:
    present = np.zeros((len(KEYS), 256), dtype=bool)
    for row, key in zip(present, KEYS, strict=True):
        row[list(SHOWN[key])] = True
    return present


def save(folder: Path, *lists: object) -> Path:
    folder.mkdir(exist_ok=True)
    for step, values in enumerate(lists):
        np.save(folder / f"train-{step}.npy", np.asarray(values))
    return folder


def npy(values: object, **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(values), **options)
    return file.getvalue()


def header(shape: object, descr: str = "<i8", body: bytes = b"") -> bytes:
    """An .npy file whose header promises something."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


# --- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<i8", ">i8", "<i4", "u1", "<u8"])
def test_lists_are_read_and_sorted(tmp_path: Path, dtype: str) -> None:
    folder = save(tmp_path / "lists", np.array([4, 0, 2], dtype=dtype), np.array([3], dtype=dtype))
    lists = read_index_lists(folder, 2)
    assert [indices.tolist() for indices in lists] == [[0, 2, 4], [3]]
    assert {indices.dtype for indices in lists} == {np.dtype(np.int64)}


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.npy", npy([1, 2]))
    return file.getvalue()


class Bomb:
    """Leaves a file behind if it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


BAD = {
    "empty file": (b"", "is not a NumPy file, or it is damaged"),
    "garbage": (b"\x00garbage" * 50, "is not a NumPy file"),
    "text": (b"1 2 3\n", "is not a NumPy file"),
    "zip": (zipped(), "is not a NumPy file"),
    "pickle": (pickle.dumps([1, 2]), "is not a NumPy file"),
    "objects": (npy(np.array([Bomb()], dtype=object)), "holds values of type object"),
    "magic only": (npy([1, 2])[:6], "is not a NumPy file"),
    "half a header": (npy([1, 2])[:60], "is not a NumPy file"),
    "header of nonsense": (header("[[[["), "is not a NumPy file"),
    "header of code": (header("__import__('os')"), "is not a NumPy file"),
    "header of another shape": (header("'x'"), "is not a NumPy file"),
    "other version": (b"\x93NUMPY\x09\x00" + npy([1, 2])[8:], "is not a NumPy file"),
    "long header": (b"\x93NUMPY\x01\x00\xff\xff" + b" " * 65535, "is not a NumPy file"),
    "truncated": (npy([1, 2, 3])[:-1], "should hold 3 numbers, but its size does not fit"),
    "longer": (npy([1, 2, 3]) + b"\0", "should hold 3 numbers, but its size does not fit"),
    "huge": (header((10**15,)), "should hold 1000000000000000 numbers"),
    "below zero": (header((-1,)), "its size does not fit"),
    "floats": (npy([1.0, 2.0]), "holds values of type float64; indices are whole numbers"),
    "bools": (npy([True, False]), "holds values of type bool"),
    "words": (npy(["a"]), "indices are whole numbers"),
    "dates": (npy(np.array([1], dtype="m8[s]")), "indices are whole numbers"),
    "records": (npy(np.zeros(2, dtype=[("a", "i4")])), "indices are whole numbers"),
    "2-d": (npy([[1, 2], [3, 4]]), "holds an array of 2 dimensions"),
    "0-d": (npy(3), "holds an array of 0 dimensions"),
    "no index": (npy(np.zeros(0, dtype=np.int64)), "is empty: it lists no image"),
    "negative": (npy([3, -2]), "holds -2, which is no index of an image"),
    "above": (npy(np.array([2**63 + 1], dtype=np.uint64)), "holds 9223372036854775809, which is no index"),
    "twice": (npy([3, 1, 3]), "holds the index 3 twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    content, message = BAD[name]
    folder = save(tmp_path / "lists", [0, 1])
    (folder / "train-1.npy").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_index_lists(folder, 2)
    assert str(caught.value).startswith(str(folder / "train-1.npy")) and message in str(caught.value)
    assert not Path("exploded").exists()


def test_any_damage_to_a_file_is_noticed_or_harmless(tmp_path: Path) -> None:
    whole, rng = npy(np.arange(20)), np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(0, len(whole), size=3):
            content[place] = rng.integers(256)
        folder = save(tmp_path / "lists")
        (folder / "train-0.npy").write_bytes(content[: rng.integers(1, len(whole) + 1)])
        try:
            (indices,) = read_index_lists(folder, 1)
            assert indices.min() >= 0 and len(set(indices.tolist())) == len(indices)
        except UserError:
            refused += 1
    assert refused > 250


def test_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_lists, "MOST_BYTES", 2**20)
    folder = save(tmp_path / "lists", np.zeros(2**18, dtype=np.int64))
    with pytest.raises(UserError, match=r"train-0\.npy is larger than 1 MB"):
        read_index_lists(folder, 1)


def test_missing_lists_are_named(tmp_path: Path) -> None:
    folder = save(tmp_path / "lists", [0], [1], [2])
    (folder / "train-0.npy").unlink()
    (folder / "train-2.npy").unlink()
    message = r"lists lacks train-0\.npy, train-2\.npy: 3 steps need train-0\.npy to train-2\.npy\."
    with pytest.raises(UserError, match=message):
        read_index_lists(folder, 3)
    with pytest.raises(UserError, match="There is no folder"):
        read_index_lists(tmp_path / "absent", 3)


def test_lists_of_another_split(tmp_path: Path) -> None:
    folder = save(tmp_path / "lists", [0], [1], [2])
    np.save(folder / "train-all.npy", [1])  # no list of a step
    with pytest.raises(UserError, match=r"holds train-2\.npy, but the split has 2 steps"):
        read_index_lists(folder, 2)
    assert len(read_index_lists(folder, 3)) == 3


# --- against a data set ---------------------------------------------------------------------------


def keys_of(*lists: list[int], mode: str = "overlapped"):
    scenario = make_scenario(ABC, "2-1", mode)
    return lists_to_keys(KEYS, [np.array(indices) for indices in lists], presence(), scenario)


def test_lists_of_the_rule() -> None:
    keys, comparisons = keys_of([0, 1, 2], [1, 3])
    assert keys == (("im0", "im2", "im1"), ("im3", "im1")), "counted by name, listed as the data set has them"
    assert comparisons == (ListComparison(0, 3, 0, 0), ListComparison(1, 2, 0, 0))
    assert all(comparison.same for comparison in comparisons)


def test_lists_of_the_rule_give_its_manifest() -> None:
    scenario = make_scenario(ABC, "2-1")
    by_rule = [[KEYS[image] for image in scenario.select(step, presence())] for step in scenario]
    assert manifest(scenario, keys_of([0, 1, 2], [1, 3])[0]) == manifest(scenario, by_rule)


def test_lists_that_differ_from_the_rule() -> None:
    """Disjoint takes images 0 and 2 (by name) for step 0, and 1 and 3 for step 1."""
    keys, comparisons = keys_of([0, 1], [3], mode="disjoint")
    assert keys == (("im0", "im1"), ("im3",))
    assert comparisons == (ListComparison(0, 2, 1, 1), ListComparison(1, 1, 1, 0))
    assert not any(comparison.same for comparison in comparisons)


def test_image_without_a_new_class_is_named() -> None:
    message = (
        r"train-1\.npy holds the index 0, but that image \('im0'\) shows no new class of step 1"
        r" \(2 such images\): the lists probably refer to another order or another list of images"
    )
    with pytest.raises(UserError, match=message):
        keys_of([0, 1, 2], [0, 1, 4])


def test_index_out_of_range() -> None:
    with pytest.raises(UserError, match=r"train-1\.npy holds the index 5, but there are 5 training images"):
        keys_of([0, 1, 2], [3, 5])
