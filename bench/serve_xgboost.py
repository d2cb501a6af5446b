"""Stand-alone XGBoost behind FastAPI, for `bench/serve.py`: one party that has every column of every row.

    python bench/serve_xgboost.py MODEL.json CERT KEY

Prints the address when it listens. A request is `{"rows": [{"id": ..., COLUMN: ...}, ...]}`.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import numpy as np
import uvicorn
import xgboost as xgb
from fastapi import FastAPI
from pydantic import BaseModel, create_model


class Scores(BaseModel):
    predictions: list[dict[str, str | float]]


def make_app(model: str) -> FastAPI:
    booster = xgb.Booster({"nthread": 1}, model_file=model)
    names = booster.feature_names or []
    row: Any = create_model("Row", id=(str, ...), **dict.fromkeys(names, (float | None, ...)))
    body: Any = create_model("Rows", rows=(list[row], ...))
    app = FastAPI()

    def predict(request: body) -> Scores:
        values = np.array([[getattr(each, name) for name in names] for each in request.rows], dtype=np.float32)
        scores = booster.inplace_predict(values, validate_features=False).tolist()
        return Scores(
            predictions=[{"id": each.id, "score": score} for each, score in zip(request.rows, scores, strict=True)]
        )

    predict.__annotations__["request"] = body  # a model that exists at run time only
    app.post("/v1/predict")(predict)
    return app


def main() -> None:
    model, cert, key = sys.argv[1:]
    # With the protocol named: only then asyncio sets TCP_NODELAY, without which every answer waits 40 ms for an ACK.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            make_app(model), ssl_certfile=cert, ssl_keyfile=key, log_level="warning", access_log=False, ws="none"
        )
        print(f"https://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
