"""What a supervisor sees of a daemon: metrics and health checks over HTTP, and warnings about certificates."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from veilboost.errors import PeerUnreachable, VeilBoostError
from veilboost.logs import EventLogger
from veilboost.party.metrics import Metrics
from veilboost.party.settings import PartySettings
from veilboost.party.status import WARN_DAYS, certificate_days, readiness

_LOG = EventLogger(__name__)
_WARN_EVERY = 86_400.0  # seconds
_READY_AGE = 5.0  # seconds for which a check of readiness holds
Respond = Callable[[str, list[tuple[str, str]]], Any]


class Monitor:
    """Serves `/metrics`, `/healthz` and `/readyz` if the settings have an address, until `close`."""

    def __init__(self, settings: PartySettings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._known: tuple[float, Mapping[str, VeilBoostError | None]] | None = None
        self._server = None if settings.metrics is None else _listen(settings.metrics, self._answer)
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True).start()
        threading.Thread(target=self._watch_certificates, name="certificates", daemon=True).start()

    @property
    def address(self) -> str | None:
        """Where it listens, with the port that was chosen for port 0."""
        host = (self._settings.metrics or "").rpartition(":")[0]
        return None if self._server is None else f"{host}:{self._server.server_port}"

    def close(self) -> None:
        self._closed.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def ready(self) -> bool:
        return all(error is None for error in self._checks().values())

    def _checks(self) -> Mapping[str, VeilBoostError | None]:
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > _READY_AGE:
                self._known = time.monotonic(), readiness(self._settings)
            return self._known[1]

    def _answer(self, environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        path = environ.get("PATH_INFO")
        if path == "/metrics":
            return _reply(respond, "200 OK", generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST)
        if path == "/healthz":
            return _reply(respond, "200 OK", b'{"status": "ok"}\n')
        if path == "/readyz":
            checks = {name: error and error.code for name, error in self._checks().items()}
            ready = not any(checks.values())
            body = json.dumps({"ready": ready, "checks": checks}).encode() + b"\n"
            return _reply(respond, "200 OK" if ready else "503 Service Unavailable", body)
        return _reply(respond, "404 Not Found", b'{"pages": ["/metrics", "/healthz", "/readyz"]}\n')

    def _watch_certificates(self) -> None:
        while True:
            warn_about_certificates(self._settings)
            if self._closed.wait(_WARN_EVERY):
                return


def warn_about_certificates(settings: PartySettings) -> None:
    """Log certificates that expire soon or have expired. Renewed files count without a restart."""
    for name, days in certificate_days(settings).items():
        if days is not None and days < WARN_DAYS:
            text = f"expires in {days:.0f} days" if days >= 0 else f"expired {-days:.0f} days ago"
            _LOG.warning("certificate_expires", f"the {name} certificate {text}", certificate=name, days=round(days, 1))


def _reply(respond: Respond, status: str, body: bytes, kind: str = "application/json") -> list[bytes]:
    respond(status, [("Content-Type", kind), ("Cache-Control", "no-store")])
    return [body]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the host's full name, for which the library would ask a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # pyright: ignore[reportAttributeAccessIssue]
        self.setup_environ()


class _Handler(WSGIRequestHandler):
    timeout = 10.0  # seconds for a client that sends or reads nothing

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""


def _listen(address: str, answer: Callable[[dict[str, Any], Respond], Iterable[bytes]]) -> _Server:
    host, _, port = address.rpartition(":")

    class Server(_Server):
        if host.startswith("["):
            address_family = cast(Any, type(TCPServer.address_family))["AF_INET6"]

    try:
        server = Server((host.strip("[]"), int(port)), _Handler)
    except OSError as error:
        raise PeerUnreachable(
            f"cannot listen on {address} for metrics ({error.strerror})", "choose a free port for metrics"
        ) from None
    server.set_app(answer)
    return server
