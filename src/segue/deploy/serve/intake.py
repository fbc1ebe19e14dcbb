"""Receiving an image: a multipart field `file` or the raw body, bounded in bytes and in time.

Nothing is written to disk, and the name that a client gives its file is not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from segue.deploy.serve.limits import MEBI, Limits, Refused, busy

FIELD = "file"
MOST_FIELDS = 8
FORM = "multipart/form-data"
ENVELOPE = 64 * 1024
"""bytes that boundaries and headers of a multipart body may add"""
GONE = 499
"""status of a request whose client left; nobody reads it"""


@dataclass
class _Receipt:
    size: int = 0
    """bytes that have come"""


class Intake:
    """Receives files, and knows how many bytes of them it holds."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held = limits, 0

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytes]:
        """The file that a request brings; it counts as held until the context is left."""
        receipt = _Receipt()
        try:
            yield await self._content(request, receipt)
        finally:
            self.held -= receipt.size

    async def _content(self, request: Request, receipt: _Receipt) -> bytes:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and kind not in (FORM, "application/octet-stream") and not kind.startswith("image/"):
            raise Refused(
                415,
                f"A body of type {kind[:60]!r} is no image. Send {FORM} with a field '{FIELD}',"
                " or the image itself as image/jpeg, image/png or application/octet-stream.",
            )
        body = await self._in_time(request, receipt)
        content = await _field(request.headers, body) if kind == FORM else body
        if not content:
            raise Refused(400, "The file is empty: it has 0 bytes.")
        return content

    async def _in_time(self, request: Request, receipt: _Receipt) -> bytes:
        try:
            return await asyncio.wait_for(self._body(request, receipt), self.limits.body_seconds)
        except TimeoutError as error:
            message = f"The file did not arrive within {self.limits.body_seconds:g} seconds."
            raise Refused(408, message, {"Connection": "close"}) from error
        except ClientDisconnect as error:
            raise Refused(GONE, "The client has left.") from error

    async def _body(self, request: Request, receipt: _Receipt) -> bytes:
        """The whole body, unless it is too large: by what the client says of it, or by what comes."""
        most = self.limits.bytes + ENVELOPE
        said = request.headers.get("content-length", "")
        if said.isascii() and said.isdecimal() and int(said) > most:
            raise self._too_large(int(said))
        chunks = []
        async for chunk in request.stream():
            receipt.size += len(chunk)
            self.held += len(chunk)
            if receipt.size > most:
                raise self._too_large(receipt.size)
            if self.held > self.limits.bodies:
                raise busy("The server is receiving as many files as it can hold.")
            chunks.append(chunk)
        return b"".join(chunks)

    def _too_large(self, size: int) -> Refused:
        message = f"The file has {size / MEBI:.1f} MiB or more; {self.limits.bytes / MEBI:g} are accepted."
        return Refused(413, message, {"Connection": "close"})


async def _field(headers: Headers, body: bytes) -> bytes:
    """The file in a multipart body."""

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(headers, stream(), max_files=1, max_fields=MOST_FIELDS)
    parser.spool_max_size = len(body) + 1  # more than there is: no temporary file is made
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError) as error:
        reason = getattr(error, "message", "its headers are wrong")
        raise Refused(400, f"The multipart body cannot be read: {reason.rstrip('.')}.") from error
    try:
        found = form.get(FIELD)
        if isinstance(found, UploadFile):
            return await found.read()
        names = ", ".join(sorted(map(repr, form))) or "no field"
        raise Refused(400, f"The form has {names[:200]}: the image belongs into the file field '{FIELD}'.")
    finally:
        await form.close()
