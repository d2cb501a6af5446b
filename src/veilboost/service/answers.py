"""The answers of the service as JSON values: scores, reason codes and contributions. A skipped row has null."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from veilboost.infer.scores import ModelInfo
from veilboost.model.explanation import Explanation
from veilboost.party.deployments import Scored
from veilboost.service.rows import ParsedRequest


def scores_of(info: ModelInfo, version: int, parsed: ParsedRequest, scored: Scored, found: Explanation | None) -> Any:
    """The answer of `/v1/predict`; with an explanation, rows have reason codes."""
    entries = _scores(info, parsed, scored)
    if found is not None:
        entries = _joined(entries, ({"reasons": each} for each in _reasons(found, parsed, scored)))
    content = {"prediction": entries[0]} if parsed.single else {"predictions": entries}
    return {"model": info.name, "version": version, **content}


def explanations_of(info: ModelInfo, version: int, parsed: ParsedRequest, scored: Scored, found: Explanation) -> Any:
    """The answer of `/v1/explain`."""
    reasons = ({"reasons": each} for each in _reasons(found, parsed, scored))
    entries = _joined(_joined(_scores(info, parsed, scored), _contributions(info, found)), reasons)
    content = {"explanation": entries[0]} if parsed.single else {"explanations": entries}
    names = zip(found.feature_names, found.parties, strict=True)
    features = [{"name": name, "party": party} for name, party in names]
    return {"model": info.name, "version": version, "features": features, **content}


def _joined(entries: Sequence[Mapping[str, Any]], more: Iterator[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**entry, **rest} for entry, rest in zip(entries, more, strict=True)]


def _scores(info: ModelInfo, parsed: ParsedRequest, scored: Scored) -> list[dict[str, Any]]:
    if scored.scores.ndim == 1:
        scores = [{"score": None if math.isnan(score) else score} for score in scored.scores.tolist()]
    else:
        scores = [_classes(info.classes or (), row) for row in scored.scores.tolist()]
    return [
        {"id": id, **score, "status": status}
        for id, score, status in zip(parsed.ids, scores, scored.status, strict=True)
    ]


def _classes(names: Sequence[str], scores: Sequence[float]) -> dict[str, Any]:
    if math.isnan(scores[0]):
        return {"scores": None, "predicted": None}
    best = max(range(len(scores)), key=scores.__getitem__)
    return {"scores": dict(zip(names, scores, strict=True)), "predicted": names[best]}


def _reasons(found: Explanation, parsed: ParsedRequest, scored: Scored) -> Iterator[list[str] | None]:
    for reasons, score in zip(found.reasons(parsed.reasons), scored.scores.tolist(), strict=True):
        yield None if math.isnan(score if isinstance(score, float) else score[0]) else reasons


def _contributions(info: ModelInfo, found: Explanation) -> Iterator[dict[str, Any]]:
    names = found.feature_names
    for expected, values in zip(found.base_values.tolist(), found.values.tolist(), strict=True):
        if math.isnan(expected if isinstance(expected, float) else expected[0]):
            yield {"expected": None, "contributions": None}
        elif isinstance(expected, float):
            yield {"expected": expected, "contributions": dict(zip(names, values, strict=True))}
        else:  # values: features, classes
            classes = info.classes or ()
            by_class = [dict(zip(names, each, strict=True)) for each in zip(*values, strict=True)]
            yield {
                "expected": dict(zip(classes, expected, strict=True)),
                "contributions": dict(zip(classes, by_class, strict=True)),
            }
