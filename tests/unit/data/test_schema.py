"""Every refusal has its code, names the column, and shows nobody's data."""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veilboost import errors
from veilboost.data import SchemaRules, check_labels, infer_objective, load_table

pytestmark = pytest.mark.fast

# Stands in every table below. If any message shows it, someone's data is out.
PERSON = "Zaphod4711"
SALARY = 47114711
GOOD = {"id": [PERSON, "b", "c"], "x": [SALARY, 2, 3], "y": [0, 1, 1]}


def arrow(**columns: Any) -> pa.Table:
    return pa.table({**GOOD, **columns})


def file(name: str, content: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_text(content)
        return path

    return make


def doubled_parquet(folder: Path) -> Path:
    columns = [pa.array([PERSON]), pa.array([PERSON])]
    pq.write_table(pa.table(columns, names=["x", "x"]), folder / "a.parquet")
    return folder / "a.parquet"


E = errors
# What is loaded, how, and the error it must give.
REFUSED: dict[str, tuple[Any, dict[str, Any], type[errors.VeilBoostError]]] = {
    "no file": (lambda folder: folder / "none.csv", {}, E.UnreadableFile),
    "ragged csv": (file("a.csv", f"a,b\n1,2\n{PERSON}\n"), {}, E.UnreadableFile),
    "empty csv": (file("a.csv", ""), {}, E.UnreadableFile),
    "broken parquet": (file("a.parquet", PERSON), {}, E.UnreadableFile),
    "broken arrow": (file("a.arrow", PERSON), {}, E.UnreadableFile),
    "broken libsvm": (file("a.svm", f"1 1:{PERSON}\n"), {}, E.UnreadableFile),
    "broken gzip": (file("a.csv.gz", PERSON), {}, E.UnreadableFile),
    "folder without parquet": (lambda folder: folder, {}, E.UnreadableFile),
    "no database": (lambda folder: folder / "none.duckdb", {"query": "SELECT 1"}, E.UnreadableFile),
    "not a database": (file("a.duckdb", PERSON * 500), {"query": "SELECT 1"}, E.UnreadableFile),
    "not sql": ("sql:SELEC", {}, E.UnreadableFile),
    "sql without a table": ("sql:SELECT * FROM nowhere", {}, E.UnreadableFile),
    "sql that cannot convert": (f"sql:SELECT CAST('{PERSON}' AS INT)", {}, E.UnreadableFile),
    "unknown ending": (file("a.xlsx", PERSON), {}, E.UnknownFormat),
    "unknown format": (file("a.csv", "x\n1\n"), {"format": "xml"}, E.UnknownFormat),
    "database without query": (file("a.duckdb", ""), {}, E.UnknownFormat),
    "not a table": ([PERSON], {}, E.UnknownFormat),
    "format of a frame": (arrow(), {"format": "csv"}, E.UnknownFormat),
    "query on a frame": (arrow(), {"query": "SELECT 1"}, E.UnknownFormat),
    "same id twice": (arrow(id=[PERSON, PERSON, "c"]), {"id": "id"}, E.DuplicateIds),
    "same number twice": (arrow(id=[SALARY] * 3), {"id": "id"}, E.DuplicateIds),
    "no label column": (arrow(), {"label": "default"}, E.MissingLabel),
    "label missing": (arrow(y=[0, 1, None]), {"label": "y"}, E.LabelNotANumber),
    "label nan": (arrow(y=[0.0, 1.0, float("nan")]), {"label": "y"}, E.LabelNotANumber),
    "text label missing": (arrow(y=[PERSON, "b", None]), {"label": "y"}, E.LabelNotANumber),
    "constant numbers": (arrow(x=[SALARY] * 3), {"features": ["x"]}, E.ConstantColumn),
    "constant text": (arrow(x=[PERSON] * 3), {"features": ["x"]}, E.ConstantColumn),
    "constant as float32": (arrow(x=[2**40, 2**40 + 1, 2**40]), {"features": ["x"]}, E.ConstantColumn),
    "all missing": (arrow(x=[float("nan")] * 3), {"features": ["x"]}, E.EmptyColumn),
    "all null": (arrow(x=pa.nulls(3)), {"features": ["x"]}, E.EmptyColumn),
    "all null text": (arrow(x=pa.nulls(3, pa.string())), {"features": ["x"]}, E.EmptyColumn),
    "mixed objects": (pd.DataFrame({"x": [1, PERSON]}), {}, E.MixedTypes),
    "mixed ids": (pd.DataFrame({"id": [1, PERSON], "x": [1, 2]}), {"id": "id"}, E.MixedTypes),
    "mixed csv": (file("a.csv", f"x\n1\n{PERSON}\n"), {}, E.MixedTypes),
    "mixed csv label": (file("a.csv", f"x,y\n1,1\n2,{PERSON}\n"), {"label": "y"}, E.MixedTypes),
    "intervals": (arrow(x=pa.nulls(3, pa.month_day_nano_interval())), {"features": ["x"]}, E.MixedTypes),
    "lists": (arrow(x=[[PERSON], [], []]), {"features": ["x"]}, E.MixedTypes),
    "bytes": (arrow(x=[PERSON.encode()] * 3), {"features": ["x"]}, E.MixedTypes),
    "label of dates": (arrow(y=[datetime.date(2020, 1, 1)] * 3), {"label": "y"}, E.MixedTypes),
    "float ids": (arrow(id=[1.5, 2.5, SALARY]), {"id": "id"}, E.MixedTypes),
    "ids beyond 64 bits": (arrow(id=pa.array([2**64 - 1, 1, 2], pa.uint64())), {"id": "id"}, E.MixedTypes),
    "text weights": (arrow(y=[PERSON, "b", "c"]), {"weight": "y"}, E.MixedTypes),
    "infinite": (arrow(x=[float("inf"), 1, SALARY]), {"features": ["x"]}, E.InfiniteValues),
    "infinite as float32": (arrow(x=[-1e300, 1, SALARY]), {"features": ["x"]}, E.InfiniteValues),
    "weight missing": (arrow(y=[None, 1, SALARY]), {"weight": "y"}, E.InfiniteValues),
    "weight negative": (arrow(y=[-SALARY, 1, 2]), {"weight": "y"}, E.InvalidParameter),
    "weights all zero": (arrow(y=[0, 0, 0]), {"weight": "y"}, E.InvalidParameter),
    "id among features": (arrow(), {"id": "id", "features": ["x", "id"]}, E.IdIsFeature),
    "label among features": (arrow(), {"label": "y", "features": ["y"]}, E.UnsupportedCombination),
    "label is id": (arrow(), {"label": "y", "id": "y"}, E.UnsupportedCombination),
    "no id column": (arrow(), {"id": "customer"}, E.MissingColumn),
    "no weight column": (arrow(), {"weight": "w"}, E.MissingColumn),
    "no feature column": (arrow(), {"features": ["x", "z"]}, E.MissingColumn),
    "no categorical column": (arrow(), {"categorical": ["z"]}, E.MissingColumn),
    "no rows": (arrow().slice(0, 0), {}, E.EmptyTable),
    "no rows in csv": (file("a.csv", "a,b\n"), {}, E.EmptyTable),
    "no feature and no label": (arrow().select(["id"]), {"id": "id"}, E.EmptyTable),
    "nothing left": (
        arrow(x=[1, 1, 1]),
        {"features": ["x"], "rules": SchemaRules("drop")},
        E.EmptyTable,
    ),
    "id null": (arrow(id=[PERSON, None, "c"]), {"id": "id"}, E.MissingId),
    "id empty": (arrow(id=[PERSON, "", "c"]), {"id": "id"}, E.MissingId),
    "id null number": (arrow(id=[SALARY, None, 1]), {"id": "id"}, E.MissingId),
    "id of pandas with a gap": (pd.DataFrame({"id": [1.0, None], "x": [1, 2]}), {"id": "id"}, E.MissingId),
    "two columns of one name": (file("a.csv", f"{PERSON},{PERSON}\n1,2\n"), {}, E.DuplicateColumns),
    "two columns in parquet": (doubled_parquet, {}, E.DuplicateColumns),
    "two columns in pandas": (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, E.DuplicateColumns),
    "two columns in sql": ("sql:SELECT 1 AS a, 2 AS a", {}, E.DuplicateColumns),
    "one feature twice": (arrow(), {"features": ["x", "x"]}, E.DuplicateColumns),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_have_their_code_and_show_no_data(case: str, tmp_path: Path) -> None:
    source, arguments, expected = REFUSED[case]
    with pytest.raises(expected) as caught:
        load_table(source(tmp_path) if callable(source) else source, **arguments)
    assert type(caught.value) is expected
    assert str(caught.value).startswith(f"{expected.code}: ")
    # The whole printed trace, so that a chained error of a library counts too; its lines of code do not.
    trace = "".join(traceback.TracebackException.from_exception(caught.value).format_exception_only())
    context: BaseException | None = caught.value
    while context is not None:
        trace += str(context)
        context = context.__cause__ or (None if context.__suppress_context__ else context.__context__)
    assert PERSON not in trace
    assert str(SALARY) not in trace


def test_every_code_of_the_door_has_a_case() -> None:
    tested = {expected.code for _, _, expected in REFUSED.values()} | {"VB-1106"}
    assert {f"VB-11{number:02d}" for number in range(1, 16)} <= tested


def test_messages_name_the_column_and_count() -> None:
    with pytest.raises(errors.InfiniteValues, match=r"'x'.* 2 rows"):
        load_table(arrow(x=[float("inf"), 1e39, 1]), features=["x"])
    with pytest.raises(errors.DuplicateIds, match=r"'id'.* 1 row;"):
        load_table(arrow(id=[1, 1, 2]), id="id")
    with pytest.raises(errors.LabelNotANumber, match=r"'y'.* 2 rows"):
        load_table(arrow(y=[None, 1, None]), label="y")


def test_constant_columns_may_be_dropped_or_kept() -> None:
    rows = arrow(same=["s", "s", "s"], none=pa.nulls(3))
    assert load_table(rows, id="id", rules=SchemaRules("drop")).names == ("x", "y")
    assert load_table(rows, id="id", rules=SchemaRules("keep")).names == ("x", "y", "same", "none")
    with pytest.raises(errors.InvalidParameter):
        SchemaRules("forget")  # pyright: ignore[reportArgumentType]


def test_one_value_and_missing_is_not_constant() -> None:
    assert load_table(arrow(x=[5, None, 5]), features=["x"]).names == ("x",)
    assert load_table(arrow(x=["s", None, "s"]), features=["x"]).names == ("x",)


def test_one_row_is_not_called_constant() -> None:
    assert load_table(arrow().slice(0, 1), id="id").rows == 1


def test_an_active_party_may_have_no_feature() -> None:
    table = load_table(arrow().select(["id", "y"]), id="id", label="y")
    assert table.columns == ()
    assert table.label is not None


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize(
    ("label", "objective", "classes"),
    [
        (floats(0, 1, 1), "binary", None),
        (floats(0, 1, 1), "binary", ("no", "yes")),
        (floats(0, 2, 1), "multiclass", None),
        (floats(0, 2, 1), "multiclass", ("a", "b", "c")),
        (floats(0, 1), "multiclass", None),
        (floats(-3.5, 2, 1), "regression", None),
        (floats(0, 3.5), "poisson", None),
        (floats(0, 1, 2), "auto", None),
    ],
)
def test_labels_that_fit(label: Any, objective: str, classes: Any) -> None:
    check_labels(label, objective, classes)


@pytest.mark.parametrize(
    ("label", "objective", "classes", "expected"),
    [
        (floats(0, 1, 2), "binary", None, errors.LabelOutOfRange),
        (floats(-1, 1), "binary", None, errors.LabelOutOfRange),
        (floats(0, 0.5, 1), "binary", None, errors.LabelOutOfRange),
        (floats(1, 1), "binary", None, errors.LabelOutOfRange),
        (floats(0, 0), "auto", ("only",), errors.LabelOutOfRange),
        (floats(0, 1, 3), "multiclass", None, errors.LabelOutOfRange),
        (floats(1, 2, 3), "multiclass", None, errors.LabelOutOfRange),
        (floats(0, 1, 1.5), "multiclass", None, errors.LabelOutOfRange),
        (floats(0, 1.5, 2), "multiclass", None, errors.LabelOutOfRange),
        (floats(-1, 0, 1), "multiclass", None, errors.LabelOutOfRange),
        (floats(0, 0), "multiclass", None, errors.LabelOutOfRange),
        (floats(0, 1), "multiclass", ("a", "b", "c"), errors.LabelOutOfRange),
        (floats(0, -1), "poisson", None, errors.LabelOutOfRange),
        (floats(0, np.inf), "poisson", None, errors.LabelOutOfRange),
        (floats(0, np.inf), "regression", None, errors.LabelOutOfRange),
        (floats(0, -np.inf), "auto", None, errors.LabelOutOfRange),
        (floats(0, 1), "regression", ("a", "b"), errors.LabelOutOfRange),
        (floats(0, 1), "poisson", ("a", "b"), errors.LabelOutOfRange),
        (floats(0, np.nan), "binary", None, errors.LabelNotANumber),
        (floats(0, np.nan), "regression", None, errors.LabelNotANumber),
        (floats(), "auto", None, errors.EmptyTable),
        (floats(0, 1), "ranking", None, errors.InvalidParameter),
    ],
)
def test_labels_that_do_not_fit(label: Any, objective: str, classes: Any, expected: type[Exception]) -> None:
    with pytest.raises(expected) as caught:
        check_labels(label, objective, classes)
    assert type(caught.value) is expected


@pytest.mark.parametrize("objective", ["binary", "multiclass", "poisson"])
@pytest.mark.parametrize("value", [SALARY, -SALARY, SALARY + 0.5])
def test_label_messages_show_no_label(objective: str, value: float) -> None:
    with pytest.raises(errors.LabelOutOfRange) as caught:
        check_labels(floats(0, 1, value, -value), objective)
    assert "4711" not in str(caught.value)


def test_a_gap_in_the_classes_does_not_show_the_largest_label() -> None:
    with pytest.raises(errors.LabelOutOfRange, match="3 classes") as caught:
        check_labels(floats(0, 1, SALARY), "multiclass")
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    ("label", "classes", "expected"),
    [
        (floats(0, 1, 0), None, "binary"),
        (floats(0, 1), ("no", "yes"), "binary"),
        (floats(0, 0), ("no",), "binary"),
        (floats(0, 1, 2), ("a", "b", "c"), "multiclass"),
        (floats(2, 0, 1), None, "multiclass"),
        (np.arange(100.0), None, "multiclass"),
        (np.arange(101.0), None, "regression"),
        (floats(0, 1, 3), None, "regression"),
        (floats(1, 2), None, "regression"),
        (floats(0, 0.5, 1), None, "regression"),
        (floats(0, 0), None, "regression"),
        (floats(0, 1, np.nan), None, "regression"),
        (floats(), None, "regression"),
    ],
)
def test_the_objective_is_guessed_from_the_labels(label: Any, classes: Any, expected: str) -> None:
    assert infer_objective(label, classes) == expected
