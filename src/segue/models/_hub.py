"""Weights from the Hugging Face hub without waiting for a network that is not there.

Its client asks again and again, for nearly a minute, when the name of the hub cannot be found.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit


@contextmanager
def no_waiting() -> Iterator[None]:
    """Inside, the hub is offline if its name is not found: kept files are used, and others missed at once."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _is_found(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _is_found(address: str) -> bool:
    """Whether a name can be looked up; with a proxy that is not asked here."""
    if urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(urlsplit(address).hostname, None)
    except OSError:
        return False
    return True
