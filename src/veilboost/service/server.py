"""The listening side: uvicorn runs the service until it is told to stop."""

from __future__ import annotations

import ipaddress
import signal
from collections.abc import Callable
from typing import Any

import uvicorn
from fastapi import FastAPI

from veilboost.errors import ImpossibleParameter, PeerUnreachable
from veilboost.fields import FORMS

STOP_SECONDS = 10  # how long requests under way may take after a signal to stop
MOST_CONNECTIONS = 512  # the guard refuses earlier, and by a code


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080` or `[::1]:8080` as host and port."""
    if not FORMS["address"].fits(text):
        raise ImpossibleParameter(f"--listen {text!r} is no address", f"write {FORMS['address'].text}")
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(uvicorn.Server):
    """Says where it listens, and turns a port that is taken into a coded error."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        where = f"{self.config.host}:{self.config.port}"
        try:
            await super().startup(sockets)
        except SystemExit:  # how uvicorn says that it cannot
            raise PeerUnreachable(f"cannot listen on {where}", "choose a free port of this machine") from None
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


def run_server(app: FastAPI, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is told the address when requests may come."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # its own lines would name paths, and people could put ids into those
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
        lifespan="on",
        ws="none",
    )
    server = _Server(config, ready)

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal that ended it once more when it is done; to be stopped is no failure here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run()
