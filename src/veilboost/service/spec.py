"""What the service says of itself: the schema of its requests and answers, and a page for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from veilboost.infer.scores import PREDICTED, SCORE, ModelInfo, meaning
from veilboost.model.part import ColumnInfo
from veilboost.types import Float64Array

JSON = "application/json"
ERRORS = {
    400: "The request is not what it should be.",
    401: "The request does not bear the token of the service.",
    404: "A row is not known to every party, or there is no such page.",
    413: "The body or the number of rows is too large.",
    500: "The service met an error of its own.",
    503: "A party cannot be reached or refused, or too many requests wait.",
}
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["code", "what", "fix"],
    "properties": {
        "code": {"type": "string", "examples": ["VB-1409"]},
        "what": {"type": "string", "description": "what is wrong"},
        "fix": {"type": "string", "description": "what to do"},
    },
}
ID_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1}]}


def score_entries(info: ModelInfo, ids: Sequence[Any], scores: Float64Array) -> list[dict[str, Any]]:
    """One JSON object per row, in the order of the rows."""
    if scores.ndim == 1:
        return [{"id": id, SCORE: score} for id, score in zip(ids, scores.tolist(), strict=True)]
    names = info.classes or ()
    best = scores.argmax(axis=1)
    return [
        {"id": id, "scores": dict(zip(names, row, strict=True)), PREDICTED: names[at]}
        for id, row, at in zip(ids, scores.tolist(), best.tolist(), strict=True)
    ]


def about(info: ModelInfo) -> dict[str, Any]:
    """The answer of /v1/model."""
    return {
        "model": info.name,
        "objective": info.objective,
        "score": meaning(info),
        "classes": None if info.classes is None else list(info.classes),
        "party": info.party,
        "parties": list(info.parties),
        "protocol": info.protocol,
        "trees": info.trees,
        "id": info.id_key,
        "columns": [
            {
                "name": column.name,
                "kind": "number" if column.categories is None else "category",
                "categories": None if column.categories is None else list(column.categories),
            }
            for column in info.columns
        ],
    }


def response(summary: str, kind: str = JSON) -> dict[str, Any]:
    """The OpenAPI words of a page without input."""
    kind = kind.partition(";")[0]
    schema: dict[str, Any] = {"type": "object" if kind == JSON else "string"}
    ok: dict[str, Any] = {"description": summary, "content": {kind: {"schema": schema}}}
    return {"summary": summary, "response_model": None, "responses": {200: ok, 401: _error(401)}}


def operation(info: ModelInfo, most_rows: int, most_bytes: int) -> dict[str, Any]:
    """The OpenAPI words of /v1/predict, with the columns of this very model."""
    row = _row(info)
    one, many = (
        _object({"row": row}),
        _object({"rows": {"type": "array", "minItems": 1, "maxItems": most_rows, "items": row}}),
    )
    entry = _entry(info)
    name = {"type": "string"}
    answers = [
        _object({"model": name, "prediction": entry}),
        _object({"model": name, "predictions": {"type": "array", "items": entry}}),
    ]
    ok: dict[str, Any] = {
        "description": f"Scores in the order of the rows. A score is {meaning(info)}.",
        "content": {JSON: {"schema": {"oneOf": answers}}},
    }
    body = {"required": True, "content": {JSON: {"schema": {"oneOf": [one, many]}}}}
    return {
        "summary": "Predict one row, or several",
        "description": f"At most {most_rows} rows and {most_bytes} bytes at once. Every column must be sent; null is "
        "a missing value, and so is a category that training did not know.",
        "response_model": None,
        "openapi_extra": {"requestBody": body},
        "responses": {200: ok, **{status: _error(status) for status in ERRORS}},
    }


def _error(status: int) -> dict[str, Any]:
    return {"description": ERRORS[status], "content": {JSON: {"schema": ERROR_SCHEMA}}}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "properties": properties,
        "additionalProperties": False,
    }


def _row(info: ModelInfo) -> dict[str, Any]:
    return _object({info.id_key: ID_SCHEMA, **{column.name: _value(column) for column in info.columns}})


def _value(column: ColumnInfo) -> dict[str, Any]:
    kinds = ["number", "boolean"] if column.categories is None else ["string", "number", "boolean"]
    return {"type": [*kinds, "null"]}


def _entry(info: ModelInfo) -> dict[str, Any]:
    if info.objective != "multiclass":
        return _object({"id": ID_SCHEMA, SCORE: {"type": "number"}})
    classes = list(info.classes or ())
    return _object(
        {
            "id": ID_SCHEMA,
            "scores": _object({name: {"type": "number"} for name in classes}),
            PREDICTED: {"enum": classes},
        }
    )


def page(info: ModelInfo) -> str:
    """A page that a person can read without leaving this machine: no scripts, nothing loaded."""
    rows = "".join(
        f"<tr><td>{escape(column.name)}</td><td>{'number' if column.categories is None else 'category'}</td></tr>"
        for column in info.columns
    )
    sample = {info.id_key: 1, **{column.name: None for column in info.columns}}
    body = escape(json.dumps({"row": sample}))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(info.name)}</title>
<style>body{{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}}
pre{{background:#eee;padding:1em;white-space:pre-wrap;overflow-wrap:anywhere}}td{{padding-right:2em}}</style></head><body>
<h1>Model {escape(info.name)}</h1>
<p>Joint predictions of {escape(", ".join(info.parties))}, served by {escape(info.party)}.
A score is {escape(meaning(info))}.</p>
<h2>Ask</h2>
<pre>curl -H 'Content-Type: application/json' -d '{body}' http://HOST:PORT/v1/predict</pre>
<p>Several rows at once: <code>{{"rows": [...]}}</code>. <code>null</code> is a missing value.</p>
<h2>Columns of {escape(info.party)}</h2>
<table><tr><td><b>{escape(info.id_key)}</b></td><td>whose row it is</td></tr>{rows}</table>
<h2>Pages</h2>
<ul><li>POST /v1/predict</li><li><a href="v1/model">/v1/model</a></li><li><a href="healthz">/healthz</a></li>
<li><a href="metrics">/metrics</a></li><li><a href="openapi.json">/openapi.json</a></li></ul>
</body></html>
"""
