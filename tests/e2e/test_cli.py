"""The command line: what a person types, and what comes back."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Result, call
from parties import until

VEILBOOST = Path(sys.executable).parent / "veilboost"
ROWS = 300
QUICK = ("--trees", "4", "--depth", "3", "--n-jobs", "1")
ROLES = ("--label", "label", "--id", "id")
REQUIRED = {
    "protocol", "rows", "features", "parties", "trees", "depth", "metric", "value", "auc", "auc_xgboost",
    "auc_active_only", "seconds_per_tree", "seconds_per_tree_xgboost", "fit_seconds", "fit_seconds_xgboost",
    "bytes_sent", "messages", "rounds", "peak_rss_mb", "model_sha256", "status", "objective", "random_state", "n_jobs",
}  # fmt: skip


def veilboost(*arguments: object, env: Mapping[str, str] | None = None) -> Result:
    return call(*arguments, env=env)


def succeed(*arguments: object, env: Mapping[str, str] | None = None) -> str:
    done = veilboost(*arguments, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def simulate(*arguments: object, env: Mapping[str, str] | None = None) -> dict[str, Any]:
    return _strict_json(succeed("simulate", *QUICK, *arguments, "--json", env=env))


def refused(*arguments: object) -> str:
    """The code of the one line that a refusal is."""
    done = veilboost(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"VB-\d{4}: [^\n]+; [^\n]+\n", done.stderr), done.stderr
    return done.stderr[:7]


def _strict_json(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in JSON")

    found: Any = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found  # pyright: ignore[reportUnknownVariableType]


def columns(seed: int = 0, rows: int = ROWS) -> dict[str, Any]:
    """Two numeric columns that matter, one that has gaps, one of categories."""
    rng = np.random.default_rng(seed)
    a, b, c = rng.normal(size=(3, rows))
    shade = rng.choice(["red", "green", "blue"], rows)
    score = a + 2 * b + 1.5 * (shade == "red")
    gaps = np.where(rng.random(rows) < 0.1, np.nan, c)
    return {
        "id": np.arange(rows) * 7 + 3,
        "a": a,
        "b": b,
        "c": gaps,
        "shade": shade,
        "label": (score + rng.normal(size=rows) > 0.5).astype(np.int64),
    }


def write(path: Path, table: Mapping[str, Any]) -> Path:
    pq.write_table(pa.table(dict(table)), path)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "table.parquet", columns())


# --- help -------------------------------------------------------------------------------------------------


def test_version_and_help_are_there() -> None:
    assert re.fullmatch(r"veilboost \d+\.\d+\.\d+\S*\n", succeed("--version"))
    text = succeed("--help")
    for command in ("simulate", "protocols", "inspect", "export", "datasets"):
        assert command in text


@pytest.mark.parametrize("command", ["simulate", "protocols", "inspect", "export", "datasets"])
def test_every_command_teaches(command: str) -> None:
    text = succeed(command, "--help", env={"COLUMNS": "120"})
    assert "Examples:" in text
    assert f"veilboost {command}" in text.split("Examples:")[1]
    assert "--json" in text


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys, veilboost.cli.main;"
        "print([name for name in ('numpy', 'pyarrow', 'sklearn', 'xgboost', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "arguments", [("simulate", "--trees", "many"), ("simulate", "--nonsense"), ("nonsense",), ("export", "x")]
)
def test_usage_errors_exit_with_2(arguments: Sequence[str]) -> None:
    done = veilboost(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


# --- simulate ---------------------------------------------------------------------------------------------


def test_simulate_reports_what_it_must(table: Path) -> None:
    found = simulate("--data", table, *ROLES, "--parties", 2, "--protocol", "plain", "--max-bin", 32)
    assert set(found) >= REQUIRED
    assert (found["protocol"], found["objective"], found["metric"]) == ("plain", "binary", "auc")
    assert (found["rows"], found["rows_train"], found["rows_test"]) == (ROWS, 240, 60)
    assert found["security_bits"] is None
    assert (found["features"], found["parties"], found["trees"], found["depth"]) == (4, 2, 4, 3)
    assert found["columns"] == {"active": 2, "passive1": 2}
    assert found["auc"] == found["value"]
    assert found["auc"] == pytest.approx(found["auc_xgboost"], abs=0.03)
    assert 0.5 < found["auc_active_only"] < found["auc"]
    assert found["status"] == {"active": "unprotected", "passive": "unprotected"}
    assert re.fullmatch(r"[0-9a-f]{64}", found["model_sha256"])
    assert any("labels" in what for what in found["learned"]["passive1"])
    assert sum(found["bytes_sent_by_party"].values()) == found["bytes_sent"]
    for name in ("seconds_per_tree", "seconds_per_tree_xgboost", "fit_seconds", "peak_rss_mb", "rounds"):
        assert found[name] > 0


def test_the_model_depends_on_ids_and_not_on_row_order_parties_or_threads(table: Path, tmp_path: Path) -> None:
    order = np.random.default_rng(5).permutation(ROWS)
    shuffled = write(tmp_path / "shuffled.parquet", {name: values[order] for name, values in columns().items()})
    bare = "--no-baselines"
    first = simulate("--data", table, *ROLES, bare)
    again = simulate("--data", shuffled, *ROLES, "--parties", 4, "--n-jobs", 2, bare)
    other = simulate("--data", table, *ROLES, "--random-state", 1, bare)
    assert (again["model_sha256"], again["auc"]) == (first["model_sha256"], first["auc"])
    assert (first["n_jobs"], again["n_jobs"]) == (1, 2)
    assert other["model_sha256"] != first["model_sha256"]
    assert first["auc_xgboost"] is first["auc_active_only"] is first["seconds_per_tree_xgboost"] is None


def test_the_summary_for_people(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    done = veilboost(
        "simulate", "--data", table, *ROLES, *QUICK, "--columns", "bank=a", "--columns", "shop=*", "--save", folder,
        env={"COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = done.stdout
    for said in ("alone, bank only", "together, 2 parties", "central XGBoost", "per tree", "active (holds the label)"):
        assert said in text
    assert "gradient and hessian of every row: in the first round these are the labels" in text
    assert "unprotected: labels of the active party against every passive party" in text
    assert "plain does not protect the active party's labels and the active party's features" in text
    assert str(folder) in text


def test_without_xgboost_the_comparison_is_null_and_says_how_to_get_it(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)  # as if it were not installed
    found = simulate("--data", table, *ROLES)
    assert found["auc_xgboost"] is found["seconds_per_tree_xgboost"] is found["fit_seconds_xgboost"] is None
    assert found["auc_active_only"] > 0.5
    assert "pip install 'veilboost[compare]'" in succeed("simulate", "--data", table, *ROLES, *QUICK)


def test_other_objectives_report_their_own_metric(tmp_path: Path) -> None:
    made = columns()
    number = write(tmp_path / "number.parquet", made | {"label": made["a"] * 100 + made["b"]})
    found = simulate("--data", number, *ROLES)
    assert (found["objective"], found["metric"], found["value"]) == ("regression", "rmse", found["rmse"])
    assert found["rmse"] == pytest.approx(found["rmse_xgboost"], rel=0.2)
    names = np.array(["low", "middle", "high"])[np.digitize(made["b"], [-0.5, 0.5])]
    three = write(tmp_path / "three.parquet", made | {"label": names})
    found = simulate("--data", three, *ROLES, "--eval-metric", "merror", "--categories", "onehot")
    assert (found["objective"], found["trees"], found["trees_per_round"]) == ("multiclass", 4, 3)
    assert found["merror"] == pytest.approx(found["merror_xgboost"], abs=0.1)
    known = names != "high"  # without the first class, the codes of a file's own classes would be others
    few = write(tmp_path / "few.parquet", {k: v[known] for k, v in (made | {"label": names}).items()})
    found = simulate("--data", three, "--test-data", few, *ROLES, "--eval-metric", "merror", "--no-baselines")
    assert found["merror"] < 0.2


def test_test_data_early_stopping_weights_and_declared_categories(tmp_path: Path) -> None:
    train, test = columns(), columns(seed=1, rows=60)
    for made in (train, test):
        made["weight"] = np.linspace(0.5, 2, len(made["id"]))
        made["code"] = np.arange(len(made["id"])) % 3
        made["label"] = np.where(made["label"] == 1, "yes", "no")
    files = write(tmp_path / "train.parquet", train), write(tmp_path / "test.parquet", test)
    found = simulate(
        "--data", files[0], "--test-data", files[1], *ROLES, "--weight", "weight", "--categorical", "code",
        "--trees", 40, "--validation-size", 0.3, "--early-stopping-rounds", 2, "--learning-rate", 0.9,
    )  # fmt: skip
    assert (found["rows_train"], found["rows_validation"], found["rows_test"]) == (210, 90, 60)
    assert found["features"] == 5
    assert 0 < found["trees"] < 40
    assert found["auc"] == pytest.approx(found["auc_xgboost"], abs=0.1)


def test_a_label_party_without_columns_has_nothing_to_learn_from_alone(table: Path) -> None:
    found = simulate("--data", table, *ROLES, "--columns", "bank=", "--columns", "shop=*")
    assert found["columns"] == {"bank": 0, "shop": 4}
    assert found["auc_active_only"] is None
    assert found["auc"] > 0.5


def test_what_has_no_value_is_null_in_json(tmp_path: Path) -> None:
    made = columns()
    test = columns(seed=1, rows=30) | {"label": np.zeros(30, dtype=np.int64)}  # no area under one class
    train = write(tmp_path / "train.parquet", made)
    found = simulate("--data", train, "--test-data", write(tmp_path / "test.parquet", test), *ROLES, "--no-baselines")
    assert found["auc"] is None


def test_one_table_per_party_and_the_built_in_sets(tmp_path: Path) -> None:
    files = _strict_json(succeed("datasets", "demo", "--out", tmp_path / "town", "--json"))["files"]
    assert set(files) == {"bank", "shop", "telecom"}
    named = [part for name, path in files.items() for part in ("--data", f"{name}={path}")]
    bare = "--no-baselines"
    own = simulate(*named, "--id", "customer_id", "--label", "default", bare)
    scene = simulate("--demo-data", bare)
    assert scene["parties"] == 3
    assert own["model_sha256"] == scene["model_sha256"]
    iris = simulate("--dataset", "iris", bare)
    assert (iris["objective"], iris["features"], iris["rows"]) == ("multiclass", 4, 150)


# --- the other commands -----------------------------------------------------------------------------------


def test_protocols_and_datasets_list_what_there_is() -> None:
    found = _strict_json(succeed("protocols", "--json"))["protocols"]
    plain = next(entry for entry in found if entry["name"] == "plain")
    assert plain["exact"] is True
    assert plain["status"] == {"active": "unprotected", "passive": "unprotected"}
    assert {"setting", "summary", "source", "protections"} <= set(plain)
    assert "plain" in succeed("protocols")
    sets = _strict_json(succeed("datasets", "--json"))["datasets"]
    assert {"demo", "breast_cancer"} <= {entry["name"] for entry in sets}
    assert "breast_cancer" in succeed("datasets")


def test_a_saved_model_can_be_inspected_and_exported(table: Path, tmp_path: Path) -> None:
    folder, exported = tmp_path / "model", tmp_path / "xgboost.json"
    made = simulate("--data", table, *ROLES, "--no-baselines", "--save", folder)
    assert made["saved"] == str(folder)
    found = _strict_json(succeed("inspect", folder, "--json"))
    assert found["sha256"] == made["model_sha256"]
    assert found["rounds"] == made["trees"]
    assert {entry["column"] for entry in found["importance_by_column"]} == {"a", "b", "c", "shade"}
    assert sum(found["importance_by_party"].values()) == pytest.approx(1)
    assert made["model_sha256"] in succeed("inspect", folder)
    part = _strict_json(succeed("inspect", folder / "passive1", "--json"))
    assert (part["party"], part["role"], part["columns"]) == ("passive1", "passive", 2)
    assert part["splits"] == found["splits"]["passive1"]
    assert "The active party holds" in succeed("inspect", folder / "passive1")
    assert _strict_json(succeed("export", folder, "--to", exported, "--json"))["trees"] == 4
    xgboost = pytest.importorskip("xgboost")
    assert xgboost.Booster(model_file=exported).num_boosted_rounds() == 4
    assert refused("export", folder / "passive1", "--to", exported) == "VB-1301"
    assert refused("export", folder, "--to", tmp_path / "no" / "where.json") == "VB-1101"
    assert refused("inspect", folder, "--importance", "beauty") == "VB-1002"


# --- refusals ---------------------------------------------------------------------------------------------


def _bad_tables() -> dict[str, tuple[str, dict[str, Any]]]:
    good = columns()
    label, a = good["label"], good["a"]
    holes = np.where(np.arange(ROWS) == 5, np.nan, label.astype(float))
    infinite = np.where(np.arange(ROWS) == 5, np.inf, a)
    return {
        "duplicate ids": ("VB-1103", good | {"id": np.arange(ROWS) % 100}),
        "missing label column": ("VB-1104", {name: good[name] for name in good if name != "label"}),
        "NaN label": ("VB-1105", good | {"label": holes}),
        "label outside the range": ("VB-1106", good | {"label": label * 2}),
        "constant column": ("VB-1107", good | {"a": np.ones(ROWS)}),
        "all-missing column": ("VB-1108", good | {"a": np.full(ROWS, np.nan)}),
        "infinite values": ("VB-1110", good | {"a": infinite}),
        "no rows": ("VB-1113", {name: values[:0] for name, values in good.items()}),
    }


@pytest.mark.parametrize("case", _bad_tables())
def test_bad_tables_are_refused_with_one_coded_line(case: str, tmp_path: Path) -> None:
    code, bad = _bad_tables()[case]
    file = write(tmp_path / "bad.parquet", bad)
    assert refused("simulate", "--data", file, *ROLES, "--objective", "binary", *QUICK, "--json") == code


def test_constant_columns_can_be_dropped_or_kept(tmp_path: Path) -> None:
    file = write(tmp_path / "table.parquet", columns() | {"a": np.ones(ROWS)})
    dropped = simulate("--data", file, *ROLES, "--constant", "drop", "--no-baselines")
    kept = simulate("--data", file, *ROLES, "--constant", "keep", "--no-baselines")
    assert (dropped["features"], kept["features"]) == (3, 4)
    assert dropped["model_sha256"] == kept["model_sha256"]


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("VB-1001", ("--protocol", "magic")),
        ("VB-1002", ("--depth", "0")),
        ("VB-1002", ("--learning-rate", "nan")),
        ("VB-1002", ("--parties", "9")),
        ("VB-1002", ("--n-jobs", "0")),
        ("VB-1002", ("--test-size", "1.5")),
        ("VB-1002", ("--constant", "burn")),
        ("VB-1002", ("--columns", "a,b")),
        ("VB-1002", ("--dataset", "iris")),
        ("VB-1004", ("--early-stopping-rounds", "3")),
        ("VB-1004", ("--columns", "bank=a", "--columns", "shop=b", "--parties", "3")),
        ("VB-1104", ("--active", "nobody")),
        ("VB-1111", ("--columns", "bank=a,id", "--columns", "shop=*")),
        ("VB-1112", ("--columns", "bank=a", "--columns", "shop=z")),
        ("VB-1115", ("--columns", "bank=a", "--columns", "shop=a")),
    ],
)
def test_impossible_wishes_are_refused_with_one_coded_line(code: str, arguments: Sequence[str], table: Path) -> None:
    assert refused("simulate", "--data", table, *ROLES, *QUICK[:2], *arguments) == code


def test_files_that_cannot_be_used_are_refused_with_one_coded_line(table: Path, tmp_path: Path) -> None:
    garbage, mixed = tmp_path / "garbage.parquet", tmp_path / "mixed.csv"
    garbage.write_bytes(b"PAR1 but not really")
    mixed.write_text("id,a,label\n" + "".join(f"{k},{'many' if k == 7 else k},{k % 2}\n" for k in range(50)))
    assert refused("simulate", "--data", tmp_path / "none.parquet", *ROLES) == "VB-1101"
    assert refused("simulate", "--data", garbage, *ROLES) == "VB-1101"
    assert refused("simulate", "--data", mixed, *ROLES, "--parties", 1) == "VB-1109"
    assert refused("simulate") == "VB-1002"
    assert refused("simulate", "--dataset", "nothing") == "VB-1005"
    assert refused("inspect", tmp_path) == "VB-1301"
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert refused("simulate", "--data", table, *ROLES, *QUICK, "--no-baselines", "--save", blocked) == "VB-1101"
    assert refused("datasets", "demo", "--out", blocked) == "VB-1101"


def test_parties_without_a_person_in_common_are_refused(tmp_path: Path) -> None:
    made = columns()
    bank = write(tmp_path / "bank.parquet", {name: made[name] for name in ("id", "a", "label")})
    shop = write(tmp_path / "shop.parquet", {"id": made["id"] + 10**6, "b": made["b"]})
    files = ("--data", f"bank={bank}", "--data", f"shop={shop}")
    assert refused("simulate", *files, *ROLES, *QUICK) == "VB-1201"
    assert refused("simulate", *files, "--label", "label") == "VB-1112"


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt, as a user would: again if nothing happens. While modules load, Python may drop the exception."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=10)
    raise AssertionError("it does not end")


def test_an_interrupt_ends_with_130_and_without_a_traceback(table: Path) -> None:
    command = [str(VEILBOOST), "simulate", "--data", str(table), *ROLES, "--trees", "1000000", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        try:
            until(lambda: "_native" in maps.read_text(), "training has begun: its kernels are loaded")
            out, err = interrupted(process)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
