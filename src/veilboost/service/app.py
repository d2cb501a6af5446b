"""The HTTP service of the active party."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from veilboost import __version__
from veilboost.errors import (
    MalformedMessage,
    OversizedMessage,
    RowsDiffer,
    TableBusy,
    UnknownMessage,
    VeilBoostError,
)
from veilboost.infer.scores import ModelInfo, meaning
from veilboost.model.explanation import Explanation
from veilboost.party.deployments import KNOWN, Deployment, Scored
from veilboost.report.pages import render
from veilboost.service.answers import explanations_of, scores_of
from veilboost.service.guard import MOST_PER_MINUTE, SEEN, Guard, Log, Seen, refusal
from veilboost.service.rows import REASONS, About, Health, ParsedRequest, Refusal, Schema, read_request

HEALTH_SECONDS, HEALTH_AGE = 2.0, 10.0  # timeout and maximum age of a health check
SMALL = 1 << 16  # bytes that are parsed at once; larger requests are parsed in another thread
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
        The open deployment; several threads call its `score` and `explain`.
    limits : ServiceLimits, optional
        Larger requests are refused.
    token : bytes, optional
        The token that requests must send; None admits everyone who can connect.
    log : callable
        Receives one line per request, without any content of the request.
    """
    info, limits, registry = deployment.info, limits or ServiceLimits(), CollectorRegistry()
    schema, version = Schema(info, deployment.version, limits.rows), deployment.version
    rows = Counter("veilboost_rows", "Rows scored.", registry=registry)
    explained = Counter("veilboost_explained_rows", "Rows explained.", registry=registry)
    strangers = Counter(
        "veilboost_unknown_rows", "Rows skipped or scored that a party does not know.", registry=registry
    )
    # A thread for each request that waits: the deployment scores those together that wait at the same time.
    threads, waiting = ThreadPoolExecutor(limits.waiting, "score"), 0
    Gauge("veilboost_waiting_requests", "Requests that wait for their scores.", registry=registry).set_function(
        lambda: waiting
    )

    def count_rows(parsed: ParsedRequest, scored: Scored) -> int:
        known = scored.status.count(KNOWN)
        done = known if parsed.unknown == "skip" else len(scored.status)
        rows.inc(done)
        strangers.inc(len(scored.status) - known)
        return done

    def explain(parsed: ParsedRequest) -> tuple[Scored, Explanation]:
        scored, found = deployment.explain(parsed.table, parsed.unknown)
        explained.inc(count_rows(parsed, scored))
        return scored, found

    def predict(parsed: ParsedRequest) -> Any:
        if parsed.reasons:
            return scores_of(info, version, parsed, *explain(parsed))
        scored = deployment.score(parsed.table, parsed.unknown)
        count_rows(parsed, scored)
        return scores_of(info, version, parsed, scored, None)

    async def answer(request: Request, act: Callable[[ParsedRequest], Any], reasons: int) -> Response:
        nonlocal waiting
        seen: Seen = request.scope[SEEN]
        try:
            content = await _body(request, limits.body_bytes)
            if len(content) <= SMALL:
                parsed = read_request(content, schema, reasons)
            else:
                parsed = await run_in_threadpool(read_request, content, schema, reasons)
        except VeilBoostError as error:  # the request itself is invalid
            return refusal(error, 413 if isinstance(error, OversizedMessage) else 400, seen)
        if waiting >= limits.waiting:
            return refusal(
                TableBusy(f"{waiting} requests are already waiting", "try again in a few seconds"), 503, seen
            )
        waiting += 1
        try:
            # The thread also encodes the answer, which may be long.
            loop = asyncio.get_running_loop()
            response = await loop.run_in_executor(threads, lambda: JSONResponse(act(parsed)))
        except VeilBoostError as error:  # the request is valid, but the parties could not answer it
            return refusal(error, 404 if isinstance(error, RowsDiffer) else 503, seen)
        finally:
            waiting -= 1
        seen.rows = parsed.table.rows
        return response

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
        response = refusal(UnknownMessage(what, "GET / lists them all"), error.status_code, request.scope[SEEN])
        response.headers.update(error.headers or {})  # of 405: the methods that are allowed
        return response

    definitions = dict[str, Any]()

    def request_of(one: str, many: str, reasons: int) -> dict[str, Any]:
        """The part of the OpenAPI document about a request, which `_body` reads."""
        body, more = schema.body(one, many, reasons)
        definitions.update(more)
        return {"requestBody": {"required": True, "content": {"application/json": {"schema": body}}}}

    sizes = f"At most {limits.rows} rows with different ids and {limits.body_bytes} bytes at once. Every column must "
    sizes += "be sent; null is a missing value, and so is a category that did not occur in training."

    @app.post(
        "/v1/predict",
        summary="Predict one row, or several",
        description=sizes,
        response_model=schema.scores,
        response_description=f"Scores in the order of the rows. A score is {meaning(info)}.",
        responses=_errors(*ERRORS),
        openapi_extra=request_of("OneRow", "ManyRows", reasons=0),
    )
    async def predict_rows(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        return await answer(request, predict, 0)

    @app.post(
        "/v1/explain",
        summary="Explain the scores of one row, or of several",
        description=f"{sizes} Other parties must allow explanations in their policies.",
        response_model=schema.explanations,
        response_description="Scores, contributions of the features (TreeSHAP) and reason codes, in the order of the "
        "rows.",
        responses=_errors(*ERRORS),
        openapi_extra=request_of("OneRowToExplain", "ManyRowsToExplain", reasons=REASONS),
    )
    async def explain_rows(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        return await answer(request, lambda parsed: explanations_of(info, version, parsed, *explain(parsed)), REASONS)

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

    # FastAPI does not collect the schemas of `request_of`.
    app.openapi()["components"]["schemas"] |= definitions
    return app


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Refusal, "description": ERRORS[status]} for status in statuses}


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
