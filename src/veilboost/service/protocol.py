"""HTTP/1.1 of uvicorn, with deadlines for the headers and the body of a request, which uvicorn does not have."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds to receive what the client sends in this state. A client that sends slowly does not get more.
SECONDS: Mapping[Any, float] = {h11.IDLE: 10.0, h11.SEND_BODY: 60.0}


class TimedProtocol(H11Protocol):
    """Closes a connection whose request does not arrive in time."""

    _state: Any = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        state: Any = self.conn.their_state
        if state is not self._state:
            self._stop()
            self._state = state
            if state in SECONDS:
                self._deadline = self.loop.call_later(SECONDS[state], self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
