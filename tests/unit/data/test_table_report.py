"""One report names everything that is wrong or unusual in a table, and shows no value of it."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veilboost import HorizontalClassifier, VerticalClassifier
from veilboost.data import SchemaRules, check_table, load_table
from veilboost.data.report import DataWarning
from veilboost.engine.tables import table_in_memory
from veilboost.errors import MissingColumn

pytestmark = pytest.mark.fast

PERSON = "zaphod.beeblebrox@example.org"
MESS = f"""id,email,age,since,none,same,y,w
1,{PERSON},31,2020-01-02,,7,0,1
1,b@example.org,unknown,2021-02-03,,7,1,-2
,c@example.org,44,2022-03-04,,7,,1
"""


def codes(report: Any) -> list[str]:
    return [error.code for error in report.errors]


def test_all_errors_of_a_table_are_in_one_report(tmp_path: Path) -> None:
    file = tmp_path / "mess.csv"
    file.write_text(MESS)
    report = check_table(file, id="id", label="y", weight="w", categorical=["agee"])
    assert codes(report) == ["VB-1112", "VB-1114", "VB-1105", "VB-1002", "VB-1109", "VB-1108", "VB-1107"]
    assert report.table is None
    assert report.rows == 3
    assert [note.what for note in report.notes] == ["column 'since' holds dates or times"]
    with pytest.raises(MissingColumn):  # load_table raises the first of them
        load_table(file, id="id", label="y", weight="w", categorical=["agee"])
    assert PERSON not in str(report.to_dict()) + str(report.errors)


def test_all_misspelt_columns_are_reported_with_suggestions(tmp_path: Path) -> None:
    file = tmp_path / "mess.csv"
    file.write_text(MESS)
    report = check_table(file, id="idd", label="yy", weight="ww", features=["agee", "sinse", "none"])
    missing = [error for error in report.errors if error.code in {"VB-1104", "VB-1112"}]
    assert len(missing) == 5
    assert "did you mean 'age'?" in str(missing[3])
    assert "did you mean 'since'?" in str(missing[4])


def test_mixed_objects_of_pandas_are_reported_together() -> None:
    frame = pd.DataFrame({"a": [1, PERSON], "b": [2.5, PERSON], "c": [1, 2]})
    report = check_table(frame)
    assert codes(report) == ["VB-1109", "VB-1109"]
    assert codes(check_table(frame[["a"]])) == ["VB-1109"]
    assert PERSON not in str(report.errors)


@pytest.mark.parametrize(("estimator", "id"), [(VerticalClassifier(id="id"), "id"), (HorizontalClassifier(), None)])
def test_an_estimator_reports_all_errors_of_a_table(estimator: Any, id: str | None) -> None:
    frame = pd.DataFrame({"id": [1, 1, 2], "a": [1, PERSON, 2], "b": [3, PERSON, 4], "y": [0, 1, None]})
    first, *others = check_table(frame, id=id, label="y", rules=SchemaRules("keep")).errors
    assert others
    with pytest.warns(DataWarning) as caught, pytest.raises(type(first)) as raised:
        estimator.fit({"bank": frame}, "y")
    assert str(raised.value) == str(first)
    assert {f"bank: {error}" for error in others} <= {str(each.message) for each in caught}


def test_a_table_without_errors_is_loaded_with_its_notes() -> None:
    rows = 300
    frame = pa.table(
        {
            "x": np.arange(rows),
            "amount": [str(at) if at % 3 else PERSON for at in range(rows)],
            "none": pa.nulls(rows),
            "y": np.arange(rows) % 2,
        }
    )
    report = check_table(frame, label="y", rules=SchemaRules("keep"))
    assert report.errors == ()
    assert report.usable.names == ("x", "amount", "none")
    assert report.objective == "binary"
    assert [note.level for note in report.notes] == ["warning", "warning", "warning"]
    assert "'amount' is text, but 200 of 300 values are numbers" in report.notes[0].what
    assert "'amount' has 201 categories, more than 64: training uses the 1 most frequent" in report.notes[1].what
    assert "'none' is missing in all of 300 rows" in report.notes[2].what
    assert PERSON not in str(report.to_dict())


def test_a_source_that_cannot_be_read_is_one_error(tmp_path: Path) -> None:
    assert codes(check_table(tmp_path / "nowhere.csv")) == ["VB-1101"]
    assert codes(check_table(pa.table({"x": pa.array([], pa.float64())}))) == ["VB-1113"]


# --- missing values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet", "pandas", "folder"])
def test_markers_of_missing_values(tmp_path: Path, ending: str) -> None:
    values = {"n": [1.5, -999.0, 3.0], "whole": [4, 5, -999], "t": ["a", "unknown", "b"], "keep": ["-9", "x", "y"]}
    frame = pd.DataFrame(values)
    frame["d"] = pd.Categorical(["u", "v", "unknown"])
    source: Any = frame
    if ending == "csv":
        frame.to_csv(tmp_path / "a.csv", index=False)
        source = tmp_path / "a.csv"
    elif ending != "pandas":
        frame.to_parquet(tmp_path / "a.parquet")
        source = tmp_path / "a.parquet"
    if ending == "folder":
        table = table_in_memory(tmp_path, categorical=["keep"], missing_values=("-999", "unknown"))
    else:
        table = load_table(source, categorical=["keep"], missing_values=[-999, "unknown"])
    n, whole, t, keep, d = table.columns
    np.testing.assert_array_equal(n.values, np.array([1.5, np.nan, 3.0], dtype=np.float32))
    np.testing.assert_array_equal(whole.values, [4, 5, np.nan])
    assert (t.categories, t.values.tolist()) == (("a", "b"), [0, -1, 1])
    assert keep.categories == ("-9", "x", "y")
    assert (d.categories, d.values.tolist()) == (("u", "v"), [0, 1, -1])


def test_a_marker_among_numbers_of_a_csv_file_is_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\nunknown\n2\n")
    assert codes(check_table(tmp_path / "a.csv")) == ["VB-1109"]
    (x,) = load_table(tmp_path / "a.csv", missing_values="unknown").columns
    np.testing.assert_array_equal(x.values, [1, np.nan, 2])


# --- types ----------------------------------------------------------------------------------------------------------

DAY = datetime.datetime(2020, 1, 2, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([datetime.date(2020, 1, 2), None], pa.date32()), 18263),
        (pa.array([datetime.date(2020, 1, 2), None], pa.date64()), 18263),
        (pa.array([DAY, None], pa.timestamp("ns", "UTC")), 18263.5),
        (pa.array([DAY, None], pa.timestamp("s", "Europe/Berlin")), 18263.5),
        (pa.array([datetime.time(6), None], pa.time32("s")), 0.25),
        (pa.array([datetime.time(6), None], pa.time64("us")), 0.25),
        (pa.array([datetime.timedelta(hours=36), None], pa.duration("ms")), 1.5),
        (pd.to_datetime(pd.Series(["2020-01-02T12:00", None])), 18263.5),
        (pd.Series([datetime.date(2020, 1, 2), None]), 18263),
    ],
)
def test_dates_and_times_become_days(values: Any, expected: float) -> None:
    frame = pd.DataFrame({"x": values}) if isinstance(values, pd.Series) else pa.table({"x": values})
    report = check_table(frame)
    (x,) = report.usable.columns
    np.testing.assert_array_equal(x.values, np.array([expected, np.nan], dtype=np.float32))
    assert [note.level for note in report.notes] == ["note"]


@pytest.mark.parametrize(
    "values",
    [
        pd.array([True, False, None], dtype="boolean"),
        pd.array([1, 0, None], dtype="Int8"),
        pd.array([1.0, 0.0, None], dtype="Float32"),
        pd.array([True, False, None], dtype=pd.ArrowDtype(pa.bool_())),
        pd.array([1, 0, None], dtype=pd.ArrowDtype(pa.uint16())),
        pd.Series([True, False, None], dtype=object),
        pd.Series([decimal.Decimal("1"), decimal.Decimal("0"), None], dtype=object),
        pd.array([decimal.Decimal("1"), decimal.Decimal("0"), None], dtype=pd.ArrowDtype(pa.decimal128(9, 3))),
        pa.array([True, False, None]),
        pa.array([decimal.Decimal("1.0"), decimal.Decimal("0.0"), None], pa.decimal256(40, 1)),
        pa.array(np.array([1, 0, np.nan], dtype=np.float16)),
    ],
    ids=lambda values: f"{type(values).__name__}-{getattr(values, 'dtype', None) or values.type}",
)
def test_booleans_decimals_and_nullable_types_are_numbers(values: Any) -> None:
    frame = pa.table({"x": values}) if isinstance(values, pa.Array) else pd.DataFrame({"x": values})
    (x,) = load_table(frame).columns
    np.testing.assert_array_equal(x.values, np.array([1, 0, np.nan], dtype=np.float32))


@pytest.mark.parametrize(
    "values",
    [
        pd.array(["b", "a", None], dtype="string"),
        pd.array(["b", "a", None], dtype=pd.ArrowDtype(pa.string())),
        pd.Categorical(["b", "a", None], categories=["unused", "b", "a"]),
        pd.array(["b", "a", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
        pa.array(["b", "a", None]).dictionary_encode(),
    ],
    ids=["string", "arrow-string", "category", "arrow-dictionary", "dictionary"],
)
def test_nullable_text_is_categories(values: Any) -> None:
    frame = pa.table({"x": values}) if isinstance(values, pa.DictionaryArray) else pd.DataFrame({"x": values})
    (x,) = load_table(frame).columns
    assert (x.categories, x.values.tolist()) == (("a", "b"), [1, 0, -1])


def test_shards_and_files_give_the_same_days(tmp_path: Path) -> None:
    frame = pa.table({"x": pa.array([DAY, None, DAY + datetime.timedelta(1)], pa.timestamp("us", "UTC"))})
    pq.write_table(frame, tmp_path / "a.parquet")
    (here,), (there,) = load_table(tmp_path / "a.parquet").columns, table_in_memory(tmp_path).columns
    np.testing.assert_array_equal(here.values, there.values)
