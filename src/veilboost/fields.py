"""Declare a parameter or setting once: its default, range, help text and validation.

A dataclass that inherits `Checked` has fields made by `param`. The estimators' defaults, the command-line options,
the reference pages, the TOML reader and the commented files of `veilboost init` are derived from these fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import numbers
import re
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, cast, get_args, get_origin, get_type_hints

from veilboost.errors import InvalidParameter, VeilBoostError

# Former names of parameters, settings, options, values and attributes. Using one raises an error with the new name.
RENAMED: Mapping[str, str] = {
    "seed": "random_state",
    "threads": "n_jobs",
    "accept_exposed": "allow_unprotected",
    "preshared": "prealigned",
    "scene": "demo",
    "parts_": "shares_",
    "--scene": "--demo-data",
}


def renamed(name: str, known: Iterable[str]) -> str | None:
    """The new name of a former one, in the same spelling (`--accept-exposed` or `accept_exposed`), if it is `known`."""
    new = RENAMED.get(name)
    if new is None and name.startswith("--"):
        new = RENAMED.get(name.removeprefix("--").replace("-", "_"))
        new = None if new is None else f"--{new.replace('_', '-')}"
    return new if new in set(known) else None


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, or the only one that starts with it; None if none is close."""
    written = {each.strip("-").lower().replace("_", "-"): each for each in known}
    asked = name.strip("-").lower().replace("_", "-")
    longer = [each for each in written if len(asked) > 3 and each.startswith(asked)]
    found = longer if len(longer) == 1 else difflib.get_close_matches(asked, written, 1, cutoff=0.7)
    return written[found[0]] if found else None


@dataclass(frozen=True)
class FieldInfo:
    """The metadata of a field beside its type and its default.

    `form` and `keys` are keys of `FORMS`: for a text value, and for the names in a table. `aliases` maps other accepted
    values to the choices that they mean, `words` texts to the numbers outside the range that stand for them. `flag` is
    the command-line option, `alias` a short form of it. `example` is what a commented file shows for a field without a
    value.
    """

    help: str
    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    choices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    words: Mapping[str, int] = field(default_factory=dict[str, int])
    flag: str | None = None
    alias: str | None = None
    form: str = ""
    keys: str = ""
    example: str = ""

    def range_text(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.low == -math.inf and self.high == math.inf:
            return "any"
        left = "(" if self.low_open or self.low == -math.inf else "["
        right = ")" if self.high == math.inf else "]"
        return " or ".join((f"{left}{_plain(self.low)}, {_plain(self.high)}{right}", *self.words))

    def shown(self, value: Any) -> Any:
        """The value as it is written: the word for a number that stands for one."""
        return next((word for word, number in self.words.items() if value == number), value)


def _plain(bound: float) -> str:
    return str(int(bound)) if abs(bound) < 1e15 and bound == int(bound) else f"{bound:g}"


@dataclass(frozen=True)
class Form:
    """The format of a text value."""

    fits: Callable[[str], object]
    text: str


_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found[1]) < 2**16


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Files of the runs folder, which holds a folder for each job: whatever may be stored there is no name of a job.
_RESERVED = re.compile(
    r"prepared|deployments|approvals|.*\.(?:json|sqlite|head|key|lock|partial|tmp)(?:-(?:wal|shm|journal))?",
    re.IGNORECASE,
)


