"""What a server accepts, and the answer to what it does not."""

from __future__ import annotations

from dataclasses import dataclass

MEBI = 2**20


@dataclass(frozen=True)
class Limits:
    """Bounds that keep a server's memory and waiting times finite."""

    bytes: int = 32 * MEBI
    """size of the largest file that is received"""
    pixels: int = 64_000_000
    """size of the largest image that is decoded"""
    queue: int = 64
    """number of images under way at once; more are refused with 429"""
    batch: int = 16
    """number of images that a network gets at once"""
    bodies: int = 256 * MEBI
    """bytes of all files that are being received at once; more are refused with 429"""
    head_seconds: float = 10.0
    """time that a connection may stay open without a whole request"""
    body_seconds: float = 30.0
    """time that a client has to send a file"""
    answer_seconds: float = 60.0
    """time that a received image has to be answered"""
    stop_seconds: float = 30.0
    """time that a stopping server gives to what is under way"""


class Refused(Exception):
    """A request that is not answered as asked: an HTTP status and a sentence for the client."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


def busy(sentence: str) -> Refused:
    """Too many requests: the client should come again."""
    return Refused(429, f"{sentence} Try again in a second.", {"Retry-After": "1"})
