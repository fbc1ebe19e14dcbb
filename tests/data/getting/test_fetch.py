"""Getting data sets from servers that misbehave in every way, and through kills at every moment."""

import dataclasses
import gc
import hashlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from segue.core.errors import UserError
from segue.data.getting import download, fetch
from segue.data.getting.sources import SOURCES, Archive, Source

NAME = "VOCtrainval_11-May-2012.tar"
CONTENT = {
    "JPEGImages/1.jpg": random.Random(1).randbytes(9000),
    "SegmentationClass/1.png": b"mask",
    "ImageSets/Segmentation/train.txt": b"1\n",
}


def make_tar() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in {"x.txt": b"not wanted", **CONTENT}.items():
            info = tarfile.TarInfo(name if name == "x.txt" else f"VOCdevkit/VOC2012/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


TAR = make_tar()
HALF = len(TAR) // 2
OTHER = TAR.replace(b"mask", b"MASK")


class Server(ThreadingHTTPServer):
    """Serves one file. `plan` names what goes wrong at each request; then all is well."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.plan, self.etag, self.modified = TAR, [], '"v1"', ""
        self.always: str | None = None
        self.requests: list[dict[str, str]] = []
        self.go_on = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/files"

    def handle_error(self, request, client_address) -> None:
        """A client that hung up is no error."""

    @property
    def ranges(self) -> list[str | None]:
        return [request.get("Range") for request in self.requests]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words) -> None:
        """Silent."""

    def do_GET(self) -> None:
        server = self.server
        server.requests.append(dict(self.headers))
        action = server.always or (server.plan.pop(0) if server.plan else "good")
        word, _, rest = action.partition(" ")
        getattr(self, word)(rest)

    def head(self, code: int, **headers) -> None:
        self.send_response(code)
        for name, value in {
            "ETag": self.server.etag,
            "Last-Modified": self.server.modified,
            **headers,
        }.items():
            if value != "":
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def good(self, rest: str = "") -> None:
        data, start = self.server.data, 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and self.headers.get("If-Range", self.server.etag) in (
            self.server.etag,
            self.server.modified,
        ):
            start = int(asked[1])
            span = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.head(206, Content_Length=len(data) - start, Content_Range=span)
        else:
            self.head(200, Content_Length=len(data))
        end = start + int(rest) if rest else None
        self.wfile.write(data[start:end])

    def ends_after(self, rest: str) -> None:
        self.good(rest)

    def stalls_after(self, rest: str) -> None:
        self.good(rest)
        self.wfile.flush()
        self.server.go_on.wait(20)

    def whole(self, rest: str) -> None:
        self.head(200, Content_Length=len(self.server.data))
        self.wfile.write(self.server.data)

    def code(self, rest: str) -> None:
        self.head(int(rest), Content_Length=4)
        self.wfile.write(b"oops")

    def nothing(self, rest: str) -> None:
        self.close_connection = True

    def no_http(self, rest: str) -> None:
        self.wfile.write(b"SSH-2.0-hello\r\n")

    def page(self, rest: str) -> None:
        self.head(200, Content_Type=rest or "text/html; charset=utf-8")
        self.wfile.write(b"\n<!DOCTYPE html><p>Log in, please" + bytes(len(TAR)))

    def longer(self, rest: str) -> None:
        start = HALF if "Range" in self.headers and rest == "also" else 0
        span = f"bytes {start}-{len(TAR) - 1}/{len(TAR)}"
        self.head(206 if start else 200, **({"Content_Range": span} if start else {}))
        self.wfile.write(self.server.data[start:] + b"and more")

    def announced_longer(self, rest: str) -> None:
        self.head(200, Content_Length=len(TAR) + 7)
        self.wfile.write(TAR + b"7 bytes")

    def wrong_piece(self, rest: str) -> None:
        self.head(206, Content_Length=10, Content_Range=rest)
        self.wfile.write(b"0123456789")

    def redirect(self, rest: str) -> None:
        self.head(302, Location=rest or self.server.url + "/elsewhere", Content_Length=0)


@pytest.fixture(scope="module", autouse=True)
def quick_collection() -> Iterator[None]:
    """The garbage of a test is found without a look at all else that is loaded."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.go_on.set()
        running.shutdown()
        thread.join()
    gc.collect()  # a socket left open would be a warning, and so an error, here


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits between attempts, which do not take place."""
    done: list[float] = []
    monkeypatch.setattr(download.time, "sleep", done.append)
    return done


@pytest.fixture(autouse=True)
def small_world(monkeypatch: pytest.MonkeyPatch, waits: list[float]) -> None:
    """A VOC of 20 kB that is read in small pieces."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr(download, "CHUNK", 1000)
    monkeypatch.setattr(download, "TIMEOUT", 5.0)
    small = dataclasses.replace(
        SOURCES["voc"].archives[0], size=len(TAR), sha256=hashlib.sha256(TAR).hexdigest(), unpacked=100_000
    )
    monkeypatch.setitem(SOURCES, "voc", dataclasses.replace(SOURCES["voc"], archives=(small,)))


@pytest.fixture
def get(server: Server, tmp_path: Path) -> Callable[..., fetch.Fetched]:
    """`segue data fetch voc` from the server; what it says is in get.said."""

    def call(**options) -> fetch.Fetched:
        return fetch.fetch("voc", tmp_path / "data", base_url=server.url, say=call.said.append, **options)

    call.said = []
    return call


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def is_whole(folder: Path) -> bool:
    """The data set is there, with its archive, and nothing else."""
    wanted = {f"VOCdevkit/VOC2012/{name}": data for name, data in CONTENT.items()}
    return tree(folder) == {**wanted, NAME: TAR}


def refusal(function: Callable, *arguments, **options) -> str:
    with pytest.raises(UserError) as caught:
        function(*arguments, **options)
    return str(caught.value)


# All is well


def test_download_check_unpack(get, server, tmp_path):
    seen = []
    fetched = get(advance=lambda *step: seen.append(step))
    assert fetched.root == tmp_path / "data/VOCdevkit/VOC2012" and fetched.new
    assert is_whole(tmp_path / "data")
    assert list(dict.fromkeys(title for title, _, _ in seen)) == [
        f"{word} {NAME}" for word in ("Downloading", "Checking", "Unpacking")
    ]
    for title in {title for title, _, _ in seen}:
        steps = [step[1:] for step in seen if step[0] == title]
        assert steps == sorted(steps) and steps[-1] == (len(TAR), len(TAR))
    assert server.ranges == [None]
    assert "no longer needed" in get.said[-1] and str(tmp_path / "data" / NAME) in get.said[-1]


def test_second_call_does_nothing(get, server, tmp_path, monkeypatch):
    get()
    before = tree(tmp_path)
    monkeypatch.delattr(fetch, "_alone")  # not even a lock: the folder may be read-only
    assert get().new is False
    assert tree(tmp_path) == before and len(server.requests) == 1
    assert "already there" in get.said[-1] and "Nothing was done" in get.said[-1]


def test_note_says_how_to_get_sbd_until_it_is_there(get, tmp_path):
    root = tmp_path / "data/VOCdevkit/VOC2012"
    note = get().note
    for fact in (
        "10,582",
        f"{root}/SegmentationClassAug/*.png",
        f"{root}/ImageSets/Segmentation/train_aug.txt",
    ):
        assert fact in note
    (root / "SegmentationClassAug").mkdir()
    assert get().note == ""


def test_sources_are_complete():
    for name, source in SOURCES.items():
        for archive in source.archives:
            assert re.fullmatch("[0-9a-f]{64}", archive.sha256)
            assert archive.holds and archive.unpacked > 0 and archive.folder.startswith(source.root)
            assert (archive.site is None) == (name == "cityscapes") == bool(source.page)


def test_archive_that_lies_there_is_used(get, server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / NAME).write_bytes(TAR)
    get()
    assert is_whole(tmp_path / "data") and server.requests == []


def test_archive_that_lies_there_and_is_broken_is_left(get, server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / NAME).write_bytes(OTHER)
    message = refusal(get)
    assert hashlib.sha256(OTHER).hexdigest() in message and hashlib.sha256(TAR).hexdigest() in message
    assert tree(tmp_path / "data") == {NAME: OTHER} and server.requests == []


# The line breaks


@pytest.mark.parametrize(
    "trouble", ["ends_after 5000", "nothing", "no_http", "code 500", "code 503", "code 429"]
)
def test_trouble_that_passes(get, server, tmp_path, waits, trouble):
    server.plan = [trouble, "ends_after 3000", trouble]
    get()
    assert is_whole(tmp_path / "data")
    assert waits == list(download.WAITS[:3])
    got = [5000, 8000, 13000] if trouble.startswith("ends") else [0, 3000, 3000]
    assert server.ranges == [None, *(f"bytes={size}-" if size else None for size in got)]
    assert len(get.said) == 4 and all(said.startswith(f"{NAME}: the ") for said in get.said[:3])


def test_server_that_stalls(get, server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.plan = ["stalls_after 5500"]  # in the middle of a piece, which is not lost
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [None, "bytes=5500-"]
    assert "timed out" in get.said[0]


def test_trouble_that_stays(get, server, tmp_path, waits):
    server.plan = ["ends_after 5000"] + ["code 500"] * 9
    message = refusal(get)
    part = tmp_path / "data" / f"{NAME}.part"
    assert waits == list(download.WAITS) == sorted(set(waits))
    assert "failed 6 times" in message and "500" in message and server.url in message
    assert f"5,000 of {len(TAR):,} bytes are kept in {part}: the same command goes on" in message
    assert tree(tmp_path / "data") == {part.name: TAR[:5000], f"{part.name}.tag": b'"v1"'}
    server.plan, server.requests = [], []
    get()
    assert is_whole(tmp_path / "data") and server.ranges == ["bytes=5000-"]
    assert server.requests[0]["If-Range"] == '"v1"'


def test_nobody_answers(get, server, tmp_path):
    silent = f"http://127.0.0.1:{free_port()}/x"
    message = refusal(fetch.fetch, "voc", tmp_path / "data", base_url=silent)
    assert "refused" in message and "Nothing was downloaded. The same command tries again" in message
    assert tree(tmp_path / "data") == {}


def free_port() -> int:
    with Server() as closed_again:
        return closed_again.server_address[1]


def test_progress_begins_the_waits_anew(get, server, tmp_path, waits, monkeypatch):
    monkeypatch.setattr(download, "GAIN", 2000)
    server.plan = ["code 500", "code 500", *["ends_after 2000"] * 8]
    get()
    assert is_whole(tmp_path / "data")
    assert waits == [*download.WAITS[:2], *[download.WAITS[0]] * 8]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410])
