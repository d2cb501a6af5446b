"""Middleware around every request: rate limit, token check, metrics, log, and error responses."""

from __future__ import annotations

import asyncio
import hmac
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import FixedWindowRateLimiter
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veilboost.errors import (
    ExposedKey,
    InvalidParameter,
    LimitReached,
    PeerBroken,
    TableBusy,
    UnknownPeer,
    UnreadableCertificate,
    UnreadableFile,
    VeilBoostError,
)
from veilboost.party.identity import read_private

Log = Callable[[str], None]
ROUTES = frozenset({"/", "/v1/predict", "/v1/explain", "/v1/model", "/healthz", "/metrics", "/openapi.json"})
OPEN_ROUTES = frozenset({"/healthz"})  # probes have no token, and no limit
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SHORTEST_TOKEN = 16
MOST_REQUESTS = 128  # concurrent requests, including those that wait for a prediction
MOST_PER_MINUTE = 600  # requests of one client
SEND_SECONDS = 60.0  # how long a client may take to read a piece of its answer
CLIENT_CLOSED = 499  # the status that is counted if the client closes the connection, as in nginx
SEEN = "veilboost.seen"
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds


@dataclass
class Seen:
    """What is counted and logged about a request: no content from the sender."""

    status: int = 500
    code: str | None = None
    rows: int | None = None


def read_token(file: Path) -> bytes:
    """Read the token from a file that only its owner may read."""
    try:
        token = read_private(file).strip()
    except ExposedKey as error:
        raise ExposedKey(
            error.what, "chmod 600 the file; if others could have read it, write a new token into it"
        ) from None
    except UnreadableCertificate as error:
        raise UnreadableFile(error.what) from None
    if len(token) < SHORTEST_TOKEN or not all(33 <= letter < 127 for letter in token):
        raise InvalidParameter(
            f"{file} does not contain a token of at least {SHORTEST_TOKEN} letters, digits and signs",
            "write one with: openssl rand -hex 32",
        )
    return token


def refusal(error: VeilBoostError, status: int, seen: Seen) -> JSONResponse:
    """An error response in JSON: code, what is wrong, what to do."""
    seen.code = error.code
    headers: dict[str, str] = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TableBusy | LimitReached):
        headers["Retry-After"] = "5"
    return JSONResponse({"code": error.code, "what": error.what, "fix": error.remedy}, status, headers)


class Guard:
    """ASGI middleware: every failure becomes a coded error response."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        registry: CollectorRegistry,
        token: bytes | None,
        per_minute: int = MOST_PER_MINUTE,
        log: Log = lambda line: None,
    ) -> None:
        disable_created_metrics()
        self._requests = Counter(
            "veilboost_requests", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._errors = Counter(
            "veilboost_errors", "Requests refused, by the code of the error.", ("code",), registry=registry
        )
        self._seconds = Histogram(
            "veilboost_request_seconds", "How long requests took.", ("route",), buckets=BOUNDS, registry=registry
        )
        self._app, self._token, self._log = app, token, log
        self._rate, self._rates = RateLimitItemPerMinute(per_minute), FixedWindowRateLimiter(MemoryStorage())
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, seen, begun = time.monotonic(), Seen(), False
        scope[SEEN] = seen

        async def watch(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun, seen.status = True, message["status"]
                headers = MutableHeaders(scope=message)
                headers["Cache-Control"], headers["X-Content-Type-Options"] = "no-store", "nosniff"
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        self._in_progress += 1
        try:
            if not await self._within_rate(scope):
                error = LimitReached(
                    f"more than {self._rate.amount} requests of this client in a minute", "send fewer requests"
                )
                await refusal(error, 429, seen)(scope, receive, watch)
            elif not self._may_pass(scope):
                error = UnknownPeer(
                    "the request does not have the token of this service", "send Authorization: Bearer TOKEN"
                )
                await refusal(error, 401, seen)(scope, receive, watch)
            elif self._in_progress > MOST_REQUESTS:
                busy = TableBusy(f"{MOST_REQUESTS} requests are already in progress", "try again in a few seconds")
                await refusal(busy, 503, seen)(scope, receive, watch)
            else:
                await self._app(scope, receive, watch)
        except ClientDisconnect:  # before it had sent its whole request: nobody reads an answer
            seen.status = CLIENT_CLOSED
        except Exception as error:
            # The text of an exception may contain data: only its type and location are reported, and only in the log.
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._log(f"{type(error).__name__} at {where.filename}:{where.lineno}")
            if not begun:
                broken = PeerBroken(
                    f"internal error of the service ({type(error).__name__})", "read its log, and report the error"
                )
                await refusal(broken, 500, seen)(scope, receive, watch)
        finally:
            self._in_progress -= 1
            self._note(scope, seen, time.monotonic() - started)

    async def _within_rate(self, scope: Scope) -> bool:
        client = scope.get("client") or ("",)
        return scope["path"] in OPEN_ROUTES or await self._rates.hit(self._rate, client[0])

    def _may_pass(self, scope: Scope) -> bool:
        if self._token is None or scope["path"] in OPEN_ROUTES:
            return True
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
        return hmac.compare_digest(token.strip(), self._token) and kind.lower() == b"bearer"

    def _note(self, scope: Scope, seen: Seen, seconds: float) -> None:
        # Only known paths and methods: others contain text from the sender.
        route = scope["path"] if scope["path"] in ROUTES else "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._requests.labels(method, route, seen.status).inc()
        self._seconds.labels(route).observe(seconds)
        if seen.code is not None:
            self._errors.labels(seen.code).inc()
        code = "" if seen.code is None else f" {seen.code}"
        rows = "" if seen.rows is None else f" rows={seen.rows}"
        self._log(f"{method} {route} {seen.status}{code}{rows} {seconds * 1e3:.0f} ms")
