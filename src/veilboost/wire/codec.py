"""Messages as bytes: a JSON header and raw array buffers. Decoding is strict, and nothing is ever unpickled.

    frame  = "VBST" | version u16 | reserved u16 | header length u32 | pad to 16 | header | (pad to 16 | buffer)*
    header = {"type": name, "fields": {...}, "arrays": [[field, dtype, shape], ...]}

Buffers start at multiples of 16 bytes, so that arrays are views of the frame: decoding copies nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import numpy as np

from veilboost.errors import MalformedMessage, UnknownMessage
from veilboost.types import AnyArray
from veilboost.wire.message import ArraySpec, Message

MAGIC = b"VBST"
VERSION = 1
MAX_HEADER = 1 << 20
_PREFIX = struct.Struct("<4sHHI")
_ALIGN = 16


class Catalogue:
    """The message types a receiver knows; everything else is refused."""

    def __init__(self, types: Iterable[type[Message]]) -> None:
        self._types = {cls.type_name(): cls for cls in types}

    def __getitem__(self, name: str) -> type[Message]:
        if name not in self._types:
            raise UnknownMessage("a message of a type that this protocol does not have arrived")
        return self._types[name]


def encode(message: Message) -> bytes:
    """The frame of a message."""
    fields: dict[str, Any] = {}
    arrays: list[tuple[str, str, tuple[int, ...]]] = []
    buffers: list[AnyArray] = []
    for name, kind in _plan(type(message)).items():
        value = getattr(message, name)
        if isinstance(kind, ArraySpec):
            array = np.ascontiguousarray(value, dtype=kind.dtype)
            arrays.append((name, kind.dtype, array.shape))
            buffers.append(array)
        else:
            fields[name] = value
    header = json.dumps(
        {"type": message.type_name(), "fields": fields, "arrays": arrays}, separators=(",", ":")
    ).encode()
    pieces: list[bytes | memoryview] = [_PREFIX.pack(MAGIC, VERSION, 0, len(header)), bytes(4), header]
    size = _ALIGN + len(header)
    for array in buffers:
        gap = -size % _ALIGN
        pieces.append(bytes(gap))
        pieces.append(memoryview(array.reshape(-1).view(np.uint8)))
        size += gap + array.nbytes
    return b"".join(pieces)


def decode(frame: bytes, catalogue: Catalogue) -> Message:
    """The message in a frame, or a coded error: type, fields, dtypes, shapes and length must all be right."""
    if len(frame) < _ALIGN:
        raise MalformedMessage("a frame is shorter than its prefix")
    magic, version, _, header_size = _PREFIX.unpack_from(frame)
    if magic != MAGIC or version != VERSION:
        raise MalformedMessage(f"a frame is not VeilBoost wire format version {VERSION}")
    if header_size > min(MAX_HEADER, len(frame) - _ALIGN):
        raise MalformedMessage("a frame's header is longer than the frame or than allowed")
    try:
        header: Any = json.loads(frame[_ALIGN : _ALIGN + header_size])
        name, fields, arrays = header["type"], dict(header["fields"]), list(header["arrays"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MalformedMessage("a frame's header cannot be read") from error
    if not isinstance(name, str):
        raise MalformedMessage("a frame's type is not a name")
    cls = catalogue[name]
    values = _scalars(cls, fields)
    offset = _ALIGN + header_size
    expected = [(field, spec) for field, spec in _plan(cls).items() if isinstance(spec, ArraySpec)]
    if len(expected) != len(arrays):
        raise MalformedMessage(f"{name} has the wrong number of arrays")
    for (field, spec), described in zip(expected, arrays, strict=True):
        shape = _shape(name, field, spec, described)
        offset += -offset % _ALIGN
        size = math.prod(shape) * np.dtype(spec.dtype).itemsize
        if offset + size > len(frame):
            raise MalformedMessage(f"{name}.{field} is longer than the frame")
        flat = np.frombuffer(frame, dtype=spec.dtype, count=math.prod(shape), offset=offset)
        values[field] = flat.reshape(shape)
        offset += size
    if offset != len(frame):
        raise MalformedMessage(f"{name} has bytes that belong to no field")
    return cls(**values)


@cache
def _plan(cls: type[Message]) -> dict[str, Any]:
    """What each field of a message class is: an ArraySpec, or a plain type."""
    hints = get_type_hints(cls, include_extras=True)
    plan: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        if get_origin(hint) is Annotated:
            plan[item.name] = next(extra for extra in get_args(hint)[1:] if isinstance(extra, ArraySpec))
        elif hint in (int, float, bool, str, tuple[str, ...]):
            plan[item.name] = hint
        else:
            raise TypeError(f"{cls.__name__}.{item.name}: a message cannot carry {hint}")
    return plan


def _scalars(cls: type[Message], fields: Mapping[str, Any]) -> dict[str, Any]:
    expected = {name: kind for name, kind in _plan(cls).items() if not isinstance(kind, ArraySpec)}
    if set(fields) != set(expected):
        raise MalformedMessage(f"{cls.type_name()} has the wrong fields")
    values: dict[str, Any] = {}
    for name, kind in expected.items():
        value = fields[name]
        if kind == tuple[str, ...]:
            items = cast(list[Any], value) if isinstance(value, list) else None
            if items is None or not all(isinstance(item, str) for item in items):
                raise MalformedMessage(f"{cls.type_name()}.{name} is not a list of text")
            values[name] = tuple(items)
        elif type(value) is kind or (kind is float and type(value) is int):
            values[name] = value
        else:
            raise MalformedMessage(f"{cls.type_name()}.{name} has the wrong type")
    return values


def _shape(name: str, field: str, spec: ArraySpec, described: Any) -> tuple[int, ...]:
    wrong = MalformedMessage(f"{name}.{field} has the wrong dtype or shape")
    if not isinstance(described, list):
        raise wrong
    parts = cast(list[Any], described)
    if len(parts) != 3 or parts[0] != field or parts[1] != spec.dtype or not isinstance(parts[2], list):
        raise wrong
    shape = cast(list[Any], parts[2])
    if len(shape) != spec.ndim or not all(type(size) is int and 0 <= size < 2**48 for size in shape):
        raise wrong
    return tuple(shape)
