"""Files of weights from elsewhere: what is not weights is refused in a sentence, and nothing is run."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from segue.core.errors import UserError
from segue.models.weights_file import open_weights


class Bad:
    """A pickle that would write a file when it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def strange_tensors() -> dict[str, torch.Tensor]:
    dense = torch.eye(3)
    return {
        "sparse": dense.to_sparse(),
        "meta": torch.empty(3, 3, device="meta"),
    }


@pytest.mark.filterwarnings("ignore:.*[Ss]parse")
@pytest.mark.parametrize("kind", ["sparse", "meta"])
@pytest.mark.parametrize("inside", [False, True])
def test_tensors_that_no_network_has_are_named(kind: str, inside: bool, tmp_path: Path) -> None:
    state: dict[str, Any] = {"conv.weight": strange_tensors()[kind]}
    torch.save({"state_dict": state} if inside else state, tmp_path / "a.pth")
    with pytest.raises(UserError, match=r"conv\.weight"):
        open_weights(tmp_path / "a.pth")


def test_code_is_not_run_and_pytorch_does_not_talk(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / "a.pth").write_bytes(pickle.dumps({"a": Bad(made)}))
    with pytest.raises(UserError, match=r"a\.pth") as caught:
        open_weights(tmp_path / "a.pth")
    assert not made.exists() and "weights_only" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02}", b"no weights at all" * 99])
@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_damaged_files_are_a_sentence(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name) as caught:
        open_weights(tmp_path / name)
    assert len(str(caught.value)) < 500


def test_archive_that_unpacks_without_end_is_not_unpacked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("segue.models.weights_file.UNPACKED_BYTES", 2**20)
    path = tmp_path / "w.pth"
    torch.save({"a": torch.zeros(1)}, path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/data/1", bytes(2**20 + 1))
    with pytest.raises(UserError, match=r"w\.pth would unpack to far more"):
        open_weights(path)


def test_pipes_and_folders_are_no_weights(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pth")
    (tmp_path / "folder.pth").mkdir()
    for name in ("pipe.pth", "folder.pth", "nothing.pth"):
        with pytest.raises(UserError, match=name) as caught:
            open_weights(tmp_path / name)
        assert "Errno" not in str(caught.value)