def test_refusals_that_do_not_pass(get, server, tmp_path, waits, code):
    server.always = f"code {code}"
    message = refusal(get)
    assert str(code) in message and f"{server.url}/{NAME}" in message and "--archive" in message
    assert len(server.requests) == 1 and waits == [] and tree(tmp_path / "data") == {}


@pytest.mark.parametrize("kind", ["text/html", "application/octet-stream"])
def test_web_page_instead_of_the_file(get, server, tmp_path, kind):
    server.plan = ["ends_after 5000", f"page {kind}"]
    message = refusal(get)
    assert "sent a web page instead of the file" in message
    left = tree(tmp_path / "data").get(f"{NAME}.part", b"")
    assert left == (TAR[:5000] if kind == "text/html" else b"")
    get()
    assert is_whole(tmp_path / "data")


# Going on


def test_ctrl_c_then_again(get, server, tmp_path):
    def stop(title: str, done: int, total: int) -> None:
        if done > 4000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(advance=stop)
    kept = tree(tmp_path / "data")[f"{NAME}.part"]
    assert 4000 < len(kept) < len(TAR) and TAR.startswith(kept)
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [None, f"bytes={len(kept)}-"]


def begin(server: Server, tmp_path: Path, data: bytes = TAR[:HALF], tag: str = '"v1"') -> Path:
    (tmp_path / "data").mkdir()
    part = tmp_path / "data" / f"{NAME}.part"
    part.write_bytes(data)
    if tag:
        part.with_name(f"{part.name}.tag").write_text(tag)
    return part


