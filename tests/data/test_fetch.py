"""Getting data sets: servers that misbehave, archives got by hand, and archives that are traps."""

import dataclasses
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from segue.core.errors import UserError
from segue.data.fetch import download
from segue.data.fetch.fetch import fetch_data
from segue.data.fetch.sources import SOURCES

VOC = SOURCES["voc"].archives[0]
ROOT = "VOCdevkit/VOC2012"
CONTENT = {"JPEGImages/1.jpg": b"image" * 900, "SegmentationClass/1.png": b"mask"}
CONTENT["ImageSets/Segmentation/train.txt"] = b"1\n"
MOST = 100_000


def tar_of(*members: tuple[str, bytes, dict]) -> bytes:
    """A tar of the content of VOC and of further members: name, content, fields of the header."""
    data = io.BytesIO()
    plain = [(f"{ROOT}/{name}", content, {}) for name, content in CONTENT.items()]
    with tarfile.open(fileobj=data, mode="w") as packed:
        for name, content, fields in [("x.txt", b"not wanted", {}), *plain, *members]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            packed.addfile(info, io.BytesIO(content))
    return data.getvalue()


def zip_of(*members: tuple[str, bytes, int], top: str = ROOT) -> bytes:
    """A zip of the content of VOC and of further members: name, content, mode."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in CONTENT.items():
            packed.writestr(f"{top}/{name}", content)
        for name, content, mode in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, content, zipfile.ZIP_DEFLATED)
    return data.getvalue()


TAR = tar_of()


class Server(ThreadingHTTPServer):
    """Serves `data`. `troubles` names what goes wrong at each request; then all is well."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.troubles, self.paths = TAR, [], []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/files"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        trouble = self.server.troubles.pop(0) if self.server.troubles else "none"
        self.send_response(trouble if isinstance(trouble, int) else 200)
        data = b"<!DOCTYPE html><p>Log in" if trouble == "page" else self.server.data
        if trouble != "longer":
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:5000] if trouble == "drops" else data)
        if trouble == "longer":
            self.wfile.write(b"and more")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def small_world(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A VOC of 10 kB; retries do not wait. Returns the waits."""
    waits: list[float] = []
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("pooch.core.time.sleep", waits.append)
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(download, "CHUNK", 1000)
    publish(monkeypatch, TAR)
    return waits


def publish(monkeypatch: pytest.MonkeyPatch, data: bytes, archive_name: str = VOC.name) -> None:
    """Make `data` the published archive of VOC: its size and digest are right."""
    archive = dataclasses.replace(
        VOC, name=archive_name, size=len(data), sha256=hashlib.sha256(data).hexdigest(), unpacked=MOST // 2
    )
    monkeypatch.setitem(SOURCES, "voc", dataclasses.replace(SOURCES["voc"], archives=(archive,)))


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in sorted(folder.rglob("*")) if not path.is_dir())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


UNPACKED = {f"{ROOT}/{name}": content for name, content in CONTENT.items()}
WHOLE = {**UNPACKED, VOC.name: TAR}


def refusal(function: Callable, *arguments) -> str:
    """The sentence of a refusal, which leaves no temporary folder behind."""
    with pytest.raises(UserError) as caught:
        function(*arguments)
    out = arguments[1]
    assert not out.exists() or not list(out.glob(".*"))
    return str(caught.value)


def test_download_check_unpack_once(server, tmp_path, capsys):
    assert fetch_data("voc", tmp_path, mirror=server.url + "/") == tmp_path / ROOT
    assert tree(tmp_path) == WHOLE and server.paths == [f"/files/{VOC.name}"]
    out, err = capsys.readouterr()
    assert "no longer needed" in err
    assert "train_aug.txt" in out and SOURCES["voc"].terms in out
    (tmp_path / ROOT / "SegmentationClassAug").mkdir()
    fetch_data("voc", tmp_path, mirror=server.url)
    out, err = capsys.readouterr()
    assert "already there" in err and "train_aug.txt" not in out and len(server.paths) == 1


@pytest.mark.parametrize("trouble", ["drops", 500, 503])
def test_trouble_that_passes(server, tmp_path, small_world, capsys, trouble):
    server.troubles = [trouble] * 2
    fetch_data("voc", tmp_path, mirror=server.url)
    assert tree(tmp_path) == WHOLE and len(server.paths) == 3 and len(small_world) == 2
    assert capsys.readouterr().err.count(f"{VOC.name}: the ") == 2


@pytest.mark.parametrize(
    ("trouble", "reason", "requests"),
    [
        ("drops", "5000 bytes read", 5),
        (500, "500 Internal Server Error", 5),
        (404, "404 Not Found", 1),
        (403, "403 Forbidden", 1),
        ("page", "web page", 1),
        ("longer", f"longer than the {len(TAR):,} bytes", 1),
    ],
)
def test_trouble_that_stays_then_repeated(server, tmp_path, trouble, reason, requests):
    server.troubles = [trouble] * requests
    message = refusal(fetch_data, "voc", tmp_path, [], server.url)
    assert reason in message and f"{server.url}/{VOC.name}" in message and "--archive" in message
    assert len(server.paths) == requests and tree(tmp_path) == {}
    fetch_data("voc", tmp_path, mirror=server.url)
    assert tree(tmp_path) == WHOLE


def test_wrong_digest(server, tmp_path):
    server.data = TAR.replace(b"mask", b"MASK")
    message = refusal(fetch_data, "voc", tmp_path, [], server.url)
    assert hashlib.sha256(TAR).hexdigest() in message and tree(tmp_path) == {}


def test_nobody_answers(tmp_path):
    with Server() as closed_again:
        url = closed_again.url
    assert "refused" in refusal(fetch_data, "voc", tmp_path, [], url)


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "file:///etc", "/x", "http://", "http://[", "http://me:secret@a"]
)
def test_mirror_must_be_on_the_web(tmp_path, url):
    message = refusal(fetch_data, "voc", tmp_path, [], url)
    assert "is not an address" in message and "secret" not in message


def test_stopped_while_unpacking_then_repeated(server, tmp_path, monkeypatch):
    def stop(*_) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "sync", stop)  # all is unpacked, not yet in its place
        fetch_data("voc", tmp_path, mirror=server.url)
    assert tree(tmp_path) == {VOC.name: TAR}
    fetch_data("voc", tmp_path, mirror=server.url)
    assert tree(tmp_path) == WHOLE and len(server.paths) == 1  # the archive was not fetched again


def test_leftovers_of_a_killed_command_are_told_and_not_used(server, tmp_path, capsys):
    (tmp_path / ".fetch-old").mkdir()
    (tmp_path / ".fetch-old" / VOC.name).write_bytes(TAR[:5000])
    fetch_data("voc", tmp_path, mirror=server.url)
    assert tree(tmp_path) == {**WHOLE, f".fetch-old/{VOC.name}": TAR[:5000]}
    assert str(tmp_path / ".fetch-old") in capsys.readouterr().err


def test_disk_that_is_too_small_or_fills_up(server, tmp_path, monkeypatch):
    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(download.requests.Response, "iter_content", lambda *_: map(full, "x"))
        assert "No space left on device" in refusal(fetch_data, "voc", tmp_path, [], server.url)
    usage = shutil.disk_usage(tmp_path)._replace(free=MOST // 2 + len(TAR) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert "are free" in refusal(fetch_data, "voc", tmp_path, [], server.url)
    assert len(server.paths) == 1 and tree(tmp_path) == {}


def test_folders_in_the_way(server, tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    assert "Cannot fetch voc" in refusal(fetch_data, "voc", tmp_path / "file" / "data", [], server.url)
    (tmp_path / ROOT / "JPEGImages").mkdir(parents=True)
    assert "lacks one of" in refusal(fetch_data, "voc", tmp_path, [], server.url)


def test_archive_by_hand(tmp_path):
    mine = tmp_path / "renamed (1).tar"
    mine.write_bytes(TAR)
    fetch_data("voc", tmp_path / "data", [mine])
    assert tree(tmp_path / "data") == UNPACKED and mine.read_bytes() == TAR


def test_archives_that_are_not_the_right_ones(server, tmp_path):
    mine = tmp_path / VOC.name
    other = TAR.replace(b"mask", b"MASK")
    for data, reason in {TAR[:-1]: f"{len(TAR) - 1:,} bytes", other: "SHA-256"}.items():
        mine.write_bytes(data)
        message = refusal(fetch_data, "voc", tmp_path / "data", [mine])
        assert reason in message and str(mine) in message
    assert "does not exist" in refusal(fetch_data, "voc", tmp_path / "data", [tmp_path / "none"])
    assert "is no file" in refusal(fetch_data, "voc", tmp_path / "data", [tmp_path])
    assert "SHA-256" in refusal(
        fetch_data, "voc", tmp_path, [], server.url
    )  # found in the folder: not replaced
    assert mine.read_bytes() == other and server.paths == []


def test_cityscapes_needs_both_archives_by_hand(tmp_path, monkeypatch):
    files, archives = [], []
    for archive in SOURCES["cityscapes"].archives:
        data = zip_of((f"{archive.top}/train/1.png", b"1", 0), (f"{archive.top}/val/2.png", b"2", 0))
        files.append(tmp_path / archive.name)
        files[-1].write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        archives.append(dataclasses.replace(archive, size=len(data), sha256=digest, unpacked=MOST))
    source = dataclasses.replace(SOURCES["cityscapes"], archives=tuple(archives))
    monkeypatch.setitem(SOURCES, "cityscapes", source)
    out = tmp_path / "my data"
    message = refusal(fetch_data, "cityscapes", out, files[:1])
    assert source.page in message and f"--out '{out}' --archive {files[0]}" in message
    assert "  leftImg8bit_trainvaltest.zip (" in message and "  gtFine_trainvaltest.zip (" not in message
    fetch_data("cityscapes", out, files)
    parts = [(top, part) for top in ("gtFine", "leftImg8bit") for part in ("train/1.png", "val/2.png")]
    assert sorted(tree(out)) == [f"cityscapes/{top}/{part}" for top, part in parts]
    shutil.rmtree(out / "cityscapes/gtFine")
    fetch_data("cityscapes", out, files[:1])
    assert len(tree(out)) == 4


def test_sources_are_complete():
    for name, source in SOURCES.items():
        for archive in source.archives:
            assert re.fullmatch("[0-9a-f]{64}", archive.sha256)
            assert archive.holds and archive.unpacked > 0 and archive.folder.startswith(source.root)
            assert (archive.site is None) == (name == "cityscapes") == bool(source.page)


LINK, DEVICE = stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o600
TRAPS = {
    "tar: out": tar_of((f"{ROOT}/../../../evil", b"x", {})),
    "tar: absolute": tar_of(("/evil", b"x", {})),
    "tar: drive": tar_of(("C:/evil", b"x", {})),
    "tar: backslashes": tar_of(("a\\..\\..\\evil", b"x", {})),
    "tar: symbolic link": tar_of((f"{ROOT}/a", b"", {"type": tarfile.SYMTYPE, "linkname": "JPEGImages"})),
    "tar: hard link": tar_of((f"{ROOT}/a", b"", {"type": tarfile.LNKTYPE, "linkname": "x.txt"})),
    "tar: device": tar_of((f"{ROOT}/a", b"", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3})),
    "tar: pipe": tar_of((f"{ROOT}/a", b"", {"type": tarfile.FIFOTYPE})),
    "tar: bomb": tar_of((f"{ROOT}/a", bytes(MOST), {})),
    "tar: cut off": TAR[:3000],
    "tar: another": zip_of(),
    "zip: out": zip_of(("../evil", b"x", 0)),
    "zip: absolute": zip_of(("/evil", b"x", 0)),
    "zip: backslashes": zip_of(("..\\evil", b"x", 0)),
    "zip: symbolic link": zip_of((f"{ROOT}/a", b"/etc", LINK)),
    "zip: device": zip_of((f"{ROOT}/a", b"", DEVICE)),
    "zip: bomb": zip_of((f"{ROOT}/a", bytes(MOST), 0)),
    "zip: bomb that lies": zip_of((f"{ROOT}/a", bytes(MOST), 0)).replace(
        MOST.to_bytes(4, "little"), (9).to_bytes(4, "little")
    ),
    "zip: cut off": zip_of()[:-30],
    "zip: other content": zip_of(top="other"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_traps_leave_nothing(tmp_path, monkeypatch, trap):
    """A digest that fits a hostile archive is of no help to it."""
    data, kind = TRAPS[trap], trap[:3]
    publish(monkeypatch, data, f"archive.{kind}")
    file = tmp_path / f"trap.{kind}"
    file.write_bytes(data)
    assert f"{file} is not unpacked: " in refusal(fetch_data, "voc", tmp_path / "data", [file])
    assert tree(tmp_path) == {file.name: data}


def test_python_without_the_data_filter(tmp_path, monkeypatch):
    monkeypatch.delattr(tarfile, "data_filter")
    (tmp_path / "mine.tar").write_bytes(TAR)
    assert "3.11.4" in refusal(fetch_data, "voc", tmp_path / "data", [tmp_path / "mine.tar"])
