"""How a setting is declared once, and how a table of TOML becomes a checked, frozen dataclass.

A section is a dataclass that inherits `Declared`; each of its fields is made by `setting`, which holds the
default, the range and the help text. Checking, reading, the messages of refusals and the commented files of
`veilboost init` all follow from these.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

from veilboost.config import ParameterInfo, checked_parameter
from veilboost.errors import ImpossibleSetting, ParameterError, UnknownProtocol

Section = TypeVar("Section")


@dataclass(frozen=True)
class SettingInfo(ParameterInfo):
    """A parameter that may also be a text of some form, a list, or a table with names for keys.

    `form` and `keys` are keys of `FORMS`: for the texts themselves, and for the names in a table.
    `example` is what the commented file shows where there is no value.
    """

    form: str = ""
    keys: str = ""
    example: str = ""


@dataclass(frozen=True)
class Form:
    """What a text must look like."""

    fits: Callable[[str], object]
    text: str


_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found[1]) < 2**16


FORMS = {
    "party": Form(
        re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}").fullmatch,
        "a name of at most 64 letters, digits, '.', '_' and '-'",
    ),
    "address": Form(_is_address, "host:port, as in bank.example:7400 or [::1]:7400"),
    "fingerprint": Form(
        re.compile(r"any|(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}").fullmatch,
        "a certificate's SHA-256 fingerprint (64 hex digits), or any",
    ),
}


def setting(default: Any, help: str, **info: Any) -> Any:
    """A field with its default (MISSING: it must be given; a type: a new one of it), help and range."""
    metadata = {"info": SettingInfo(help, **info)}
    if default is MISSING:
        return field(metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=cast("Callable[[], Any]", default), metadata=metadata)
    return field(default=default, metadata=metadata)


class Declared:
    """A section of settings: every field is checked when the section is made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in dataclasses.fields(self):
            value = _checked(getattr(self, item.name), hints[item.name], item, item.name)
            # Frozen, but a list becomes a tuple, a text a path, and 1 becomes 1.0 where the field says so.
            object.__setattr__(self, item.name, value)


# --- checking ---------------------------------------------------------------------------------------------


def bare(hint: Any) -> Any:
    """The type without `| None`."""
    if get_origin(hint) is types.UnionType and types.NoneType in get_args(hint):
        return next(kind for kind in get_args(hint) if kind is not types.NoneType)
    return hint


def _checked(value: Any, hint: Any, item: dataclasses.Field[Any], name: str) -> Any:
    kind, info = bare(hint), cast(SettingInfo, item.metadata["info"])
    if value is None and kind is not hint:
        return None
    if get_origin(kind) is Mapping:
        _refuse_unless(isinstance(value, Mapping), name, value, "a table")
        inner = get_args(kind)[1]
        return {
            _form(key, info.keys, f"the key {key!r} in {name}"): _checked(entry, inner, item, f"{name}.{key}")
            for key, entry in cast(Mapping[str, Any], value).items()
        }
    if dataclasses.is_dataclass(kind):
        _refuse_unless(isinstance(value, cast(type, kind)), name, value, "a table")
        return value
    return _checked_leaf(value, kind, item, name)


def _checked_leaf(value: Any, kind: Any, item: dataclasses.Field[Any], name: str) -> Any:
    info = cast(SettingInfo, item.metadata["info"])
    if kind is str:
        return _text(value, info, name)
    if kind is Path:
        return Path(_text(str(value) if isinstance(value, Path) else value, info, name))
    if get_origin(kind) is tuple:
        return _texts(value, info, name)
    return _number(value, item)


def _number(value: Any, item: dataclasses.Field[Any]) -> Any:
    try:
        return checked_parameter(value, item)
    except OverflowError:
        info = cast(ParameterInfo, item.metadata["info"])
        raise ImpossibleSetting(f"{item.name} is outside {info.range_text()}") from None
    except ParameterError as error:
        raise ImpossibleSetting(error.what, error.remedy) from None