@pytest.mark.parametrize("trouble", ["whole", "code 416", "longer also"])
def test_server_that_cannot_go_on_begins_anew(get, server, tmp_path, trouble):
    begin(server, tmp_path, b"?" * HALF)
    server.plan = [trouble]
    get()
    assert is_whole(tmp_path / "data")
    assert server.ranges == [f"bytes={HALF}-", *([] if trouble == "whole" else [None])]


@pytest.mark.parametrize(
    "span",
    [
        f"bytes 0-9/{len(TAR)}",
        f"bytes {HALF + 1}-{HALF + 10}/{len(TAR)}",
        f"bytes {HALF}-{HALF + 9}/{len(TAR) + 1}",
        "bytes */5",
        "nonsense",
        "",
    ],
)
def test_wrong_piece(get, server, tmp_path, span):
    begin(server, tmp_path)
    server.plan = [f"wrong_piece {span}"]
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [f"bytes={HALF}-", None]


def test_server_that_changed_its_file_begins_anew(get, server, tmp_path):
    begin(server, tmp_path, OTHER[:HALF], '"v0"')
    get()
    assert is_whole(tmp_path / "data") and len(server.requests) == 1
    assert server.requests[0]["If-Range"] == '"v0"'


def test_piece_of_another_version_is_not_taken(get, server, tmp_path):
    """A server that has changed its file and does not heed If-Range."""
    begin(server, tmp_path, OTHER[:HALF], '"v0"')
    server.plan = [f"wrong_piece bytes {HALF}-{HALF + 9}/{len(TAR)}"]
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [f"bytes={HALF}-", None]


