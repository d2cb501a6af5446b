"""What a supervisor sees of a daemon: metrics and health checks over HTTP, and warnings about certificates."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from veilboost.errors import PeerUnreachable, VeilBoostError
from veilboost.logs import EventLogger, reason
from veilboost.party.metrics import Metrics
from veilboost.party.settings import PartySettings
from veilboost.party.status import WARN_DAYS, certificate_days, readiness

_LOG = EventLogger(__name__)
_WARN_EVERY = 86_400.0  # seconds
_READY_AGE = 15.0  # seconds for which a check of readiness holds: it reads the ledger


class Monitor:
    """Serves `/metrics`, `/healthz` and `/readyz` if the settings have an address, until `close`."""

    def __init__(self, settings: PartySettings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._known: tuple[float, Mapping[str, VeilBoostError | None]] | None = None
        self._server = None if settings.metrics is None else self._listen(settings.metrics)
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, args=(0.1,), name="metrics", daemon=True).start()
        threading.Thread(target=self._watch_certificates, name="certificates", daemon=True).start()

    @property
    def address(self) -> str | None:
        """Where it listens, with the port that was chosen for port 0."""
        host = (self._settings.metrics or "").rpartition(":")[0]
        return None if self._server is None else f"{host}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._closed.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def ready(self) -> bool:
        return not any(self._checks().values())

    def _checks(self) -> Mapping[str, VeilBoostError | None]:
        with self._lock:
            if self._known is None or time.monotonic() - self._known[0] > _READY_AGE:
                self._known = time.monotonic(), readiness(self._settings)
            return self._known[1]

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, content type and content of a page."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)
        status, content = 404, dict[str, Any](pages=["/metrics", "/healthz", "/readyz"])
        if path == "/healthz":
            status, content = 200, {"status": "ok"}
        elif path == "/readyz":
            checks = {name: error and error.code for name, error in self._checks().items()}
            status = 503 if any(checks.values()) else 200
            content = {"ready": status == 200, "checks": checks}
        return status, "application/json", json.dumps(content).encode() + b"\n"

    def _listen(self, address: str) -> ThreadingHTTPServer:
        host, _, port = address.rpartition(":")

        class Server(ThreadingHTTPServer):
            server_bind = TCPServer.server_bind  # the other one asks a name server for this host's name
            if host.startswith("["):
                address_family = cast(Any, type(TCPServer.address_family))["AF_INET6"]

            def handle_error(self, request: Any, client_address: Any) -> None:
                if (error := sys.exception()) is not None:
                    _LOG.warning("internal_error", f"a scrape or health check failed: {reason(error)}")

        class Handler(_Handler):
            monitor = self

        try:
            return Server((host.strip("[]"), int(port)), Handler)
        except OSError as error:
            raise PeerUnreachable(
                f"cannot listen on {address} for metrics ({error.strerror})", "choose a free port for metrics"
            ) from None

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


class _Handler(BaseHTTPRequestHandler):
    monitor: Monitor
    timeout = 10.0  # seconds for a client that sends or reads nothing

    def do_GET(self) -> None:
        status, kind, content = self.monitor.answer(self.path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def version_string(self) -> str:
        return "veilboost"

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not logged."""
