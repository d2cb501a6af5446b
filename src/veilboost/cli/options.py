"""Command-line options for all training parameters, derived from `config.py`."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from veilboost.config import OptionValue, TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.fields import FieldInfo, info_of

if TYPE_CHECKING:
    from veilboost.protocols.spec import ProtocolSpec

PANEL = "Boosting"
# Options that may be given several times: their metavar, and what their help adds.
_REPEATABLE = {
    "options": ("NAME=VALUE", " (docs/reference/parameters.md lists them)"),
    "monotone_constraints": ("COLUMN=1|-1", ""),
    "interaction_constraints": ("COLUMN,COLUMN,...", "; one set each time"),
}


def option_flag(item: dataclasses.Field[Any]) -> str:
    """The option's name: the field's own flag, or its name in kebab-case."""
    return info_of(item).flag or f"--{item.name.replace('_', '-')}"


def training_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's parameter `config: TrainingConfig` by one option per field.

    Typer reads the signature, so this builds a new one. The wrapper converts the values to a `TrainingConfig`, which
    validates them and raises coded errors; the hint of an error then names the option.
    """
    original = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in original.parameters.values() if parameter.name != "config"]
    hints = get_type_hints(TrainingConfig)
    made = [_parameter(item, hints[item.name]) for item in dataclasses.fields(TrainingConfig)]
    names = TrainingConfig.names()

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        given: dict[str, Any] = {name: values.pop(name) for name in names}
        given["options"] = named_values(given["options"])
        given["monotone_constraints"] = named_values(given["monotone_constraints"], "--monotone-constraints")
        given["interaction_constraints"] = [text.split(",") for text in given["interaction_constraints"] or ()]
        try:
            config = TrainingConfig(**given)
        except InvalidParameter as error:
            raise InvalidParameter(error.what, _with_flag(error.remedy)) from None
        command(**values, config=config)

    signature = original.replace(parameters=[*own, *made])
    wrapper.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
    wrapper.__annotations__ = {name: item.annotation for name, item in signature.parameters.items()}
    return wrapper


def _with_flag(hint: str) -> str:
    """`set max_depth to ...` as `set --max-depth to ...`."""
    for item in dataclasses.fields(TrainingConfig):
        if hint.startswith(f"set {item.name} to "):
            return hint.replace(item.name, option_flag(item), 1)
    return hint


def _parameter(item: dataclasses.Field[Any], kind: Any) -> inspect.Parameter:
    info, flag, default = info_of(item), option_flag(item), item.default
    text, metavar, shown = _help(info, kind), "NAME" if info.choices else None, "unset" if default is None else True
    if item.name in _REPEATABLE:
        metavar, about = _REPEATABLE[item.name]
        text = f"{info.help[0].upper()}{info.help[1:]}{about}. Repeatable."
        kind, default, shown = list[str] | None, None, True
    name = f"{flag}/--no-{flag.removeprefix('--')}" if default is True else flag
    names = (name, info.alias) if info.alias else (name,)
    given: dict[str, Any] = {}
    if info.words:
        shown, metavar = str(info.shown(default)), "INTEGER"
        given["parser"] = functools.partial(_number_or_word, info.words)
    option: Any = typer.Option(*names, help=text, show_default=shown, metavar=metavar, rich_help_panel=PANEL, **given)
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _number_or_word(words: Mapping[str, int], value: str | int) -> int:
    return words[value] if isinstance(value, str) and value in words else int(value)


def named_values(given: Sequence[str] | None, flag: str = "--option") -> dict[str, OptionValue]:
    """Parse `NAME=VALUE`: true, false and numbers become values, everything else stays text."""
    values: dict[str, OptionValue] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name or name in values:
            raise InvalidParameter(
                f"{flag} {text} is not NAME=VALUE, or its name is given twice",
                f"write {flag} NAME=VALUE once per name",
            )
        try:
            parsed: Any = json.loads(value)
        except ValueError:
            parsed = value
        values[name] = parsed if isinstance(parsed, bool | int | float) else value
    return values


def whole_rows(rows: float) -> int:
    """The value of `--rows`, which may be written as 1e7."""
    if not math.isfinite(rows) or rows < 1:
        raise InvalidParameter(
            f"--rows {rows:g} is not a number of rows", "set --rows to 1 or more, as in 24000 or 1e7"
        )
    return int(rows)


def with_budget(
    config: TrainingConfig, spec: ProtocolSpec, eps: float | None, eps_features: float | None
) -> TrainingConfig:
    """The configuration with --eps and --eps-features as options of the protocol."""
    for flag, value, names in (("--eps", eps, ("eps", "epsilon")), ("--eps-features", eps_features, ("eps_features",))):
        if value is None:
            continue
        if not value > 0:
            raise InvalidParameter(
                f"{flag} {value:g} is not above 0", f"set {flag} to a number above 0, or to inf for no noise"
            )
        config = with_option(config, spec, flag, names, 0.0 if value == math.inf else value)
    return config


def with_option(
    config: TrainingConfig, spec: ProtocolSpec, flag: str, names: Sequence[str], value: OptionValue
) -> TrainingConfig:
    """The configuration with the first of these options that the protocol has, set by a command-line flag."""
    name = next((name for name in names if name in spec.options.names()), None)
    if name is None:
        raise UnsupportedCombination(f"the protocol {spec.name} has no option for {flag}", f"remove {flag}")
    if name in config.options:
        raise UnsupportedCombination(f"{flag} and --option {name}=... are both given", "remove one of the two")
    return dataclasses.replace(config, options={**config.options, name: value})


def _help(info: FieldInfo, kind: Any) -> str:
    text = info.help[0].upper() + info.help[1:]
    if kind is bool or info.range_text() == "any":
        return f"{text}."
    return f"{text}. {'One of' if info.choices else 'In'} {info.range_text()}."


def only_file(data: Sequence[str] | None) -> str:
    """The only file of a repeatable --data."""
    if data is None or len(data) != 1:
        raise InvalidParameter(
            f"--data is given {len(data or ())} times", "give one --data FILE; several belong to a saved model"
        )
    return data[0]
