"""The HTTP service of the active party, which uvicorn runs until it is stopped."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import math
import signal
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from veilboost import __version__
from veilboost.errors import (
    InvalidParameter,
    MalformedMessage,
    NotACertificate,
    OversizedMessage,
    PeerUnreachable,
    RowsDiffer,
    TableBusy,
    UnknownMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.fields import FORMS
from veilboost.infer.scores import ModelInfo, meaning
from veilboost.party.deployments import KNOWN, Deployment, Scored
from veilboost.party.identity import passphrase_of
from veilboost.report.pages import render
from veilboost.service.guard import MOST_PER_MINUTE, SEEN, Guard, Log, Seen, refusal
from veilboost.service.protocol import TimedProtocol
from veilboost.service.rows import About, Health, ParsedRequest, Refusal, Schema, read_request
from veilboost.wire.grpc import most_connections

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # of TLS 1.2; the defaults of uvicorn and Python include CBC
HEALTH_SECONDS, HEALTH_AGE = 2.0, 10.0  # timeout and maximum age of a health check
SMALL = 1 << 16  # bytes that are parsed at once; larger requests are parsed in another thread
STOP_SECONDS = 10  # how long requests in progress may take after a signal to stop
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
ERRORS = {
    400: "The request is invalid.",
    401: "The request does not have the token of the service.",
    404: "A party does not know a row, or there is no such page.",
    413: "The body or the number of rows is too large.",
    429: "The client sent too many requests within a minute.",
    500: "Internal error of the service.",
    503: "A party cannot be reached or refused, or too many requests wait.",
}


@dataclass(frozen=True)
class ServiceLimits:
    """Limits on the size of one request, on the waiting requests, and on the requests of one client in a minute."""

    rows: int = 1000
    body_bytes: int = 8 << 20
    waiting: int = 64
    per_minute: int = MOST_PER_MINUTE


def make_app(
    deployment: Deployment,
    *,
    limits: ServiceLimits | None = None,
    token: bytes | None = None,
    log: Log = lambda line: None,
) -> FastAPI:
    """Create the service of a deployment.

    Parameters
    ----------
    deployment : Deployment
        The open deployment; several threads call its `score`.
    limits : ServiceLimits, optional
        Larger requests are refused.
    token : bytes, optional
        The token that requests must send; None admits everyone who can connect.
    log : callable
        Receives one line per request, without any content of the request.
    """
    info, limits, registry = deployment.info, limits or ServiceLimits(), CollectorRegistry()
    schema = Schema(info, deployment.version, limits.rows)
    rows = Counter("veilboost_rows", "Rows scored.", registry=registry)
    strangers = Counter(
        "veilboost_unknown_rows", "Rows skipped or scored that a party does not know.", registry=registry
    )
    # A thread for each request that waits: the deployment scores those together that wait at the same time.
    threads, waiting = ThreadPoolExecutor(limits.waiting, "score"), 0
    Gauge("veilboost_waiting_requests", "Requests that wait for their scores.", registry=registry).set_function(
        lambda: waiting
    )

    async def score(parsed: ParsedRequest) -> Scored:
        nonlocal waiting
        if waiting >= limits.waiting:
            raise TableBusy(f"{waiting} requests are already waiting", "try again in a few seconds")
        waiting += 1
        try:
            loop = asyncio.get_running_loop()
            scored = await loop.run_in_executor(threads, deployment.score, parsed.table, parsed.unknown)
        finally:
            waiting -= 1
        known = scored.status.count(KNOWN)
        rows.inc(known if parsed.unknown == "skip" else len(scored.status))
        strangers.inc(len(scored.status) - known)
        return scored

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await run_in_threadpool(threads.shutdown)

    app = FastAPI(
        title=f"VeilBoost model {info.name}",
        version=__version__,
        description=f"Joint predictions of {', '.join(info.parties)}. A score is {meaning(info)}.",
        lifespan=lifespan,
        docs_url=None,  # the interactive pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        responses=_errors(401, 429),
    )
    app.add_middleware(Guard, registry=registry, token=token, per_minute=limits.per_minute, log=log)

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:  # pyright: ignore[reportUnusedFunction]
        what = "the service has no such page" if error.status_code == 404 else "the page does not support this method"
        return refusal(UnknownMessage(what, "GET / lists them all"), error.status_code, request.scope[SEEN])

    body, definitions = schema.body()

    @app.post(
        "/v1/predict",
        summary="Predict one row, or several",
        description=f"At most {limits.rows} rows and {limits.body_bytes} bytes at once. Every column must be sent; "
        "null is a missing value, and so is a category that did not occur in training.",
        response_model=schema.answer,
        response_description=f"Scores in the order of the rows. A score is {meaning(info)}.",
        responses=_errors(*ERRORS),
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}},
    )
    async def predict_rows(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        seen: Seen = request.scope[SEEN]
        try:
            content = await _body(request, limits.body_bytes)
            if len(content) <= SMALL:
                parsed = read_request(content, schema)
            else:
                parsed = await run_in_threadpool(read_request, content, schema)
        except VeilBoostError as error:  # the request itself is invalid
            return refusal(error, 413 if isinstance(error, OversizedMessage) else 400, seen)
        try:
            scored = await score(parsed)
        except VeilBoostError as error:  # the request is valid, but the parties could not answer it
            return refusal(error, 404 if isinstance(error, RowsDiffer) else 503, seen)
        seen.rows = parsed.table.rows
        return JSONResponse(_answer(info, deployment.version, parsed, scored))

    @app.get("/v1/model", summary="What the model predicts, and the columns of a row of this party")
    async def model() -> About:  # pyright: ignore[reportUnusedFunction]
        return schema.about()

    @app.get("/healthz", summary="Whether the service runs, and which parties can be reached")
    async def health() -> Health:  # pyright: ignore[reportUnusedFunction]
        # 200 even if a party is unreachable: restarting this service would not help.
        peers = await run_in_threadpool(deployment.presence, HEALTH_SECONDS, HEALTH_AGE)
        status = "degraded" if False in peers.values() else "ok"
        return Health(status=status, model=info.name, waiting=waiting, peers=dict(peers))

    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}

    @app.get("/metrics", summary="Counts for Prometheus", response_class=Response, responses=text)
    async def numbers() -> Response:  # pyright: ignore[reportUnusedFunction]
        return Response(generate_latest(registry), media_type=PROMETHEUS)

    @app.get("/", include_in_schema=False)
    async def front() -> Response:  # pyright: ignore[reportUnusedFunction]
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(_page(info, schema.id_key), headers=policy)

    # `_body` reads the body, so FastAPI does not collect its schema.
    app.openapi()["components"]["schemas"] |= definitions
    return app


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Refusal, "description": ERRORS[status]} for status in statuses}


def _answer(info: ModelInfo, version: int, parsed: ParsedRequest, scored: Scored) -> dict[str, Any]:
    if scored.scores.ndim == 1:
        scores = [{"score": None if math.isnan(score) else score} for score in scored.scores.tolist()]
    else:
        scores = [_classes(info.classes or (), row) for row in scored.scores.tolist()]
    entries: list[dict[str, Any]] = [
        {"id": id, **score, "status": status}
        for id, score, status in zip(parsed.ids, scores, scored.status, strict=True)
    ]
    content = {"prediction": entries[0]} if parsed.single else {"predictions": entries}
    return {"model": info.name, "version": version, **content}


def _classes(names: Sequence[str], scores: Sequence[float]) -> dict[str, Any]:
    if math.isnan(scores[0]):
        return {"scores": None, "predicted": None}
    best = max(range(len(scores)), key=scores.__getitem__)
    return {"scores": dict(zip(names, scores, strict=True)), "predicted": names[best]}


async def _body(request: Request, most: int) -> bytes:
    """Read the body; refuse it as soon as it is known to be too large."""
    # Only this content type: a web page of another origin cannot make a browser send it without a preflight request.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MalformedMessage("the request does not declare its body as JSON", "send Content-Type: application/json")
    declared = request.headers.get("content-length", "0")
    body = bytearray()
    if not declared.isdecimal() or int(declared[:20]) <= most:
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                break
        else:
            return bytes(body)
    raise OversizedMessage(f"the body is larger than {most} bytes", "send fewer rows in a request")


def _page(info: ModelInfo, id_key: str) -> str:
    sample = {id_key: 1, **{column.name: None for column in info.columns}}
    body = json.dumps({"row": sample})
    return render("service.html", info=info, id_key=id_key, meaning=meaning(info), body=body)


def parse_address(text: str) -> tuple[str, int]:
    """`127.0.0.1:8080` or `[::1]:8080` as host and port."""
    if not FORMS["address"].fits(text):
        raise InvalidParameter(f"--listen {text!r} is not an address", f"write {FORMS['address'].text}")
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class TlsOptions:
    """The certificate and key of the service; with `client_ca`, clients need a certificate of that authority."""

    cert: Path
    key: Path
    client_ca: Path | None = None


def tls_options(cert: Path | None, key: Path | None, client_ca: Path | None) -> TlsOptions | None:
    """The options of TLS, which need each other. None: plain HTTP."""
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise UnsupportedCombination("TLS needs --tls-cert and --tls-key", "give both of them")
    return TlsOptions(cert, key, client_ca)


def check_exposure(host: str, token: bytes | None, tls: TlsOptions | None) -> None:
    """Refuse an address that other machines can reach if the service would answer everyone."""
    if not is_loopback(host) and token is None and (tls is None or tls.client_ca is None):
        raise UnsupportedCombination(
            f"other machines can reach {host}, and the service would answer all of them",
            "add --token-file, or --client-ca with --tls-cert and --tls-key; or listen on 127.0.0.1",
        )


class _Server(uvicorn.Server):
    """Reports where it listens, and turns an occupied port into a coded error."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: Any = None) -> None:
        where = f"{self.config.host}:{self.config.port}"
        try:
            await super().startup(sockets)
        except SystemExit:  # how uvicorn reports that it cannot listen
            raise PeerUnreachable(f"cannot listen on {where}", "choose a free port of this machine") from None
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            scheme = "https" if self.config.is_ssl else "http"
            self._ready(f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}")