def test_weak_etags_do_not_count(get, server, tmp_path):
    server.etag, server.modified, server.plan = 'W/"v1"', "Mon, 01 Jan 2024 00:00:00 GMT", ["ends_after 5000"]
    get()
    assert is_whole(tmp_path / "data") and server.requests[1]["If-Range"] == server.modified


def test_without_a_version_the_digest_decides(get, server, tmp_path):
    server.etag, server.plan = "", ["ends_after 5000"]
    get()
    assert is_whole(tmp_path / "data") and server.ranges[1] == "bytes=5000-"
    assert "If-Range" not in server.requests[1]


def test_version_of_an_older_part_is_forgotten(get, server, tmp_path):
    begin(server, tmp_path, OTHER[:HALF], '"v0"')
    server.etag, server.plan = "", ["ends_after 5000"]
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [f"bytes={HALF}-", "bytes=5000-"]
    assert "If-Range" not in server.requests[1]


def test_pieces_that_do_not_fit_are_fetched_once_anew(get, server, tmp_path):
    begin(server, tmp_path, b"?" * HALF)
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [f"bytes={HALF}-", None]
    assert any("do not fit together" in said for said in get.said)


def test_complete_part_is_checked_and_used(get, server, tmp_path):
    begin(server, tmp_path, TAR)
    get()
    assert is_whole(tmp_path / "data") and server.requests == []


@pytest.mark.parametrize("data", [OTHER, TAR + b"?"])
def test_complete_part_that_is_wrong_is_fetched_anew(get, server, tmp_path, data):
    begin(server, tmp_path, data)
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [None]


@pytest.mark.parametrize("tag", [b"\xff\xfe", b"a\nb: c", "ü".encode()])
def test_broken_tag_is_not_sent(get, server, tmp_path, tag):
    part = begin(server, tmp_path)
    part.with_name(f"{part.name}.tag").write_bytes(tag)
    get()
    assert is_whole(tmp_path / "data") and "If-Range" not in server.requests[0]


# Another file


def test_wrong_digest(get, server, tmp_path):
    server.data = OTHER
    message = refusal(get)
    assert hashlib.sha256(OTHER).hexdigest() in message and hashlib.sha256(TAR).hexdigest() in message
    assert "removed" in message and len(server.requests) == 1 and tree(tmp_path / "data") == {}