def _text(value: Any, info: SettingInfo, name: str) -> str:
    _refuse_unless(isinstance(value, str), name, value, "text")
    if not value or "\0" in value:
        raise ImpossibleSetting(f"{name} is {'empty' if not value else 'not text: it has a zero byte'}")
    if info.choices and value not in info.choices:
        raise ImpossibleSetting(f"{name}={value!r} is not one of {info.range_text()}")
    return _form(value, info.form, f"{name}={value!r}")


def _texts(value: Any, info: SettingInfo, name: str) -> tuple[str, ...]:
    _refuse_unless(isinstance(value, list | tuple), name, value, "a list of texts")
    found = tuple(_text(entry, info, f"an entry of {name}") for entry in cast("list[Any]", value))
    if len(set(found)) < len(found):
        raise ImpossibleSetting(f"{name} names something twice", "name it once")
    return found


def _form(text: str, form: str, what: str) -> str:
    if form and not FORMS[form].fits(text):
        raise ImpossibleSetting(f"{what} is not {FORMS[form].text}")
    return text


def _refuse_unless(fits: bool, name: str, value: Any, wanted: str) -> None:
    if not fits:
        raise ImpossibleSetting(f"{name} is {_kind(value)} where {wanted} is allowed")


def _kind(value: Any) -> str:
    """What a value is, without showing it: a query may hold a password."""
    kinds = (
        (bool, "true or false"),
        (int | float, "a number"),
        (str, "text"),
        (list, "a list"),
        (Mapping, "a table"),
    )
    return next((text for kind, text in kinds if isinstance(value, cast(type, kind))), type(value).__name__)


# --- reading ----------------------------------------------------------------------------------------------


def read_section(cls: type[Section], values: Mapping[str, Any], file: Path, section: str = "") -> Section:
    """A dataclass of declared fields from a parsed table of TOML; paths are relative to the file."""
    where = f"{file}, [{section}]" if section else str(file)
    fields = {item.name: item for item in dataclasses.fields(cast(Any, cls))}
    for key in values:
        if key not in fields:
            close = difflib.get_close_matches(key, fields, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ImpossibleSetting(f"{where}: there is no key {key!r}", f"{hint}the keys are {', '.join(fields)}")
    for name, item in fields.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            help = cast(ParameterInfo, item.metadata["info"]).help
            raise ImpossibleSetting(f"{where}: {name} is not given", f"add it: {help}")
    hints = get_type_hints(cls)
    # A default that is a path is relative to the file, as if it were written there.
    paths = {name: str(item.default) for name, item in fields.items() if isinstance(item.default, Path)}
    found = {
        key: _entry(value, bare(hints[key]), file, f"{section}.{key}" if section else key)
        for key, value in (paths | dict(values)).items()
    }
    try:
        return cls(**found)
    except UnknownProtocol as error:
        raise UnknownProtocol(f"{where}: {error.what}", error.remedy) from None
    except (ImpossibleSetting, ParameterError) as error:
        raise ImpossibleSetting(f"{where}: {error.what}", error.remedy) from None
    except OverflowError:
        raise ImpossibleSetting(f"{where}: a number is too large") from None


def _entry(value: Any, kind: Any, file: Path, section: str) -> Any:
    """Tables become sections, paths take their start; all else is left to the section's own check."""
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return read_section(cast("type[Any]", kind), cast(Mapping[str, Any], value), file, section)
    if get_origin(kind) is Mapping and isinstance(value, Mapping):
        inner = get_args(kind)[1]
        entries = cast(Mapping[str, Any], value)
        return {key: _entry(entry, inner, file, f"{section}.{key}") for key, entry in entries.items()}
    if kind is Path and isinstance(value, str) and value:
        return file.absolute().parent / os.path.expanduser(value)  # unlike Path.expanduser, never fails
    return value