def run_server(app: FastAPI, host: str, port: int, ready: Callable[[str], None], tls: TlsOptions | None = None) -> None:
    """Serve until SIGINT or SIGTERM; calls `ready` with the address when the service accepts requests."""
    server = _Server(server_config(app, host, port, tls), ready)

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn raises the signal again at the end; being stopped is not a failure here.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run()


def server_config(app: FastAPI, host: str, port: int, tls: TlsOptions | None) -> uvicorn.Config:
    """The configuration of uvicorn. Raises a coded error if the certificates cannot be used."""
    files: dict[str, Any] = {}
    if tls is not None:
        passphrase = passphrase_of(tls.key)  # refused if other users can read it
        files = {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key, "ssl_ciphers": CIPHERS}
        if passphrase is not None:
            files["ssl_keyfile_password"] = passphrase.decode(errors="surrogateescape")
        if tls.client_ca is not None:
            files |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,  # its own lines would contain paths, in which clients may put ids
        access_log=False,
        server_header=False,
        http=TimedProtocol,
        limit_concurrency=most_connections(),  # of connections; the guard limits requests earlier, with an error code
        timeout_graceful_shutdown=STOP_SECONDS,
        lifespan="on",
        ws="none",
        **files,
    )
    try:
        config.load()
    except OSError as error:  # among them all errors of TLS
        raise NotACertificate(
            f"the certificates of the service cannot be used ({error.strerror or type(error).__name__})",
            "check the PEM files of --tls-cert, --tls-key and --client-ca",
        ) from None
    return config