def test_wrong_digest_after_pieces_is_tried_twice_only(get, server, tmp_path):
    server.data, server.plan = OTHER, ["ends_after 5000", "good", "ends_after 5000"]
    assert "not the published file" in refusal(get)
    assert server.ranges == [None, "bytes=5000-", None, "bytes=5000-"] and tree(tmp_path / "data") == {}


@pytest.mark.parametrize("trouble", ["longer", "announced_longer"])
def test_file_that_is_too_long(get, server, tmp_path, trouble):
    server.always = trouble
    message = refusal(get)
    assert f"{len(TAR):,}" in message and "published" in message and "--archive" in message
    assert len(server.requests) == 1 and tree(tmp_path / "data") == {}


def test_file_that_is_too_short(get, server, tmp_path):
    server.data = TAR[:9000]
    assert "has 9,000 bytes now" in refusal(get)


# Elsewhere


def test_redirects_on_the_web_are_followed(get, server, tmp_path):
    server.plan = ["ends_after 5000", "redirect"]
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [None, "bytes=5000-", "bytes=5000-"]


@pytest.mark.parametrize(
    "place", ["ftp://127.0.0.1/x", "file:///etc/passwd", "data:text/plain,x", "gopher:x"]
)
def test_other_redirects_are_not(get, server, tmp_path, place):
    server.always = f"redirect {place}"
    message = refusal(get)
    assert "302" in message and place in message and tree(tmp_path / "data") == {}


def test_redirects_in_a_circle_end(get, server, tmp_path):
    server.always = "redirect"
    assert "302" in refusal(get) and len(server.requests) < 20


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "file:///etc", "/somewhere", "", "http://", "http://[", "http://a b"]
)
def test_mirror_must_be_on_the_web(tmp_path, monkeypatch, url):
    archive = dataclasses.replace(SOURCES["voc"].archives[0], site=url)
    monkeypatch.setitem(SOURCES, "voc", dataclasses.replace(SOURCES["voc"], archives=(archive,)))
    assert "must begin with http" in refusal(fetch.fetch, "voc", tmp_path / "data", base_url=url or None)


def test_passwords_are_not_repeated(tmp_path):
    message = refusal(fetch.fetch, "voc", tmp_path / "data", base_url="http://me:secret@127.0.0.1")
    assert "must begin with http" in message and "secret" not in message


def test_folder_in_the_way_of_a_download(get, tmp_path):
    part = tmp_path / "data" / "VOCtrainval_11-May-2012.tar.part"
    part.mkdir(parents=True)
    assert "is a folder, in the way" in refusal(get) and part.is_dir()


# The disk


def test_disk_that_is_too_small(get, server, tmp_path, monkeypatch):
    def free(amount: int) -> None:
        usage = shutil.disk_usage(tmp_path)._replace(free=amount)
        monkeypatch.setattr(fetch.shutil, "disk_usage", lambda _: usage)

    begin(server, tmp_path)
    needed = 100_000 + len(TAR) - HALF
    free(needed - 1)
    message = refusal(get)
    assert "only 110.2 kB are free" in message and str(tmp_path / "data") in message and server.requests == []
    free(needed)
    get()
    assert is_whole(tmp_path / "data")


def test_disk_that_fills_up(get, server, tmp_path, monkeypatch, waits):
    class Full(io.FileIO):
        def write(self, data) -> int:
            if self.tell() >= 4000:
                raise OSError(28, "No space left on device")
            return super().write(data[:300])  # a system may also write less than it was given

    monkeypatch.setattr(download, "_opened", lambda part, start: Full(part, "ab" if start else "wb"))
    message = refusal(get)
    assert "No space left on device" in message and "bytes are kept" in message and waits == []
    monkeypatch.undo()
    kept = (tmp_path / "data" / f"{NAME}.part").read_bytes()
    assert len(kept) >= 4000 and TAR.startswith(kept)


def test_folder_that_cannot_be_made(tmp_path, server):
    (tmp_path / "file").write_bytes(b"mine")
    assert "Cannot write" in refusal(fetch.fetch, "voc", tmp_path / "file" / "data", base_url=server.url)


