"""Download one large file of known size over a line that may break, going on where it stopped.

FILE.part grows in place. Beside it lies FILE.part.tag, what the server called this version of the file (ETag
or Last-Modified): a server that has another version by now begins anew instead of mixing two.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from segue.core.errors import UserError

CHUNK = 1 << 18
TIMEOUT = 60.0
"""seconds without a byte after which a connection is given up"""
WAITS = (1.0, 3.0, 10.0, 30.0, 60.0)
"""seconds before each new attempt"""
GAIN = 1 << 24
"""bytes that an attempt must bring for the waits to begin anew"""
PASSING = (408, 425, 429)
"""refusals that may pass, besides those from 500 on"""
WEB_PAGES = ("text/html", "application/xhtml+xml")


class _Lost(Exception):
    """A failure that may pass: try again."""


def download(
    url: str,
    part: Path,
    size: int,
    advance: Callable[[int, int], None],
    say: Callable[[str], None],
) -> bool:
    """Fill `part` up to `size` bytes; returns whether it may be put together from several answers.

    What is downloaded stays, whatever happens, unless it cannot be the beginning of the file. Whether it is
    the right file, only a digest can tell.
    """
    if not _is_web(url):
        shown = url.rpartition("@")[2]  # no password is repeated
        raise UserError(
            f"'{shown}' is not an address on the web: it must begin with http:// or https:// and name a host."
        )
    if part.is_dir():
        raise UserError(f"{part} is a folder, in the way of the download: move it elsewhere.")
    pieced, failures = True, 0  # who knows how a part was made that is complete already
    while (have := size_of(part)) < size:
        try:
            pieced = _transfer(url, part, size, advance) > 0
        except _Lost as lost:
            failures = 1 if size_of(part) - have >= GAIN else failures + 1
            if failures > len(WAITS):
                raise UserError(
                    f"Downloading {url} failed {failures} times, at last because {lost}. {_kept(part, size)}"
                ) from lost
            say(f"{part.stem}: {lost}; going on in {WAITS[failures - 1]:g} s.")
            time.sleep(WAITS[failures - 1])
    return pieced


def size_of(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def forget(part: Path) -> None:
    """Remove a part and its tag."""
    part.unlink(missing_ok=True)
    _tag_file(part).unlink(missing_ok=True)


def _kept(part: Path, size: int) -> str:
    if have := size_of(part):
        return f"{have:,} of {size:,} bytes are kept in {part}: the same command goes on from there."
    return "Nothing was downloaded. The same command tries again."


def _transfer(url: str, part: Path, size: int, advance: Callable[[int, int], None]) -> int:
    """One request; appends what comes and returns where it began."""
    have, tag = size_of(part), _read_tag(part)
    headers = {"User-Agent": "segue", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if tag:
            headers["If-Range"] = tag
    try:
        with _OPENER.open(Request(url, headers=headers), timeout=TIMEOUT) as response:
            start = _begin(response, url, part, size, have, tag)
            with _opened(part, start) as file:
                _copy(response, file, url, size, advance)
    except HTTPError as error:
        with error:
            _explain(error, url, part, size)
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise _Lost(f"the connection failed ({str(reason) or type(error).__name__})") from error
    if (now := size_of(part)) < size:
        raise _Lost(f"the server stopped at {now:,} of {size:,} bytes")
    return start


def _explain(error: HTTPError, url: str, part: Path, size: int) -> None:
    """Raise what an answer means that is no file."""
    answer = f"the server answers {error.code} {error.reason}"
    if error.code == 416:
        forget(part)  # it has no byte there: another file than the one that was begun
        raise _Lost("the server cannot go on where the part ends, so it begins anew")
    if error.code >= 500 or error.code in PASSING:
        raise _Lost(answer)
    raise UserError(
        f"Cannot download {url}: {answer}. Download the file by hand and name it with --archive."
        f" {_kept(part, size)}"
    )


def _begin(response: http.client.HTTPResponse, url: str, part: Path, size: int, have: int, tag: str) -> int:
    """Where the answer's content belongs; a part that it does not continue is emptied or removed."""
    if response.headers.get_content_type() in WEB_PAGES:
        raise _web_page(url, part, size)
    if response.status == 206:
        piece = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", "").strip())
        same_file = piece and piece[2] in (str(size), "*") and (not tag or _tag(response) in ("", tag))
        if not same_file or int(piece[1]) != have:
            forget(part)
            raise _Lost("the server sent another piece than the one asked for, so it begins anew")
        return have
    if response.status != 200:
        raise _Lost(f"the server answers {response.status} {response.reason}")
    if response.length is not None and response.length != size:
        raise UserError(
            f"{url} has {response.length:,} bytes now, but the published file has {size:,}."
            f" Get it elsewhere and name it with --archive. {_kept(part, size)}"
        )
    forget(part)  # in this order: a tag never stands beside a part of another version
    with _opened(part, 0):
        pass
    if new_tag := _tag(response):
        _write_tag(part, new_tag)
    return 0


def _copy(
    response: http.client.HTTPResponse,
    file: IO[bytes],
    url: str,
    size: int,
    advance: Callable[[int, int], None],
) -> None:
    part, done = Path(file.name), file.tell()
    start = done
    while chunk := response.read1(CHUNK):  # at once what is there: a break loses nothing
        if done == 0 and chunk.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            raise _web_page(url, part, size)
        done += len(chunk)
        if done > size:
            forget(part)
            if start:
                raise _Lost("the server sent more than is left, so it begins anew")
            raise UserError(
                f"{url} is longer than the {size:,} bytes that were published. Nothing was kept."
                " Get the file elsewhere and name it with --archive."
            )
        try:
            rest = memoryview(chunk)
            while rest:
                rest = rest[file.write(rest) :]
        except OSError as error:
            raise UserError(f"Cannot write {part}: {error.strerror}. {_kept(part, size)}") from error
        advance(done, size)


def _opened(part: Path, start: int) -> IO[bytes]:
    try:
        return part.open("ab" if start else "wb", buffering=0)  # what came is on disk, should we be killed
    except OSError as error:
        raise UserError(f"Cannot write {part}: {error.strerror}.") from error


def _web_page(url: str, part: Path, size: int) -> UserError:
    return UserError(
        f"{url} sent a web page instead of the file. Open the address in a browser: the host may have moved"
        f" the file, or your network may ask for a login. {_kept(part, size)}"
    )


def _tag_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def _tag(response: http.client.HTTPResponse) -> str:
    """What tells versions apart. Weak ETags do not: they allow for other bytes."""
    etag = response.headers.get("ETag", "").strip()
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "").strip()


def _write_tag(part: Path, tag: str) -> None:
    try:
        _tag_file(part).write_text(tag, encoding="utf-8")  # one that is cut off only costs a new beginning
    except OSError as error:
        raise UserError(f"Cannot write {_tag_file(part)}: {error.strerror}.") from error


def _read_tag(part: Path) -> str:
    try:
        tag = _tag_file(part).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return tag if tag.isascii() and tag.isprintable() else ""


def _is_web(url: str) -> bool:
    """An address of a host on the web; those with a password are not supported."""
    try:
        parts = urlsplit(url)
        host = parts.hostname and parts.username is None and " " not in url and url.isascii()
    except ValueError:
        return False
    return bool(host) and parts.scheme in ("http", "https")


class _WebRedirects(HTTPRedirectHandler):
    """Follows to other web addresses only, never to ftp:// or a file."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]
        if not _is_web(newurl):
            raise HTTPError(req.full_url, code, f"and sends us to {newurl}", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = build_opener(_WebRedirects)
