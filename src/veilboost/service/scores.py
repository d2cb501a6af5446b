"""Scores as people and programs read them: columns of a file, or entries of an answer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.data.arrow import pyarrow, table_of
from veilboost.errors import UnknownFormat
from veilboost.service.model import ModelInfo
from veilboost.types import AnyArray, Float64Array

SCORE, PREDICTED = "score", "predicted"
ENDINGS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv"}


def meaning(info: ModelInfo) -> str:
    """What a score is."""
    if info.objective == "multiclass":
        return "the probability of each class, and the most probable one"
    if info.objective == "binary":
        return f"the probability of class {info.classes[1] if info.classes and len(info.classes) > 1 else '1'}"
    return "the predicted value"


def score_columns(info: ModelInfo, ids: AnyArray, scores: Float64Array) -> dict[str, AnyArray]:
    """The columns of a file of scores, by name: the id, then one score, or one per class and the best class."""
    columns: dict[str, AnyArray] = {info.id_name: ids}
    if scores.ndim == 1:
        columns[SCORE if info.id_name != SCORE else "score_"] = scores
        return columns
    names = info.classes or ()
    taken = {info.id_name, PREDICTED}
    for at, name in enumerate(names):
        columns[f"class {name}" if name in taken else name] = scores[:, at]
    columns[PREDICTED if info.id_name != PREDICTED else "predicted_"] = np.array(names)[scores.argmax(axis=1)]
    return columns


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


def check_ending(file: Path) -> str:
    """The format that a file's name asks for."""
    if file.suffix.lower() not in ENDINGS:
        raise UnknownFormat(f"{file.name!r} has an ending that names no format to write", "use .parquet or .csv")
    return ENDINGS[file.suffix.lower()]


def write_scores(file: Path, columns: dict[str, AnyArray]) -> None:
    """Write them for their owner alone: a reader sees the old file or the new one, never a part."""
    table = table_of(columns)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(descriptor)
    try:
        if check_ending(file) == "csv":
            pyarrow("csv").write_csv(table, name)
        else:
            pyarrow("parquet").write_table(table, name)
        os.replace(name, file)
    finally:
        Path(name).unlink(missing_ok=True)