def test_folder_of_something_else_is_left_alone(get, server, tmp_path):
    (tmp_path / "data/VOCdevkit/VOC2012/JPEGImages").mkdir(parents=True)
    assert "lacks one of JPEGImages, SegmentationClass" in refusal(get) and server.requests == []


# Two at once, and none at all


def test_two_at_once(get, server, tmp_path):
    server.plan, results = ["stalls_after 5000"], []
    first = threading.Thread(target=lambda: results.append(get()))
    first.start()
    while not server.requests:
        time.sleep(0.001)
    assert "Another process is fetching voc" in refusal(get)
    server.go_on.set()
    first.join()
    assert results[0].new and is_whole(tmp_path / "data") and server.ranges == [None, "bytes=5000-"]


DRIVER = """
import hashlib, os, signal, sys, traceback
from pathlib import Path
from dataclasses import replace
from segue.data.getting import fetch
url, root, digest, size = sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
archive = replace(fetch.SOURCES["voc"].archives[0], sha256=digest, size=size, unpacked=10**5)
fetch.SOURCES["voc"] = replace(fetch.SOURCES["voc"], archives=(archive,))
os.sync = lambda: None
left = 0
def tick(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def watched():
    names = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "socket.connect")
    sys.addaudithook(lambda event, _: tick() if event in names else None)
    fetch.fetch("voc", root / str(moment), base_url=url, advance=tick)
moment, code = 0, None
while code != 0:
    moment += 1
    left = moment
    code = child(watched)
    assert code in (0, -signal.SIGKILL), code
    fetch.fetch("voc", root / str(moment), base_url=url)
print(moment)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs kill -9")
def test_killed_at_every_moment_then_repeated(server, tmp_path):
    """One process after the other is killed at its first, second, ... step: a file, a piece, a request."""
    words = [server.url, tmp_path / "data", hashlib.sha256(TAR).hexdigest(), len(TAR)]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, *map(str, words)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    moments = int(done.stdout)
    assert moments > 20
    for moment in range(1, moments + 1):
        folder = tmp_path / "data" / str(moment)
        (folder / ".fetch-voc.lock").unlink(missing_ok=True)  # empty, and nobody holds it
        assert is_whole(folder), (moment, list(tree(folder)))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_in_the_middle_of_a_download(get, server, tmp_path):
    server.plan = [f"stalls_after {HALF}"]
    words = [server.url, tmp_path, hashlib.sha256(TAR).hexdigest(), len(TAR)]
    script = DRIVER.split("left = 0")[0] + 'fetch.fetch("voc", root / "data", base_url=url)'
    part = tmp_path / "data" / f"{NAME}.part"
    with subprocess.Popen([sys.executable, "-c", script, *map(str, words)]) as process:
        while download.size_of(part) < HALF:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    get()
    assert is_whole(tmp_path / "data") and server.ranges == [None, f"bytes={HALF}-"]


# By hand


def test_archive_got_by_hand(get, server, tmp_path):
    mine = tmp_path / "renamed (1).tar"
    mine.write_bytes(TAR)
    get(archives=[mine])
    assert server.requests == [] and mine.read_bytes() == TAR
    assert tree(tmp_path / "data") == {f"VOCdevkit/VOC2012/{name}": data for name, data in CONTENT.items()}


def test_archives_that_are_not_the_right_ones(get, tmp_path):
    mine, other = tmp_path / NAME, tmp_path / "other.tar"
    for data, reason in {
        OTHER: "SHA-256",
        TAR[:-1]: f"has {len(TAR) - 1:,} bytes, but {NAME} has {len(TAR):,}",
        b"": "has 0 bytes",
    }.items():
        mine.write_bytes(data)
        message = refusal(get, archives=[mine])
        assert reason in message and str(mine) in message and mine.read_bytes() == data
    other.write_bytes(b"something")
    assert f"is not {NAME}" in refusal(get, archives=[other])
    assert "does not exist" in refusal(get, archives=[tmp_path / "none.tar"])
    assert "is no file" in refusal(get, archives=[tmp_path])
    other.write_bytes(TAR)
    mine.write_bytes(TAR)
    assert "name it once" in refusal(get, archives=[mine, other])
    assert tree(tmp_path / "data") == {}


def test_archive_with_a_trap_leaves_nothing(get, tmp_path, monkeypatch):
    """A digest that fits a bad archive is of no help to it."""
    with tarfile.open(tmp_path / "trap.tar", "w") as packed:
        packed.addfile(tarfile.TarInfo("VOCdevkit/VOC2012/../../../evil"))
    data = (tmp_path / "trap.tar").read_bytes()
    trap = dataclasses.replace(
        SOURCES["voc"].archives[0], size=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    monkeypatch.setitem(SOURCES, "voc", dataclasses.replace(SOURCES["voc"], archives=(trap,)))
    assert "leads out" in refusal(get, archives=[tmp_path / "trap.tar"])
    assert tree(tmp_path) == {"trap.tar": data}


@pytest.fixture
def city(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The two archives of Cityscapes, as downloaded."""
    files, archives = [], []
    for archive in SOURCES["cityscapes"].archives:
        file = tmp_path / archive.name
        with zipfile.ZipFile(file, "w") as packed:
            packed.writestr("README", b"not wanted")
            for part in ("train", "val"):
                packed.writestr(f"{archive.top}/{part}/ulm/1_{archive.top}.png", part)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        archives.append(
            dataclasses.replace(archive, size=file.stat().st_size, sha256=digest, unpacked=10_000)
        )
        files.append(file)
    source = dataclasses.replace(SOURCES["cityscapes"], archives=tuple(archives))
    monkeypatch.setitem(SOURCES, "cityscapes", source)
    return files


