"""A wrong command line is one coded line with a suggestion that makes sense; brackets survive everything printed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from rich.errors import MarkupError
from rich.text import Text
from typer.testing import CliRunner

from veilboost import VerticalClassifier, VerticalRegressor
from veilboost.align.api import alignment_named
from veilboost.boost.objective import BinaryLogistic, MulticlassSoftmax, Poisson, SquaredError
from veilboost.cli.main import app, run
from veilboost.config import OBJECTIVE_ALIASES, TrainingConfig
from veilboost.data.datasets import load_dataset
from veilboost.errors import ImpossibleSetting, InvalidParameter, MissingColumn, UnknownDataset
from veilboost.fields import RENAMED, closest
from veilboost.party.job import read_job
from veilboost.party.settings import load_party

pytestmark = pytest.mark.fast

STYLES = {"bold", "green", "yellow", "bold red", "/", "red", "dim", "cyan"}


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refusal prints."""
    monkeypatch.setattr(sys, "argv", ["veilboost", *arguments])
    with pytest.raises(SystemExit) as ended:
        run()
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert re.fullmatch(r"VB-1002: [^\n]+; [^\n]+\n", err), err
    return err


# --- unknown options and commands -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("simulate --n-estimator 3", "veilboost simulate has no option --n-estimator; did you mean --n-estimators?"),
        ("simulate --n_estimators 3", "did you mean --n-estimators?"),
        ("simulate --learning-rat 3", "did you mean --learning-rate?"),
        ("simulate --nonsense", "no option --nonsense; `veilboost simulate --help` lists the options"),
        ("check --n-estimators 3", "veilboost check has no option --n-estimators; `veilboost check --help`"),
        ("certs issue bank --hosts x", "veilboost certs issue has no option --hosts; did you mean --host?"),
        ("simulate --seed 3", "the option --seed was renamed to --random-state; use --random-state"),
        ("simulate --threads 3", "the option --threads was renamed to --n-jobs"),
        ("simulate --scene", "the option --scene was renamed to --demo-data"),
        ("init party bank --accept-exposed plain", "was renamed to --allow-unprotected"),
        ("prepare --scene", "veilboost prepare has no option --scene; `veilboost prepare --help`"),
        ("trian", "veilboost has no command 'trian'; did you mean veilboost train?"),
        ("jobs lst", "did you mean veilboost jobs list?"),
        ("export model", "veilboost export needs --to FILE; add --to FILE"),
        ("jobs show", "veilboost jobs show needs NAME; add NAME"),
        ("simulate --trees many", "--n-estimators INTEGER: "),
        ("simulate extra", "veilboost simulate: got unexpected extra argument"),
        ("simulate --trees", "'--trees' requires an argument"),
        (
            "simulate --demo-data --depth 99",
            "max_depth=99 is outside [1, 16]; set --max-depth to a whole number in [1, 16]",
        ),
        ("simulate --demo-data --objective binary:logistc", "did you mean 'binary:logistic'?"),
        ("plan --rows 0 --features 3", "--rows 0 is not a number of rows; set --rows to 1 or more"),
    ],
)
def test_a_wrong_command_line_is_one_coded_line(
    arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refused(monkeypatch, capsys, *arguments.split())


def test_a_suggestion_is_close_or_absent() -> None:
    options = ["--network", "--n-estimators", "--no-baselines", "--reg-lambda"]
    assert closest("--n-estimator", options) == "--n-estimators"
    assert closest("--n-estimators", ["--network", "--no-baselines"]) is None


def test_short_aliases_stay() -> None:
    text = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"}).output
    assert "--trees" in text
    assert "--depth" in text


def test_rows_are_written_as_a_power_of_ten() -> None:
    done = CliRunner().invoke(
        app,
        [
            "privacy",
            "calibrate",
            "--protocol",
            "masked",
            "--eps-ap",
            "4",
            "--delta-ap",
            "1e-3",
            "--rows",
            "1e7",
            "--json",
        ],
    )
    assert done.exit_code == 0, done.output


# --- renamed names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [(old, new) for old, new in RENAMED.items() if not old.startswith("--")])
def test_no_old_name_is_still_a_name(old: str, new: str) -> None:
    assert old not in TrainingConfig.names()
    assert not hasattr(VerticalClassifier(), old)


@pytest.mark.parametrize("given", [{"seed": 1}, {"threads": 2}])
@pytest.mark.parametrize("make", [VerticalClassifier, lambda **given: VerticalRegressor().set_params(**given)])
def test_a_renamed_parameter_of_an_estimator_says_its_new_name(make: Any, given: dict[str, int]) -> None:
    ((old, value),) = given.items()
    with pytest.raises(InvalidParameter, match=f"'{old}' was renamed to '{RENAMED[old]}'; use {RENAMED[old]}={value}"):
        make(**given)


def test_a_renamed_attribute_says_its_new_name() -> None:
    with pytest.raises(AttributeError, match="VB-1002: the attribute 'parts_' was renamed to 'shares_'"):
        _ = VerticalClassifier().parts_
    assert not hasattr(VerticalClassifier(), "parts_")


def test_renamed_keys_and_values_say_their_new_names(tmp_path: Path) -> None:
    job = 'name = "credit"\n{}[parties.bank]\nrole = "active"\n[parties.shop]\naddress = "a:1"\n[training]\n{}'
    with pytest.raises(ImpossibleSetting, match=r"\[training\]: the key 'seed' was renamed to 'random_state'"):
        read_job(job.format("", "seed = 1\n"))
    with pytest.raises(ImpossibleSetting, match="alignment='preshared' was renamed to 'prealigned'"):
        read_job(job.format('alignment = "preshared"\n', ""))
    for key, section in (("threads", ""), ("accept_exposed", "[policy]\n")):
        file = tmp_path / "bank.toml"
        file.write_text(f'name = "bank"\n{section}{key} = 1\n[certificates]\ncert = "a"\nkey = "b"\nca = "c"\n')
        with pytest.raises(ImpossibleSetting, match=f"the key '{key}' was renamed to '{RENAMED[key]}'"):
            load_party(file)
    with pytest.raises(InvalidParameter, match="'preshared' was renamed to 'prealigned'"):
        alignment_named("preshared")
    with pytest.raises(UnknownDataset, match="'scene' was renamed to 'demo'"):
        load_dataset("scene")
    with pytest.raises(InvalidParameter, match="'seed' was renamed to 'random_state'"):
        TrainingConfig.from_dict({"seed": 3})


# --- objectives -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alias", "name"), OBJECTIVE_ALIASES.items())
def test_xgboost_names_of_objectives_are_accepted(alias: str, name: str) -> None:
    assert TrainingConfig(objective=alias) == TrainingConfig(objective=name)


@pytest.mark.parametrize("loss", [BinaryLogistic, MulticlassSoftmax, SquaredError, Poisson])
def test_the_name_of_a_loss_in_xgboost_is_an_alias(loss: Any) -> None:
    assert OBJECTIVE_ALIASES[loss.xgboost_name] == loss.name


def test_an_alias_gives_the_same_model() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    kinds: list[tuple[Any, str, str, Any]] = [
        (VerticalClassifier, "binary", "binary:logistic", (X[:, 0] > 0).astype(int)),
        (VerticalClassifier, "multiclass", "multi:softprob", np.digitize(X[:, 1], [-0.5, 0.5])),
        (VerticalRegressor, "regression", "reg:squarederror", X[:, 2]),
        (VerticalRegressor, "poisson", "count:poisson", rng.poisson(2, 200)),
    ]
    for make, name, alias, y in kinds:
        models = [make(n_estimators=2, objective=each).fit(X, y).model_sha256_ for each in (name, alias)]
        assert models[0] == models[1]


# --- brackets ---------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for child, inner in getattr(command, "commands", {}).items():
            yield from walk(f"{name} {child}", inner)

    yield from walk("", typer.main.get_command(app))


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_help_shows_every_bracket(name: str, command: Any) -> None:
    """Text in brackets that is not a style is shown as it is written."""
    texts = [command.help or "", *(getattr(item, "help", None) or "" for item in command.params)]
    shown = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"}).output
    for text in texts:
        for found in re.findall(r"\[([^\]\n]+)\]", text.replace("\\[", "[")):
            assert found in STYLES or f"[{found}]" in shown, f"[{found}] is swallowed"
        try:
            Text.from_markup(text)
        except MarkupError as error:
            pytest.fail(str(error))
    assert "[bold]" not in shown
    assert "\\[" not in shown


def test_brackets_of_user_data_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300))
    label = np.where(a + b > 0, "[red]yes", "[/]no")
    pq.write_table(pa.table({"id": np.arange(300), "[bold]a": a, "b[/]": b, "[y]": label}), "[t].parquet")

    def shown(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "300"}, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    text = shown(
        "simulate", "--data", "[t].parquet", "--label", "[y]", "--id", "id", "--trees", "2", "--n-jobs", "1",
        "--save", "[model]", "--out", "[out]", "--no-baselines", "--network", "20mbit,1ms",
    )  # fmt: skip
    assert "[model]" in text
    text = shown("inspect", "[model]")
    assert "[bold]a" in text
    assert "b[/]" in text
    assert "[red]yes" in text
    assert "[bold]a" in shown("inspect", "[model]/active") + shown("inspect", "[model]/passive1")
    assert "[x].json" in shown("export", "[model]", "--to", "[x].json")
    assert "[page].html" in shown("report", "[out]", "-o", "[page].html")
    assert "[d]" in shown("datasets", "demo", "--out", "[d]")
    assert "[certs]" in shown("certs", "init", "--folder", "[certs]")
    assert "[certs]" in shown("certs", "issue", "bank", "--folder", "[certs]")
    assert "[certs]" in shown("certs", "show", "[certs]")
    assert "[bank].toml" in shown("init", "party", "bank", "--out", "[bank].toml")
    assert "[job].toml" in shown("init", "job", "credit", "--out", "[job].toml")


# --- columns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("constant", ["error", "drop", "keep"])
def test_a_misspelt_column_is_refused(constant: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = {"AGE": rng.normal(size=50), "LIMIT_BAL": rng.normal(size=50), "SAME": np.ones(50), "y": np.arange(50) % 2}
    if constant == "error":
        del rows["SAME"]
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table(rows), file)
    given = ["simulate", "--data", str(file), "--label", "y", "--constant", constant, "--no-baselines", "--trees", "1"]
    with pytest.raises(MissingColumn, match="there is no feature column 'LIMIT'; did you mean 'LIMIT_BAL'"):
        CliRunner().invoke(app, [*given, "--columns", "bank=AGE,LIMIT", "--columns", "shop=*"], catch_exceptions=False)
    if constant == "drop":  # a constant column is no misspelling
        done = CliRunner().invoke(app, [*given, "--columns", "bank=AGE,SAME", "--columns", "shop=*"])
        assert done.exit_code == 0, done.output
