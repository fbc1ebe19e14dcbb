"""Connections that do not stay open for nothing.

uvicorn closes a connection that is idle after an answer, but waits for ever for a first request, for the rest
of a request's head, and for a client that does not fetch its answer.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from segue.deploy.serve.limits import Limits

LOOKS = 4
"""number of looks at a connection within the time that it has"""


def guarded(limits: Limits) -> type[H11Protocol]:
    """A protocol for uvicorn that closes connections by these limits."""
    longest = limits.body_seconds + limits.answer_seconds + limits.head_seconds

    class Guarded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._state, self._since = self._now(), self.loop.time()
            self._look_again()

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def _now(self) -> tuple[object, bool]:
            """The present request, if any, and whether it is being worked on."""
            return self.cycle, self.cycle is not None and not self.cycle.response_complete

        def _look_again(self) -> None:
            self._timer = self.loop.call_later(limits.head_seconds / LOOKS, self._look)

        def _look(self) -> None:
            if (state := self._now()) != self._state:
                self._state, self._since = state, self.loop.time()
            elif self.loop.time() - self._since > (longest if state[1] else limits.head_seconds):
                self.transport.abort()
                return
            self._look_again()

    return Guarded