def test_cityscapes_by_hand(city, tmp_path):
    fetched = fetch.fetch("cityscapes", tmp_path / "data", [city[1], city[0]])
    assert fetched == fetch.Fetched(tmp_path / "data/cityscapes", True, "")
    assert sorted(tree(fetched.root)) == [
        f"{top}/{part}/ulm/1_{top}.png" for top in ("gtFine", "leftImg8bit") for part in ("train", "val")
    ]
    assert not fetch.fetch("cityscapes", tmp_path / "data").new


def test_cityscapes_says_what_to_download(tmp_path):
    message = refusal(fetch.fetch, "cityscapes", tmp_path / "my data")
    assert "https://www.cityscapes-dataset.com/downloads/" in message and "Register" in message
    assert "gtFine_trainvaltest.zip (252.6 MB)" in message
    assert "leftImg8bit_trainvaltest.zip (11.6 GB)" in message
    assert (
        f"segue data fetch cityscapes --out '{tmp_path}/my data'"
        " --archive gtFine_trainvaltest.zip --archive leftImg8bit_trainvaltest.zip" in message
    )
    assert not (tmp_path / "my data").exists()


def test_cityscapes_needs_both(city, tmp_path):
    message = refusal(fetch.fetch, "cityscapes", tmp_path / "data", city[:1])
    assert "leftImg8bit_trainvaltest.zip (" in message and "gtFine_trainvaltest.zip (" not in message
    assert f"--archive {city[0]} --archive leftImg8bit_trainvaltest.zip" in message
    assert not (tmp_path / "data").exists()


def test_cityscapes_archives_may_lie_in_the_folder(city, tmp_path):
    assert fetch.fetch("cityscapes", tmp_path).new and (tmp_path / "cityscapes/gtFine/train").is_dir()


def test_cityscapes_killed_between_its_archives(city, tmp_path):
    fetch.fetch("cityscapes", tmp_path / "data", city)
    shutil.rmtree(tmp_path / "data/cityscapes/leftImg8bit")
    assert fetch.fetch("cityscapes", tmp_path / "data", city[1:]).new
    assert (tmp_path / "data/cityscapes/leftImg8bit/val").is_dir()


def test_unknown_data_set(tmp_path):
    assert "Did you mean 'cityscapes'?" in refusal(fetch.fetch, "cityscape", tmp_path)
    assert isinstance(SOURCES["voc"], Source) and isinstance(SOURCES["voc"].archives[0], Archive)