def _is_run(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and _RESERVED.fullmatch(text) is None


FORMS = {
    "party": Form(_NAME.fullmatch, "a name of at most 64 letters, digits, '.', '_' and '-'"),
    "run": Form(
        _is_run,
        "a name of at most 64 letters, digits, '.', '_' and '-' that is not 'prepared', 'deployments' or 'approvals' "
        "and does not end like a file of the runs folder (.json, .sqlite, .head, .key, .lock, .partial, .tmp)",
    ),
    "address": Form(_is_address, "host:port, as in bank.example:7400 or [::1]:7400"),
    "fingerprint": Form(
        re.compile(r"any|(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}").fullmatch,
        "a certificate's SHA-256 fingerprint (64 hex digits), or any",
    ),
}


def param(default: Any, help: str, **info: Any) -> Any:
    """A field with its default (MISSING: required; a type: a new instance of it), help and range."""
    metadata = {"info": FieldInfo(help, **info)}
    if isinstance(default, type):
        return field(default_factory=cast("Callable[[], Any]", default), metadata=metadata)
    return field(default=default, metadata=metadata)


def info_of(item: dataclasses.Field[Any]) -> FieldInfo:
    return cast(FieldInfo, item.metadata["info"])


@functools.cache
def kinds_of(cls: type[Any]) -> Mapping[str, Any]:
    """The types of a dataclass's fields."""
    return get_type_hints(cls)


@functools.cache
def bare(hint: Any) -> Any:
    """The type without `| None`."""
    if get_origin(hint) is types.UnionType and types.NoneType in get_args(hint):
        return next(kind for kind in get_args(hint) if kind is not types.NoneType)
    return hint


class Checked:
    """A frozen dataclass of `param` fields, validated on construction; an invalid value raises `refusal`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    refusal: ClassVar[type[VeilBoostError]] = InvalidParameter

    def __post_init__(self) -> None:
        for name, hint, check in _checks(type(self)):
            # Converts a list to a tuple, a text to a path, and NumPy's 1 to 1.0, as the field's type says.
            object.__setattr__(self, name, check.value(getattr(self, name), hint, name))

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(item.name for item in dataclasses.fields(cls))

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        for name in sorted(set(values) - set(cls.names())):
            new = renamed(name, cls.names())
            if new is not None:
                raise cls.refusal(f"the parameter {name!r} was renamed to {new!r}", f"use {new}")
            close = closest(name, cls.names())
            hint = f"did you mean {close}?" if close else f"the parameters are {', '.join(cls.names()) or 'none'}"
            raise cls.refusal(f"there is no parameter {name!r}", hint)
        return cls(**values)


@dataclass(frozen=True)
class _Check:
    """Converts a value to the type of its field; raises on a wrong type, range or format."""

    info: FieldInfo
    refusal: type[VeilBoostError]

    def value(self, value: Any, hint: Any, name: str) -> Any:
        kind = bare(hint)
        if value is None and kind is not hint:
            return None
        if get_origin(kind) is Mapping:
            return self._table({} if value is None else value, get_args(kind)[1], name)
        if value is None:
            raise self.refusal(f"{name} is not set", f"set {name}")
        if kind is str:
            return self._text(value, name)
        if kind is bool:
            if not isinstance(value, bool):
                raise self.refusal(f"{name}={_shown(value)} is not true or false", f"set {name} to true or false")
            return value
        if kind is int or kind is float:
            return self._number(value, kind is int, name)
        if kind is Path:
            return Path(self._text(str(value) if isinstance(value, Path) else value, name))
        if get_origin(kind) is tuple:
            return self._texts(value, name)
        self._is(value, kind, name, "a table")
        return value

    def _table(self, value: Any, inner: Any, name: str) -> dict[str, Any]:
        self._is(value, Mapping, name, "a table")
        entries = cast(Mapping[Any, Any], value)
        if get_origin(inner) is types.UnionType:  # plain values, of which more is known elsewhere
            if not all(isinstance(key, str) and isinstance(entry, inner) for key, entry in entries.items()):
                raise self.refusal(
                    f"{name} holds something beside text, numbers, true and false",
                    f"give every name in {name} a text, a number, true or false",
                )
            return dict(entries)
        for key in entries:
            self._is(key, str, f"a name in {name}", "text")
            self._formed(key, self.info.keys, f"the key {key!r} in {name}", f"that key of {name}")
        return {key: self.value(entry, inner, f"{name}.{key}") for key, entry in entries.items()}

    def _number(self, value: Any, whole: bool, name: str) -> int | float:
        info, kind = self.info, "a whole number" if whole else "a number"
        allowed = kind if info.range_text() == "any" else f"{kind} in {info.range_text()}"
        fix = f"set {name} to {allowed}"
        if value in info.words.values():
            return value
        if isinstance(value, str) and value in info.words:
            return info.words[value]
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
            raise self.refusal(f"{name}={_shown(value)} is not {kind}", fix)
        try:
            number: int | float = int(cast(int, value)) if whole else float(value)
            finite = math.isfinite(number)
        except OverflowError:
            raise self.refusal(f"{name} is outside {info.range_text()}", fix) from None
        too_low = number < info.low or (info.low_open and number == info.low)
        if not finite or too_low or number > info.high:
            raise self.refusal(f"{name}={value!r} is outside {info.range_text()}", fix)
        return number

    def _text(self, value: Any, name: str) -> str:
        self._is(value, str, name, "text")
        if not value or "\0" in value:
            raise self.refusal(
                f"{name} is {'empty' if not value else 'not text: it has a zero byte'}", f"set {name} to a text"
            )
        value = self.info.aliases.get(value, value)
        if self.info.choices and value not in self.info.choices:
            raise self._no_choice(value, name)
        return self._formed(value, self.info.form, f"{name}={value!r}", name)

    def _no_choice(self, value: str, name: str) -> VeilBoostError:
        choices, aliases = self.info.choices, self.info.aliases
        new = renamed(value, choices)
        if new is not None:
            return self.refusal(f"{name}={value!r} was renamed to {new!r}", f"set {name} to {new!r}")
        close = closest(value, (*choices, *aliases))
        hint = f"did you mean {close!r}?" if close else f"set {name} to one of these"
        return self.refusal(f"{name}={value!r} is not one of {self.info.range_text()}", hint)

    def _texts(self, value: Any, name: str) -> tuple[str, ...]:
        self._is(value, list | tuple, name, "a list of texts")
        found = tuple(self._text(entry, f"an entry of {name}") for entry in cast("list[Any]", value))
        if len(set(found)) < len(found):
            raise self.refusal(f"{name} has the same entry twice", f"remove the second one from {name}")
        return found

    def _formed(self, text: str, form: str, what: str, name: str) -> str:
        if form and not FORMS[form].fits(text):
            raise self.refusal(f"{what} is not {FORMS[form].text}", f"correct {name}")
        return text

    def _is(self, value: Any, kind: Any, name: str, wanted: str) -> None:
        if not isinstance(value, kind):
            raise self.refusal(f"{name} is {_kind(value)}, not {wanted}", f"set {name} to {wanted}")


@functools.cache
def _checks(cls: type[Checked]) -> tuple[tuple[str, Any, _Check], ...]:
    kinds = kinds_of(cls)
    return tuple((item.name, kinds[item.name], _Check(info_of(item), cls.refusal)) for item in dataclasses.fields(cls))


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or lists in lists in lists
        return "..."


def _kind(value: Any) -> str:
    """The kind of a value. The value itself is not shown: a query may hold a password."""
    known = ((bool, "true or false"), (int | float, "a number"), (str, "text"), (list, "a list"), (Mapping, "a table"))
    return next((text for kind, text in known if isinstance(value, cast(type, kind))), type(value).__name__)
