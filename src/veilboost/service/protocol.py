"""HTTP/1.1 of uvicorn, with deadlines for the headers and the body of a request, and coded errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from veilboost.errors import MalformedMessage

# Seconds to receive what the client sends in this state. A client that sends slowly does not get more.
SECONDS: Mapping[Any, float] = {h11.IDLE: 10.0, h11.SEND_BODY: 60.0}


class TimedProtocol(H11Protocol):
    """Closes a connection whose request does not arrive in time, or is not HTTP."""

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

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, and close the connection. uvicorn's answer has no code."""
        error = MalformedMessage("the request is not HTTP/1.1", "send requests with an HTTP client")
        body = json.dumps({"code": error.code, "what": error.what, "fix": error.remedy}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        answer = h11.Response(status_code=400, headers=[*headers, (b"connection", b"close")], reason=b"Bad Request")
        with contextlib.suppress(h11.LocalProtocolError):  # an earlier request of this connection was answered
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event))
        self.transport.close()

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
