"""The folder of predictions on a disk that fails: a sentence, never a traceback."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from segue.core.errors import UserError
from segue.deploy import outputs
from segue.deploy.outputs import Folder, Record

RECORD = Record("a.png", "a", 4, 4, {"background": 16}, 0.5, 0.1)


class FullFile:
    """A file on a disk without room."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, content: bytes) -> None:
        self.file.write(content)

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        self.file.close()
        self.flush()


def test_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = outputs.append_file
    monkeypatch.setattr(outputs, "append_file", lambda *args: FullFile(append(*args)))
    with pytest.raises(UserError, match="No space"), Folder(tmp_path / "out", "", False) as out:
        out.finish(RECORD, "", [])


def test_journal_that_cannot_be_opened_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(outputs, "append_file", refused)
    with pytest.raises(UserError, match="Permission"):
        Folder(tmp_path / "out", "", False)


def test_a_link_in_the_place_of_a_mask_is_no_mask(tmp_path: Path) -> None:
    root, mask = tmp_path / "out", tmp_path / "out" / "a.png"
    with Folder(root, "", False) as out:
        mask.write_bytes(b"mask")
        out.finish(RECORD, "", ["a.png"])
    with Folder(root, "", True) as out:
        assert out.finished("a.png", "a", "") == RECORD
    mask.rename(tmp_path / "elsewhere.png")
    mask.symlink_to(tmp_path / "elsewhere.png")
    with Folder(root, "", True) as out:
        assert out.finished("a.png", "a", "") is None
