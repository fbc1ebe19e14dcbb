"""Many clients on loopback: each sends an image, waits for its answer, and sends the next."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PATIENCE = 60.0
"""seconds until a request without an answer counts as an error"""


@dataclass
class Load:
    """What clients have seen in one period."""

    seconds: list[float] = field(default_factory=list)
    """duration of each answered request"""
    refused: int = 0
    """answers with status 429"""
    errors: list[str] = field(default_factory=list)
    """everything else that is no answer"""
    period: float = 0.0
    """length of the period in seconds"""


def load(address: str, image: bytes, clients: int, seconds: float) -> Load:
    """Keep a server busy for a time."""
    return asyncio.run(_load(address, image, clients, seconds))


async def _load(address: str, image: bytes, clients: int, seconds: float) -> Load:
    found, began = Load(), time.perf_counter()
    await asyncio.gather(*(_client(address, image, began + seconds, found) for _ in range(clients)))
    found.period = time.perf_counter() - began
    return found


async def _client(address: str, image: bytes, end: float, found: Load) -> None:
    place = urlsplit(address)
    head = f"POST /predict HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: image/png\r\n"
    request = f"{head}Content-Length: {len(image)}\r\n\r\n".encode() + image
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    while (began := time.perf_counter()) < end:
        try:
            status = await asyncio.wait_for(_exchange(reader, writer, request), PATIENCE)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError) as error:
            found.errors.append(type(error).__name__)
            break
        if status == 200:
            found.seconds.append(time.perf_counter() - began)
        elif status == 429:
            found.refused += 1
            await asyncio.sleep(0.1)
        else:
            found.errors.append(str(status))
    writer.close()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])
