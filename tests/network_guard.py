"""Nothing leaves this machine: a connection to another host, or a look-up of its name, ends the test.

Libraries ask their hubs by habit, and swallow the errors of a network that is not there. What is raised here
is no `Exception`, so that none of them can.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest


class Reached(BaseException):
    """The address that a test, or a library under it, wanted to reach."""


def is_here(host: object) -> bool:
    """Whether an address or a name is this machine's own."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def is_number(host: object) -> bool:
    """Whether an address needs no look-up: nobody is asked for it."""
    try:
        return bool(ipaddress.ip_address(str(host)))
    except ValueError:
        return False


def guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process reaches itself alone."""

    def checked(name: str) -> None:
        real = getattr(socket.socket, name)

        def call(self: socket.socket, *words: Any) -> Any:
            address = words[-1]
            if isinstance(address, tuple) and not is_here(address[0]):  # others are files of this machine
                raise Reached(f"{name} {address}")
            return real(self, *words)

        monkeypatch.setattr(socket.socket, name, call)

    for name in ("connect", "connect_ex", "sendto"):
        checked(name)
    look_up = socket.getaddrinfo

    def found(host: object, *words: Any, **named: Any) -> Any:
        if str(host).endswith(".invalid"):  # a name that no look-up finds
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if not is_here(host) and not is_number(host):
            raise Reached(f"getaddrinfo {host!r}")
        return look_up(host, *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", found)
