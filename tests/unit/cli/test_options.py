"""The options of the command line are the parameters of `config.py`, each once and under its own name."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from veilboost.cli.options import option_flag, training_options
from veilboost.config import CONSTRAINTS, LOSS_PARAMETERS, TrainingConfig
from veilboost.errors import InvalidParameter
from veilboost.fields import info_of

pytestmark = pytest.mark.fast

REPEATABLE = ("options", *CONSTRAINTS)  # below
FIELDS = [item for item in dataclasses.fields(TrainingConfig) if item.name not in REPEATABLE]


def _app() -> tuple[typer.Typer, list[TrainingConfig]]:
    seen: list[TrainingConfig] = []

    @training_options
    def command(*, extra: Annotated[int, typer.Option("--extra")] = 7, config: TrainingConfig) -> None:
        """A command with a parameter of its own."""
        assert extra == 7
        seen.append(config)

    app = typer.Typer()
    app.command()(command)
    return app, seen


def _run(*arguments: str) -> TrainingConfig:
    app, seen = _app()
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (config,) = seen
    return config


def _other_value(item: dataclasses.Field[Any]) -> Any:
    """A value that is allowed and not the default."""
    info = info_of(item)
    if info.choices:
        return next(choice for choice in info.choices if choice != item.default)
    if item.type == "bool":
        return not item.default
    low, high = max(info.low, 0), min(info.high, 100)
    value = low + (high - low) / 4
    return int(value) if str(item.type).startswith("int") else float(value)


def test_without_options_every_parameter_has_its_default() -> None:
    assert _run() == TrainingConfig()


@pytest.mark.parametrize("item", FIELDS, ids=lambda item: item.name)
def test_every_parameter_can_be_set_by_its_flag(item: dataclasses.Field[Any]) -> None:
    value = _other_value(item)
    arguments = [option_flag(item)] if value is True else [option_flag(item), str(value)]
    needed = ("--sampling", "goss") if item.name in ("top_rate", "other_rate") else ()
    for objective, parameter in LOSS_PARAMETERS.items():
        if item.name == parameter:
            needed = ("--objective", objective)
    assert getattr(_run(*arguments, *needed), item.name) == value


def test_options_of_a_protocol_are_named_values() -> None:
    config = _run("--option", "key_bits=3072", "--option", "noise=true", "--option", "kind=duchi", "--option", "e=0.5")
    assert config.options == {"key_bits": 3072, "noise": True, "kind": "duchi", "e": 0.5}


def test_constraints_are_given_column_by_column_and_set_by_set() -> None:
    config = _run(*["--monotone-constraints", "income=1", "--monotone-constraints", "age=-1"])
    assert config.monotone_constraints == {"income": 1, "age": -1}
    config = _run(*["--interaction-constraints", "income,age", "--interaction-constraints", "debt"])
    assert config.interaction_constraints == {"1": ("income", "age"), "2": ("debt",)}


@pytest.mark.parametrize("given", ["income=2", "income=up", "income"])
def test_a_direction_is_1_or_minus_1(given: str) -> None:
    with pytest.raises(InvalidParameter):
        _run("--monotone-constraints", given)


@pytest.mark.parametrize("given", [("key_bits",), ("=3",), ("a=1", "a=2")])
def test_an_option_without_name_or_value_or_given_twice_is_refused(given: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameter):
        _run(*(text for option in given for text in ("--option", option)))


def test_names_come_from_the_flag_or_in_kebab_case() -> None:
    flags = {item.name: option_flag(item) for item in FIELDS}
    assert flags["n_estimators"] == "--n-estimators"
    assert flags["max_depth"] == "--max-depth"
    assert _run("--trees", "7", "--depth", "3") == _run("--n-estimators", "7", "--max-depth", "3")
    assert flags["early_stopping_rounds"] == "--early-stopping-rounds"
    assert len(set(flags.values())) == len(FIELDS)


def test_the_signature_has_types_and_defaults_of_the_fields() -> None:
    @training_options
    def command(*, config: TrainingConfig) -> None: ...

    hints = get_type_hints(TrainingConfig)
    parameters = inspect.signature(command).parameters
    assert list(parameters) == list(TrainingConfig.names())
    for item in FIELDS:
        annotation = parameters[item.name].annotation
        assert get_origin(annotation) is Annotated
        assert get_args(annotation)[0] == hints[item.name]
        assert parameters[item.name].default == item.default


def test_help_tells_what_a_parameter_does_its_range_and_default() -> None:
    app, _ = _app()
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "600", "TERMINAL_WIDTH": "600"}).output
    for item in FIELDS:
        info = info_of(item)
        line = next(line for line in text.splitlines() if re.search(rf" {option_flag(item)}[ ,]", line))
        assert info.help[1:] in line
        if item.type != "bool" and info.range_text() != "any":
            assert info.range_text() in line
        if item.default is not None and item.type != "bool":
            shown = f"({info.shown(item.default)})" if info.words else item.default
            assert f"[default: {shown}]" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--depth", "0"), "max_depth=0 is outside [1, 16]"),
        (("--learning-rate", "nan"), "learning_rate=nan is outside (0, 1]"),
        (("--objective", "ranking"), "objective='ranking' is not one of auto"),
    ],
)
def test_ranges_are_refused_by_the_config_itself(arguments: tuple[str, ...], says: str) -> None:
    app, _ = _app()
    with pytest.raises(InvalidParameter) as refused:
        CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert says in str(refused.value)


def test_a_number_of_rounds_may_be_a_word() -> None:
    assert _run("--trees", "7").n_estimators == 7
    assert _run("--n-estimators", "auto") == TrainingConfig(n_estimators="auto")


def test_what_is_no_number_is_a_usage_error() -> None:
    app, _ = _app()
    assert CliRunner().invoke(app, ["--trees", "many"]).exit_code == 2
