"""What strangers send: nothing crashes, each gets a sentence, and others are still answered."""

from __future__ import annotations

import io
import json
import resource
import socket
import struct
import time
import urllib.request
import zlib

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from serving import bright, encoded, models, photo, serving

from segue.deploy.serve.app import create_app
from segue.deploy.serve.limits import Limits

QUICK = Limits(bytes=200_000, pixels=100_000, head_seconds=0.6, body_seconds=0.5)


@pytest.fixture(scope="module")
def client():
    with TestClient(create_app(models(bright()), QUICK)) as client:
        yield client
        assert client.post("/predict", content=encoded(photo())).status_code == 200, "it still works"


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def animated() -> bytes:
    file = io.BytesIO()
    first, second = Image.new("L", (8, 8), 0), Image.new("L", (8, 8), 255)
    first.save(file, format="GIF", save_all=True, append_images=[second])
    return file.getvalue()


BAD = {
    "nothing": (b"", 400, "0 bytes"),
    "text": (b"hello, world", 422, "not an image"),
    "truncated png": (encoded(photo(60, 60))[:-40], 422, "truncated"),
    "truncated jpeg": (
        encoded(np.random.default_rng(0).integers(0, 255, (90, 90, 3), np.uint8), "JPEG")[:900],
        422,
        "",
    ),
    "header alone": (encoded(photo())[:33], 422, ""),
    "bomb": (bomb(1000, 1000), 413, "1 million pixels"),
    "huge bomb": (bomb(60_000, 60_000), 413, "too large"),
    "program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "not an image"),
    "moving": (animated(), 422, "pictures"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", 422, "not an image"),
    "many bytes": (b"x" * 400_000, 413, "MiB"),
}


@pytest.mark.parametrize("way", ["raw", "field"])
@pytest.mark.parametrize("what", BAD)
def test_bad_image_gets_a_sentence(client, what, way):
    content, status, words = BAD[what]
    given = {"content": content} if way == "raw" else {"files": {"file": ("x.png", content)}}
    answer = client.post("/predict", **given)
    assert answer.status_code == status
    assert words in answer.json()["error"] and answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "..\\..\\x", "/root/x.png", "\x00.png", "a" * 500, "☃.png"]
)
def test_name_of_a_file_does_not_matter(client, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = client.post("/predict", files={"file": (name, encoded(photo()))})
    assert answer.status_code == 200 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"json": {"file": "x"}}, 415),
        ({"data": {"file": "x"}}, 415),
        ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data"}}, 400),
        ({"content": b"x", "headers": {"content-type": "multipart/form-data; boundary=b"}}, 400),
        ({"files": {"image": ("x.png", b"x")}}, 400),
        ({"files": [("file", ("x.png", b"x")), ("file", ("y.png", b"y"))]}, 400),
        ({"files": {"other": (None, "text")}}, 400),
        ({"content": encoded(photo()), "params": {"answer": "all"}}, 400),
        ({"content": encoded(photo()), "params": {"model": "../model"}}, 404),
    ],
)
def test_wrong_request_gets_a_sentence(client, given, status):
    answer = client.post("/predict", **given)
    assert answer.status_code == status and answer.json()["error"].endswith(".")


@pytest.mark.parametrize(
    "path", ["/x", "/page/..%2fapp.py", "/page/../app.py", "/page/app.py", "/%00", "/gallery/0/0"]
)
def test_nothing_else_is_there(client, path):
    answer = client.get(path)
    assert answer.status_code == 404 and "error" in answer.json()
    assert client.get("/predict").status_code == 405


def test_as_many_files_as_memory_allows():
    with TestClient(create_app(models(bright()), Limits(bodies=50))) as client:
        refused = client.post("/predict", content=encoded(photo()))
        assert refused.status_code == 429
        assert client.get("/health").status_code == 200


def connect(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def health(address: str) -> dict:
    with urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
        return json.load(answer)


def received(connection: socket.socket) -> bytes:
    """All until the server closes."""
    chunks = []
    try:
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    except ConnectionResetError:
        pass
    return b"".join(chunks)


def test_slow_senders_and_idle_connections_end():
    """A few hundred connections that send nothing, a head that never ends, a body that never ends."""
    count = min(400, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
    with serving(models(bright()), QUICK) as address:
        idle = [connect(address) for _ in range(count)]
        slow_head, slow_body, after = connect(address), connect(address), connect(address)
        slow_head.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        slow_body.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\nabc")
        after.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert after.recv(65536).startswith(b"HTTP/1.1 200")
        after.sendall(b"GET /hea")  # a second head that never ends
        began = time.monotonic()
        assert health(address)["status"] == "ok" and time.monotonic() - began < 2
        assert b"408" in received(slow_body).split(b"\r\n")[0]
        assert received(slow_head) == b"" and b"408" not in received(after)
        assert all(received(connection) == b"" for connection in idle)
        assert time.monotonic() - began < 8
        assert health(address)["status"] == "ok"
        for connection in (*idle, slow_head, slow_body, after):
            connection.close()


def test_nonsense_instead_of_http():
    with serving(models(bright()), QUICK) as address, connect(address) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00 hello\r\n\r\n")
        assert received(connection).startswith(b"HTTP/1.1 400")
        assert health(address)["status"] == "ok"
