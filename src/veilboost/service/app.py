"""The HTTP service of the active party."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from veilboost.data.table import PartyTable
from veilboost.errors import MalformedMessage, OversizedMessage, UnknownMessage, VeilBoostError
from veilboost.infer.scores import ModelInfo, meaning
from veilboost.party.predicting import Prediction
from veilboost.party.presence import Presence
from veilboost.service.batching import Batcher
from veilboost.service.guard import (
    HEADERS,
    SEEN,
    Guard,
    Log,
    Seen,
    refusal,
    status_of_prediction,
    status_of_request,
)
from veilboost.service.metrics import CONTENT_TYPE, Metrics
from veilboost.service.rows import Asked, read_request
from veilboost.service.spec import about, operation, page, response, score_entries
from veilboost.types import Float64Array
from veilboost.version import release


@dataclass(frozen=True)
class ServiceLimits:
    """What one request may hold, and how many may wait."""

    rows: int = 1000
    body_bytes: int = 8 << 20
    waiting: int = 64


def make_app(
    info: ModelInfo,
    predict: Callable[[PartyTable], Prediction],
    presence: Callable[[], Presence],
    *,
    limits: ServiceLimits | None = None,
    token: bytes | None = None,
    log: Log = lambda line: None,
) -> FastAPI:
    """The service around a way to predict.

    Parameters
    ----------
    info : ModelInfo
        What may be said of the model.
    predict : callable
        Scores of a table; called from one thread, one at a time.
    presence : callable
        Which parties can be reached; may block for a moment.
    limits : ServiceLimits, optional
        Larger requests are refused.
    token : bytes, optional
        What requests must bear; None lets everyone in who can connect.
    log : callable
        Takes one line per request, in which there is nothing that was sent.
    """
    limits, metrics = limits or ServiceLimits(), Metrics()

    def score(table: PartyTable) -> Float64Array:
        scores = predict(table).scores
        metrics.predicted(table.rows)
        return scores

    batcher = Batcher(score, limits.rows, limits.waiting)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await run_in_threadpool(batcher.close)

    app = FastAPI(
        title=f"VeilBoost model {info.name}",
        version=release(),
        description=f"Joint predictions of {', '.join(info.parties)}. A score is {meaning(info)}.",
        lifespan=lifespan,
        docs_url=None,  # the interactive pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(Guard, metrics=metrics, token=token, log=log)

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:  # pyright: ignore[reportUnusedFunction]
        what = "the service has no such page" if error.status_code == 404 else "the page does not take this method"
        return refusal(UnknownMessage(what, "GET / lists them all"), error.status_code, _seen(request))

    @app.post("/v1/predict", **operation(info, limits.rows, limits.body_bytes))
    async def predict_rows(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        seen = _seen(request)
        try:
            body = await _body(request, limits.body_bytes)
            asked = await run_in_threadpool(read_request, body, info, limits.rows)
        except VeilBoostError as error:
            return refusal(error, status_of_request(error), seen)
        try:
            scores = await asyncio.wrap_future(batcher.submit(asked.table))
        except VeilBoostError as error:
            return refusal(error, status_of_prediction(error), seen)
        seen.rows = asked.table.rows
        return _json(_answer(info, asked, scores))

    @app.get("/v1/model", **response("The model: what it predicts, and what a row of this party holds."))
    async def model() -> Response:  # pyright: ignore[reportUnusedFunction]
        return _json(about(info) | {"most_rows": limits.rows})

    @app.get("/healthz", **response("Whether the service runs (it answers), and which parties can be reached."))
    async def health() -> Response:  # pyright: ignore[reportUnusedFunction]
        # 200 also when a party is away: to start this service anew would not bring it back.
        peers = await run_in_threadpool(presence)
        status = "degraded" if False in peers.values() else "ok"
        return _json({"status": status, "model": info.name, "waiting": batcher.waiting, "peers": dict(peers)})

    @app.get("/metrics", **response("Counts for Prometheus.", CONTENT_TYPE))
    async def numbers() -> Response:  # pyright: ignore[reportUnusedFunction]
        return PlainTextResponse(metrics.text(batcher.waiting), headers=HEADERS, media_type=CONTENT_TYPE)

    @app.get("/", include_in_schema=False)
    async def front() -> Response:  # pyright: ignore[reportUnusedFunction]
        policy = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return HTMLResponse(page(info), headers=HEADERS | policy)

    return app


def _seen(request: Request) -> Seen:
    return request.scope[SEEN]


def _json(content: Mapping[str, Any]) -> JSONResponse:
    return JSONResponse(content, headers=HEADERS)


def _answer(info: ModelInfo, asked: Asked, scores: Float64Array) -> dict[str, Any]:
    entries = score_entries(info, asked.ids, scores)
    return (
        {"model": info.name, "prediction": entries[0]} if asked.single else {"model": info.name, "predictions": entries}
    )


async def _body(request: Request, most: int) -> bytes:
    """The body, refused as soon as it is known to be too large."""
    # Only JSON by name: a web page elsewhere cannot make a browser send that here without asking first.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MalformedMessage("the request does not say that its body is JSON", "send Content-Type: application/json")
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
