"""Start a server and keep it until it is told to stop."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from segue.core.errors import UserError
from segue.deploy.predictor import open_predictor
from segue.deploy.serve.app import create_app
from segue.deploy.serve.connections import guarded
from segue.deploy.serve.limits import Limits
from segue.deploy.serve.predictors import Served, served, staged

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 20


def open_models(paths: Sequence[str | Path], device: str) -> list[Served]:
    """The models at these places, ready to answer."""
    return served([(Path(path), staged(open_predictor(path, device))) for path in paths])


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address; 0 is any free port. Known before the models are loaded."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name with an empty part
        raise _no_place(host, port, error) from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise _no_place(host, port, error) from error
    return found


def _no_place(host: str, port: int, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or error
    return UserError(f"Cannot serve at {host}, port {port}: {reason}. Another address: --host, --port.")


def address(bound: socket.socket) -> str:
    """The address to type into a browser."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_local(bound: socket.socket) -> bool:
    """Whether only programs on this machine can reach a socket."""
    return ipaddress.ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


def serve(
    models: Sequence[Served], bound: socket.socket, limits: Limits | None = None, token: str | None = None
) -> None:
    """Answer requests until SIGINT or SIGTERM; then finish what is under way."""
    limits = limits or Limits()
    _allow_connections()
    config = uvicorn.Config(
        create_app(models, limits, token),
        http=guarded(limits),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(limits.stop_seconds),
    )
    uvicorn.Server(config).run(sockets=[bound])


def _allow_connections() -> None:
    """As many open connections as the system lets this process have: idle ones should not keep others out."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows knows no such limit
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
