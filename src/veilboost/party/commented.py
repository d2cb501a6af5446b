"""Settings written as TOML that explains itself: the comments are the help texts of the declarations."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

from veilboost.config import ParameterInfo, info_of
from veilboost.party.declared import FORMS, SettingInfo, bare

WIDTH = 100


def commented_toml(settings: Any, title: str) -> str:
    """The text of a file that reads back as these settings."""
    return "\n".join([*_comment(title), "", *_section(settings, ())]).rstrip("\n") + "\n"


def _section(settings: Any, path: tuple[str, ...], explain: bool = True) -> Iterator[str]:
    """Plain keys first, as TOML wants it, then the tables below."""
    hints = {name: bare(hint) for name, hint in get_type_hints(cast(Any, type(settings))).items()}
    tables: list[dataclasses.Field[Any]] = []
    for item in dataclasses.fields(settings):
        if _is_table(hints[item.name]):
            tables.append(item)
        else:
            if explain:
                yield from _comment(_help(item, hints[item.name]))
            yield _assignment(item, getattr(settings, item.name))
            if explain:
                yield ""
    if not explain:
        yield ""
    for item in tables:
        yield from _table(getattr(settings, item.name), item, hints[item.name], (*path, item.name))


def _is_table(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint) or get_origin(hint) is Mapping


def _table(value: Any, item: dataclasses.Field[Any], hint: Any, path: tuple[str, ...]) -> Iterator[str]:
    info = info_of(item)
    yield from _comment(_sentence(info.help))
    if dataclasses.is_dataclass(hint):
        yield from _blank(hint, path) if value is None else (_header(path), *_section(value, path))
        return
    inner, entries = get_args(hint)[1], cast(Mapping[str, Any], value)
    if not dataclasses.is_dataclass(inner):
        yield _header(path)
        example = getattr(info, "example", "")
        yield from (f"{_key(name)} = {_value(entry)}" for name, entry in entries.items())
        yield f"# {example}\n" if example and not entries else ""
        return
    if not entries:
        yield from _blank(inner, (*path, "NAME"))
    for at, (name, entry) in enumerate(entries.items()):
        yield _header((*path, name))
        yield from _section(entry, (*path, name), explain=at == 0)  # the same words once are enough


def _blank(kind: Any, path: tuple[str, ...]) -> Iterator[str]:
    """A table that nobody has written yet, all of it as a comment."""
    hints = get_type_hints(kind)
    yield f"# {_header(path)}"
    for item in dataclasses.fields(kind):
        yield from _comment(_help(item, bare(hints[item.name])))
        yield f"# {_assignment(item, item.default).removeprefix('# ')}"
    yield ""


def _assignment(item: dataclasses.Field[Any], value: Any) -> str:
    if value is None or value is MISSING:
        return f"# {item.name} = {getattr(info_of(item), 'example', '')}".rstrip()
    return f"{item.name} = {_value(value)}"


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
        # A string of JSON is one of TOML, but for DEL, which only TOML wants escaped.
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")
    return f"[{', '.join(_value(entry) for entry in value)}]"


def _help(item: dataclasses.Field[Any], hint: Any) -> str:
    info = info_of(item)
    return " ".join((_sentence(info.help), *_allowed(info, hint)))


def _allowed(info: ParameterInfo, kind: Any) -> Iterator[str]:
    if info.choices:
        yield f"One of {info.range_text()}."
    elif kind in {int, float} and info.range_text() != "any":
        yield f"In {info.range_text()}."
    elif isinstance(info, SettingInfo) and info.form and info.form != "party":
        yield f"Written as {FORMS[info.form].text}."


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].removesuffix(".") + "."


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)]
