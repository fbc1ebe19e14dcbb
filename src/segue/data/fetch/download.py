"""Download one file of known size and SHA-256 with pooch, which retries and checks the digest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pooch
import requests

from segue.core.errors import UserError
from segue.data.fetch.bars import ByteBars
from segue.data.fetch.sources import Archive

CHUNK = 1 << 18
TIMEOUT = 60.0
"""seconds without a byte after which a connection is given up"""
RETRIES = 4
BY_HAND = "Get the file elsewhere and name it with --archive."


class _Refused(Exception):
    """A failure that no retry mends."""


def download(site: str, archive: Archive, folder: Path, bars: ByteBars) -> Path:
    """Download `site` + the archive's name into `folder`; a file with that name has the right digest."""
    _check_address(site)
    url = f"{site}{archive.name}"
    pooch.get_logger().setLevel("WARNING")  # the bars and messages here say more
    files = pooch.create(folder, site, registry={archive.name: archive.sha256}, retry_if_failed=RETRIES)

    def stream(url: str, path: str, _: object) -> None:
        task = bars.add_task(f"Downloading {archive.name}", total=archive.size)
        try:
            _stream(url, Path(path), archive.size, lambda size: bars.update(task, completed=size))
        except requests.RequestException as error:
            bars.remove_task(task)
            bars.say(f"{archive.name}: {_reason(error)}.")
            if error.response is not None and 400 <= error.response.status_code < 500:
                raise _Refused(_reason(error)) from error
            raise

    try:
        return Path(files.fetch(archive.name, downloader=stream))
    except _Refused as refused:
        raise UserError(f"Cannot download {url}: {refused}. {BY_HAND}") from refused
    except requests.RequestException as error:
        raise UserError(
            f"Downloading {url} failed {1 + RETRIES} times, at last because {_reason(error)}."
            f" Nothing was kept: repeat the command later. {BY_HAND}"
        ) from error
    except ValueError as error:
        raise UserError(
            f"{url} is not the published file: its SHA-256 is not {archive.sha256}. It was removed. {BY_HAND}"
        ) from error


def _stream(url: str, path: Path, most: int, advance: Callable[[int], None]) -> None:
    """Write what the server sends, as long as it can be the archive."""
    written = 0
    with requests.get(url, stream=True, timeout=TIMEOUT) as response, path.open("wb") as file:
        response.raise_for_status()
        for chunk in response.iter_content(CHUNK):
            if written == 0 and chunk.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
                raise _Refused("a web page came instead of the file: the host moved it, or asks for a login")
            written += len(chunk)
            if written > most:
                raise _Refused(f"it is longer than the {most:,} bytes that were published")
            file.write(chunk)
            advance(written)


def _reason(error: requests.RequestException) -> str:
    """The words of the innermost error: those around it repeat addresses and class names."""
    if error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    cause: BaseException = error
    while cause.__context__ is not None:
        cause = cause.__context__
    return f"the connection failed ({getattr(cause, 'strerror', None) or cause or type(cause).__name__})"


def _check_address(site: str) -> None:
    try:
        parts = urlsplit(site)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
    except ValueError:
        good = False
    if not good or " " in site:
        shown = site.rpartition("@")[2]  # no password is repeated
        raise UserError(f"'{shown}' is not an address on the web: write http:// or https:// and a host.")
