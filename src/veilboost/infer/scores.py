"""The meaning of a model's scores, and score files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilboost.data.columns import ArrowColumn, Kind, floats, id_values, kind_of, pyarrow, table_of
from veilboost.data.load import read_source
from veilboost.data.schema import Selection
from veilboost.durable import replacing
from veilboost.errors import MissingColumn, MixedTypes, UnknownFormat
from veilboost.model.explanation import Explanation
from veilboost.model.share import ColumnInfo, ModelShare, Skeleton
from veilboost.types import AnyArray, Float64Array, PartyName

SCORE, PREDICTED, ROW_NUMBER = "score", "predicted", "row"
ENDINGS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip


@dataclass(frozen=True)
class ModelInfo:
    """What the predicting party may know about its model without asking other parties."""

    name: str
    party: PartyName
    parties: tuple[PartyName, ...]
    protocol: str
    objective: str
    classes: tuple[str, ...] | None
    columns: tuple[ColumnInfo, ...]
    id_name: str
    trees: int

    @staticmethod
    def of(name: str, party: PartyName, share: ModelShare, skeleton: Skeleton, id_name: str | None) -> ModelInfo:
        """For a run of this name at this party. For a full model, `share.party` is not the name of a party."""
        classes = skeleton.classes
        if skeleton.objective == "multiclass" and classes is None:  # the labels were numbers
            classes = tuple(str(number) for number in range(skeleton.trees_per_round))
        return ModelInfo(
            name=name,
            party=party,
            parties=skeleton.parties if share.party == party else (party,),
            protocol=skeleton.protocol,
            objective=skeleton.objective,
            classes=classes,
            columns=share.columns,
            id_name=id_name or ROW_NUMBER,
            trees=len(skeleton.trees),
        )


def meaning(info: ModelInfo) -> str:
    """The meaning of a score."""
    if info.objective == "multiclass":
        return "the probability of each class, and the most probable one"
    if info.objective == "binary":
        return f"the probability of class {info.classes[1] if info.classes and len(info.classes) > 1 else '1'}"
    return "the predicted value"


def score_columns(info: ModelInfo, ids: AnyArray, scores: Float64Array) -> dict[str, AnyArray]:
    """The columns of a score file, by name: the id, then one score, or one per class and the predicted class."""
    columns: dict[str, AnyArray] = {info.id_name: ids}
    if scores.ndim == 1:
        columns[SCORE if info.id_name != SCORE else "score_"] = scores
        return columns
    names = info.classes or ()
    taken = {info.id_name, PREDICTED}
    for at, name in enumerate(names):
        columns[f"class {name}" if name in taken else name] = scores[:, at]
    predicted = np.array(names, dtype=np.object_)[scores.argmax(axis=1)]
    predicted[np.isnan(scores).any(axis=1)] = None
    columns[PREDICTED if info.id_name != PREDICTED else "predicted_"] = predicted
    return columns


def explanation_columns(
    info: ModelInfo, ids: AnyArray, scores: Float64Array, found: Explanation, top: int
) -> dict[str, AnyArray]:
    """The columns of a file of explanations: scores, `top` reason codes, expected margins and contributions."""
    columns, reasons = score_columns(info, ids, scores), found.reasons(top)
    for at in range(top):
        codes = np.array([each[at] if at < len(each) else "" for each in reasons], dtype=np.str_)
        add_column(columns, f"reason_{at + 1}", codes)
    for output, name in enumerate(found.output_names or ("",)):
        one, ending = found.output(output), f"_{name}" if name else ""
        add_column(columns, f"expected{ending}", one.base_values)
        for feature, values in zip(one.feature_names, one.values.T, strict=True):
            add_column(columns, f"contribution_{feature}{ending}", values)
    return columns


def add_column(columns: dict[str, AnyArray], name: str, values: AnyArray) -> None:
    """Add a column after the scores. Features and classes may have any name: one that is taken gets underscores."""
    while name in columns:
        name += "_"
    columns[name] = values


def check_ending(file: Path) -> str:
    """The format for a file's suffix."""
    if file.suffix.lower() not in ENDINGS:
        raise UnknownFormat(f"{file.name!r} has no suffix of a supported format", "use .parquet, .csv or .arrow")
    return ENDINGS[file.suffix.lower()]


def write_scores(file: Path, columns: dict[str, AnyArray]) -> None:
    """Write scores to a file that only its owner can read. The file is replaced atomically.

    NaN, which a row without a score has, becomes null: an empty field of a csv file.
    """
    filled = {name: pyarrow().array(values, from_pandas=True) for name, values in columns.items()}
    table, format = table_of(filled), check_ending(file)
    with replacing(file) as temporary:
        if format == "csv":
            pyarrow("csv").write_csv(table, temporary)
        elif format == "arrow":
            pyarrow("feather").write_feather(table, str(temporary))
        else:
            pyarrow("parquet").write_table(table, temporary)


@dataclass(frozen=True)
class Scores:
    """The scores of rows: (n,), or (n, K) with the names of the K classes. NaN where a row has no score."""

    ids: AnyArray
    scores: Float64Array
    classes: tuple[str, ...] | None = None
    id_name: str | None = None


def read_scores(file: Path, id: str | None = None) -> Scores:
    """Read a file as `write_scores` writes it: the id, then one score, or one per class and the predicted class.

    `id` is the id column; None: the first column of the file.
    """
    columns = list(read_source(file, Selection()).columns)
    if not columns or id not in (None, *columns):
        raise MissingColumn(f"{str(file)!r} has no id column {id or ''}".rstrip(), "name it with --id")
    id = id or columns[0]
    read = read_source(file, Selection(id=id))  # ids keep their spelling only in a column that is known to hold them
    ids = id_values(id, read.columns[id], typed=read.typed)
    others = [name for name in columns if name != id]
    last = next((name for name in (PREDICTED, "predicted_") if name in others), None)
    one = next((name for name in (SCORE, "score_") if name in others), None)
    if last is None and one is not None:
        return Scores(ids, _numbers(one, read.columns[one]), id_name=id)
    names = [] if last is None else others[: others.index(last)]  # a status and an explanation come after it
    if len(names) < 2:
        raise MissingColumn(
            f"{str(file)!r} has neither a column {SCORE!r} nor a column for each class and {PREDICTED!r}",
            "give a file that veilboost predict wrote",
        )
    classes = tuple(name.removeprefix("class ") if name[6:] in (id, PREDICTED) else name for name in names)
    return Scores(ids, np.stack([_numbers(name, read.columns[name]) for name in names], axis=1), classes, id)


def _numbers(name: str, column: ArrowColumn) -> Float64Array:
    if kind_of(column) not in (Kind.NUMBER, Kind.NOTHING):
        raise MixedTypes(f"the column {name!r} holds {kind_of(column).value}", "give scores as numbers")
    return floats(column)
