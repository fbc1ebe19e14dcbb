"""The class index: read once, in order, kept under a fingerprint, rebuilt when damaged."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segue.core.classes import ClassTable
from segue.core.errors import UserError
from segue.data import check_files
from segue.data.datasets.base import Sample, SegDataset
from segue.data.datasets.voc import Config, Voc
from segue.data.index import cache_folder, class_index


class Counted(SegDataset):
    """Image i holds background and id i + 1; the later an image, the quicker it is checked."""

    classes = ClassTable("counted", {i: f"class {i}" for i in range(1, 100)})

    def __init__(self, images: int = 12, name: str = "a", broken: tuple[int, ...] = ()) -> None:
        self.images, self.name, self.broken = images, name, broken
        self.calls: list[int] = []
        self.lock = threading.Lock()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"image {i}" for i in range(self.images))

    def fingerprint(self) -> str:
        return f"{self.name} {self.images}"

    def read(self, index: int) -> Sample:
        with self.lock:
            self.calls.append(index)
        time.sleep(0.002 * (self.images - index) / self.images)
        if index in self.broken:
            raise UserError(f"{self.keys[index]} is broken.")
        mask = np.zeros((4, 4), dtype=np.uint8)
        mask[1, 2] = index + 1
        return Sample(self.keys[index], np.zeros((4, 4, 3), dtype=np.uint8), mask)


def expected(images: int) -> np.ndarray:
    present = np.zeros((images, 256), dtype=bool)
    present[:, 0] = True
    present[np.arange(images), np.arange(images) + 1] = True
    return present


def stored() -> Path:
    (path,) = (cache_folder() / "index").glob("*.index")
    return path


def test_rows_come_in_the_order_of_the_images() -> None:
    dataset = Counted(60)
    present = class_index(dataset)
    assert present.dtype == bool and np.array_equal(present, expected(60))
    assert sorted(dataset.calls) == list(range(60))


def test_second_call_reads_nothing() -> None:
    assert len(class_index(Counted())) == 12
    again = Counted()
    assert np.array_equal(class_index(again), expected(12))
    assert again.calls == []


def test_another_fingerprint_reads_anew() -> None:
    class_index(Counted())
    for other in (Counted(name="b"), Counted(11)):
        class_index(other)
        assert len(other.calls) == len(other)


def another_owner(content: bytes) -> bytes:
    """The index of other images of the same number."""
    class_index(Counted(name="b"))
    (other,) = [path for path in (cache_folder() / "index").glob("*.index") if path.read_bytes() != content]
    theirs = other.read_bytes()
    other.unlink()
    return theirs


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[:-7],
    "text": lambda content: b"nothing that anybody knows\n" * 10,
    "longer": lambda content: content + b"\0" * 32,
    "one bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "one bit of the digest": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "another owner": another_owner,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_cache_is_rebuilt(damage: Callable[[bytes], bytes]) -> None:
    class_index(Counted())
    content = stored().read_bytes()
    damaged = damage(content)
    assert damaged != content
    stored().write_bytes(damaged)
    again = Counted()
    assert np.array_equal(class_index(again), expected(12))
    assert len(again.calls) == 12
    assert stored().read_bytes() == content


def test_a_pipe_in_place_of_the_cache_is_no_trap() -> None:
    class_index(Counted())
    path = stored()
    path.unlink()
    os.mkfifo(path)
    assert np.array_equal(class_index(Counted()), expected(12))


def test_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SEGUE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # neither HOME nor an entry in passwd
    with pytest.raises(UserError, match="SEGUE_CACHE"):
        cache_folder()


def test_cache_that_cannot_be_written_only_costs_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SEGUE_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        dataset = Counted()
        assert np.array_equal(class_index(dataset), expected(12))
        assert len(dataset.calls) == 12


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SEGUE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "segue"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "segue"


def test_problems_are_listed_together_and_in_order() -> None:
    with pytest.raises(UserError) as caught:
        class_index(Counted(broken=(7, 2, 9)))
    assert str(caught.value).splitlines() == [f"image {i} is broken." for i in (2, 7, 9)]
    assert not list(cache_folder().rglob("*.index"))  # a bad data set is not remembered as a good one


def test_many_problems_are_counted() -> None:
    with pytest.raises(UserError) as caught:
        class_index(Counted(broken=tuple(range(3, 11))))
    lines = str(caught.value).splitlines()
    assert lines[:5] == [f"image {i} is broken." for i in range(3, 8)]
    assert lines[5:] == ["... and 3 more files with problems."]


def test_progress_is_told_as_images_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_files.os, "cpu_count", lambda: 1)
    told: list[tuple[int, int]] = []
    class_index(Counted(11), lambda done, total: told.append((done, total)))
    assert told == [(2, 11), (4, 11), (6, 11), (8, 11), (10, 11), (11, 11)]


# On files


def open_train(voc) -> Voc:
    return Voc(Config(root=str(voc.root)), "train")


def test_index_of_files(voc) -> None:
    present = class_index(open_train(voc))
    assert [np.flatnonzero(row).tolist() for row in present] == [
        [0, 1, 255],
        [0, 20, 255],
        [0, 15, 255],
        [0, 8, 255],
    ]


def test_cached_index_opens_no_file(voc, monkeypatch: pytest.MonkeyPatch) -> None:
    first, read = class_index(open_train(voc)), []
    check = Voc.check
    monkeypatch.setattr(Voc, "check", lambda self, index: read.append(index) or check(self, index))
    assert np.array_equal(class_index(open_train(voc)), first) and read == []
    os.utime(voc.mask_path("2007_2"), ns=(1, 1))
    assert np.array_equal(class_index(open_train(voc)), first) and sorted(read) == [0, 1, 2, 3]


def test_changed_mask_is_read_anew(voc) -> None:
    class_index(open_train(voc))
    voc.add("2007_2", 5)
    assert np.flatnonzero(class_index(open_train(voc))[1]).tolist() == [0, 5, 255]


def test_all_bad_files_are_named(voc) -> None:
    voc.mask_path("2007_1").unlink()
    voc.image_path("2007_3").write_bytes(b"nonsense")
    Image.new("L", (40, 30), 77).save(voc.mask_path("2007_4"))
    with pytest.raises(UserError) as caught:
        class_index(open_train(voc))
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "2007_1.png is missing" in lines[0]
    assert "2007_3.jpg is not an image" in lines[1]
    assert "2007_4.png holds the value 77" in lines[2] and "classes 1 to 20" in lines[2]


# In parallel


MANY_IMAGES = """
import numpy as np
from segue.core.classes import ClassTable
from segue.data.datasets.base import Sample, SegDataset
from segue.data.index import class_index

