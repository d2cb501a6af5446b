"""Settings in TOML files: read them into sections, and write them with comments that explain every key.

A section is a dataclass that inherits `Section`. The comments of a written file are the help texts of its fields.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

from veilboost.errors import ImpossibleSetting, ParameterError, UnknownProtocol, UnreadableSettings
from veilboost.fields import FORMS, Checked, FieldInfo, bare, closest, info_of, kinds_of, renamed

LARGEST_FILE = 1 << 20
WIDTH = 100

Read = TypeVar("Read", bound=Checked)


class Section(Checked):
    """A table of settings. An invalid value raises `ImpossibleSetting`."""

    refusal = ImpossibleSetting


# --- reading ----------------------------------------------------------------------------------------------


def read_toml(file: Path) -> dict[str, Any]:
    """Parse a settings file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise UnreadableSettings(f"{file} cannot be read ({error.strerror or type(error).__name__})") from None
    if len(content) > LARGEST_FILE:
        raise UnreadableSettings(
            f"{file} is larger than {LARGEST_FILE >> 20} MB", "name a settings file that `veilboost init` wrote"
        )
    try:
        return tomllib.loads(content.decode("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UnreadableSettings(f"{file} is not TOML: {error}") from None
    except (ValueError, RecursionError, OverflowError):
        raise UnreadableSettings(f"{file} is not TOML in UTF-8") from None


def read_section(cls: type[Read], values: Mapping[str, Any], file: Path, section: str = "") -> Read:
    """Build a section from a parsed TOML table. Relative paths start at the file's folder."""
    where = f"{file}, [{section}]" if section else str(file)
    fields = {item.name: item for item in dataclasses.fields(cls)}
    for key in values:
        if key not in fields:
            new = renamed(key, fields)
            if new is not None:
                raise ImpossibleSetting(f"{where}: the key {key!r} was renamed to {new!r}", f"write {new} = ...")
            close = closest(key, fields)
            hint = f"did you mean {close}? " if close else ""
            raise ImpossibleSetting(f"{where}: there is no key {key!r}", f"{hint}the keys are {', '.join(fields)}")
    for name, item in fields.items():
        if name not in values and item.default is MISSING and item.default_factory is MISSING:
            raise ImpossibleSetting(f"{where}: the key {name!r} is missing", f"add {name}: {info_of(item).help}")
    hints = kinds_of(cls)
    # A default path is relative to the file too.
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


def _entry(value: Any, kind: Any, file: Path, section: str) -> Any:
    """Convert tables to sections and make paths absolute. The section validates everything else."""
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return read_section(cast("type[Any]", kind), cast(Mapping[str, Any], value), file, section)
    if get_origin(kind) is Mapping and isinstance(value, Mapping):
        inner = get_args(kind)[1]
        entries = cast(Mapping[str, Any], value)
        return {key: _entry(entry, inner, file, f"{section}.{key}") for key, entry in entries.items()}
    if kind is Path and isinstance(value, str) and value:
        # Unlike Path.expanduser, never fails; an unknown variable stays as it is.
        return file.absolute().parent / os.path.expanduser(os.path.expandvars(value))
    return value


# --- writing ----------------------------------------------------------------------------------------------


Notes = Mapping[str, Sequence[str]]


def commented_toml(settings: Any, title: str, notes: Notes | None = None) -> str:
    """The text of a file that reads back as these settings.

    Parameters
    ----------
    settings
        A section.
    title
        The comment at the top.
    notes
        Further comment lines by dotted key: above a key, below the header of a table.
    """
    return "\n".join([*_comment(title), "", *_section(settings, (), notes or {})]).rstrip("\n") + "\n"


def commented_fields(cls: type[Checked]) -> list[str]:
    """The fields of a dataclass with their defaults, all commented out."""
    hints = kinds_of(cls)
    lines: list[str] = []
    for item in dataclasses.fields(cls):
        lines += [
            *_comment(_help(item, bare(hints[item.name]))),
            f"# {_assignment(item, item.default).removeprefix('# ')}",
        ]
    return lines


def edit_note(text: str) -> list[str]:
    """The comment that marks a place to edit."""
    return _comment(f"EDIT: {text}")


def _section(settings: Any, path: tuple[str, ...], notes: Notes, explain: bool = True) -> Iterator[str]:
    """Plain keys first, as TOML requires, then the tables."""
    hints = {name: bare(hint) for name, hint in kinds_of(cast("type[Any]", type(settings))).items()}
    tables: list[dataclasses.Field[Any]] = []
    for item in dataclasses.fields(settings):
        if _is_table(hints[item.name]):
            tables.append(item)
        else:
            if explain:
                yield from _comment(_help(item, hints[item.name]))
            yield from notes.get(".".join((*path, item.name)), ())
            yield _assignment(item, getattr(settings, item.name))
            if explain:
                yield ""
    if not explain:
        yield ""
    for item in tables:
        yield from _table(getattr(settings, item.name), item, hints[item.name], (*path, item.name), notes)


def _is_table(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or get_origin(hint) is Mapping


def _table(value: Any, item: dataclasses.Field[Any], hint: Any, path: tuple[str, ...], notes: Notes) -> Iterator[str]:
    info = info_of(item)
    yield from _comment(_sentence(info.help))
    if dataclasses.is_dataclass(hint):
        yield from _blank(hint, path) if value is None else (_header(path), *_section(value, path, notes))
        return
    inner, entries = get_args(hint)[1], cast(Mapping[str, Any], value)
    if not dataclasses.is_dataclass(inner):
        yield _header(path)
        yield from notes.get(".".join(path), ())
        yield from (f"{_key(name)} = {_value(entry)}" for name, entry in entries.items())
        yield f"# {info.example}\n" if info.example and not entries else ""
        return
    if not entries:
        yield from _blank(inner, (*path, "NAME"))
    yield from notes.get(".".join(path), ())
    for at, (name, entry) in enumerate(entries.items()):
        yield _header((*path, name))
        yield from _section(entry, (*path, name), notes, explain=at == 0)  # only the first entry has the comments


def _blank(kind: Any, path: tuple[str, ...]) -> Iterator[str]:
    """An absent table, commented out."""
    yield f"# {_header(path)}"
    yield from commented_fields(kind)
    yield ""


def _assignment(item: dataclasses.Field[Any], value: Any) -> str:
    if value is None or value is MISSING:
        example = info_of(item).example
        if item.default_factory is dict:
            example = f"{{ {example} }}"
        return f"# {item.name} = {example}".rstrip()
    return f"{item.name} = {_value(info_of(item).shown(value))}"


def _header(path: tuple[str, ...]) -> str:
    return f"[{'.'.join(_key(part) for part in path)}]"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"{value}"
    if isinstance(value, str | Path):
        # A JSON string is a TOML string, except for DEL, which only TOML escapes.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
    return f"[{', '.join(_value(entry) for entry in value)}]"


def _help(item: dataclasses.Field[Any], hint: Any) -> str:
    info = info_of(item)
    return " ".join((_sentence(info.help), *_allowed(info, hint)))


def _allowed(info: FieldInfo, kind: Any) -> Iterator[str]:
    if info.choices:
        yield f"One of {info.range_text()}."
    elif kind in {int, float} and info.range_text() != "any":
        yield f"In {info.range_text()}."
    elif info.form and info.form != "party":
        yield f"Format: {FORMS[info.form].text}."


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].removesuffix(".") + "."


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)]
