"""Messages as bytes: a JSON header and raw array buffers. Decoding is strict, and nothing is ever unpickled.

    frame  = "VBST" | version u16 | reserved u16 | header length u32 | pad to 16 | header | (pad to 16 | buffer)*
    header = [type name, [scalar fields in order], [shape of each array field in order], "their dtypes"]

Buffers start at multiples of 16 bytes, so that arrays are views of the frame: decoding copies nothing.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import numpy as np

from veilboost.errors import MalformedMessage, UnknownMessage
from veilboost.wire.message import ArraySpec, Message

MAGIC = b"VBST"
VERSION = 1
MAX_HEADER = 1 << 20
_MOST = 1 << 48  # more elements than any frame holds
_PREFIX = struct.Struct("<4sHHII")
_ALIGN = 16
_GAPS = [bytes(size) for size in range(_ALIGN)]
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


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
    plan = _plan(type(message))
    values = message.__dict__
    arrays = [np.ascontiguousarray(values[item.name], item.dtype) for item in plan.arrays]
    header = _to_json(
        [
            plan.name,
            [values[name] for name, _ in plan.scalars],
            [array.shape for array in arrays],
            plan.dtypes,
        ]
    ).encode()
    pieces: list[Any] = [_PREFIX.pack(MAGIC, VERSION, 0, len(header), 0), header]
    size = _ALIGN + len(header)
    for array in arrays:
        gap = -size % _ALIGN
        pieces.append(_GAPS[gap])
        if array.size:  # an empty array has no buffer that could be joined
            pieces.append(array.data)
        size += gap + array.nbytes
    return b"".join(pieces)


def decode(frame: bytes, catalogue: Catalogue) -> Message:
    """The message in a frame, or a coded error: type, fields, dtypes, shapes and length must all be right."""
    if len(frame) < _ALIGN:
        raise MalformedMessage("a frame is shorter than its prefix")
    magic, version, _, header_size, _ = _PREFIX.unpack_from(frame)
    if magic != MAGIC or version != VERSION:
        raise MalformedMessage(f"a frame is not VeilBoost wire format version {VERSION}")
    if header_size > min(MAX_HEADER, len(frame) - _ALIGN):
        raise MalformedMessage("a frame's header is longer than the frame or than allowed")
    offset = _ALIGN + header_size
    name, scalars, shapes, dtypes = _read_header(frame[_ALIGN:offset])
    plan = _plan(catalogue[name])
    if dtypes != plan.dtypes or len(scalars) != len(plan.scalars) or len(shapes) != len(plan.arrays):
        raise MalformedMessage(f"{plan.name} has the wrong fields")
    values = {
        field: _scalar(plan, field, kind, value) for (field, kind), value in zip(plan.scalars, scalars, strict=True)
    }
    for item, shape in zip(plan.arrays, shapes, strict=True):
        count = _count(plan, item, shape)
        offset += -offset % _ALIGN
        if offset + count * item.dtype.itemsize > len(frame):
            raise MalformedMessage(f"{plan.name}.{item.name} is longer than the frame")
        array = np.frombuffer(frame, item.dtype, count, offset) if count else np.empty(0, item.dtype)
        values[item.name] = array if item.ndim == 1 else array.reshape(shape)
        offset += array.nbytes
    if offset != len(frame):
        raise MalformedMessage(f"{plan.name} has bytes that belong to no field")
    return plan.cls(**values)


@dataclass(frozen=True)
class _ArrayField:
    name: str
    dtype: np.dtype[Any]
    ndim: int


@dataclass(frozen=True)
class _Plan:
    """How the fields of a message class travel."""

    cls: type[Message]
    name: str
    scalars: tuple[tuple[str, Any], ...]
    arrays: tuple[_ArrayField, ...]
    dtypes: str


@cache
def _plan(cls: type[Message]) -> _Plan:
    hints = get_type_hints(cls, include_extras=True)
    scalars: list[tuple[str, Any]] = []
    arrays: list[_ArrayField] = []
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        if get_origin(hint) is Annotated:
            spec = next(extra for extra in get_args(hint)[1:] if isinstance(extra, ArraySpec))
            arrays.append(_ArrayField(item.name, np.dtype(spec.dtype).newbyteorder("<"), spec.ndim))
        elif hint in (int, float, bool, str, tuple[str, ...]):
            scalars.append((item.name, hint))
        else:
            raise TypeError(f"{cls.__name__}.{item.name}: a message cannot carry {hint}")
    dtypes = ",".join(f"{item.dtype.name}{item.ndim}" for item in arrays)
    return _Plan(cls, cls.type_name(), tuple(scalars), tuple(arrays), dtypes)


def _read_header(text: bytes) -> tuple[str, list[Any], list[Any], str]:
    try:
        header: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage("a frame's header cannot be read") from error
    if type(header) is list and len(cast(list[Any], header)) == 4:
        name, scalars, shapes, dtypes = cast(list[Any], header)
        if type(name) is str and type(scalars) is list and type(shapes) is list and type(dtypes) is str:
            return name, cast(list[Any], scalars), cast(list[Any], shapes), dtypes
    raise MalformedMessage("a frame's header has the wrong form")


def _scalar(plan: _Plan, field: str, kind: Any, value: Any) -> Any:
    if type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    if kind == tuple[str, ...] and isinstance(value, list):
        items = cast(list[Any], value)
        if all(isinstance(item, str) for item in items):
            return tuple(items)
    raise MalformedMessage(f"{plan.name}.{field} has the wrong type")


def _count(plan: _Plan, item: _ArrayField, shape: Any) -> int:
    """How many elements an array of this shape has."""
    count = 1
    if not isinstance(shape, list) or len(cast(list[Any], shape)) != item.ndim:
        raise MalformedMessage(f"{plan.name}.{item.name} has the wrong shape")
    for size in cast(list[Any], shape):
        if type(size) is not int or not 0 <= size < _MOST:
            raise MalformedMessage(f"{plan.name}.{item.name} has the wrong shape")
        count *= size
    return count