class Many(SegDataset):
    classes = ClassTable("many", {1: "thing"})
    keys = tuple(map(str, range(3000)))

    def __init__(self):
        pass

    def fingerprint(self):
        return "many"

    def read(self, index):
        return Sample(self.keys[index], np.zeros((1, 1, 3), np.uint8), np.ones((1, 1), np.uint8))

assert class_index(Many())[:, 1].all()
print("indexed")
"""
"""a script as users write it, without `if __name__ == "__main__"`"""


def test_script_runs_once_and_modules_of_the_current_folder_never(tmp_path: Path) -> None:
    """As processes that Python starts would do."""
    (tmp_path / "scripts").mkdir()
    script, here = tmp_path / "scripts" / "index.py", tmp_path / "here"
    script.write_text(MANY_IMAGES)
    here.mkdir()
    for name in ("numpy", "pickle", "types"):
        (here / f"{name}.py").write_text(f"open({str(here / 'executed')!r}, 'a').write('{name} ')")
    outcome = subprocess.run([sys.executable, script], cwd=here, capture_output=True, text=True)
    assert not (here / "executed").exists()
    assert (outcome.returncode, outcome.stdout) == (0, "indexed\n"), outcome.stderr


def test_ctrl_c_does_not_wait_for_the_rest() -> None:
    dataset = Counted(2000)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        class_index(dataset, stop)
    assert len(dataset.calls) < 500
