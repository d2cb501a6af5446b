"""The base class of messages, frozen dataclasses that declare what they reveal and to whom, and their encoding.

    frame  = "VBST" | version u16 | length of the type u16 | length of the scalars u32 | number of sizes u32
             | type | scalars | sizes | (pad to 16 | buffer)*

The type is the message's name and the dtypes of its arrays; the scalars are a JSON list, in the order of the fields;
the sizes are the shapes of all arrays, end to end, as u64. Numbers are little-endian.

Buffers start at multiples of 16 bytes, so that arrays are views of the frame: decoding does not copy. Decoding is
strict, and nothing is ever unpickled. Messages that are sent together are frames at multiples of 16 bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import mmap
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from veilboost.errors import MalformedMessage, UnknownMessage
from veilboost.types import AnyArray, UInt8Array


@dataclass(frozen=True)
class Reveals:
    """One fact that the receiver learns from a message.

    `exact`: it is a value of the sender's data itself, in the protocols whose spec lists the message as exact.
    `per_bin`: it applies to every bin of the sender's columns. `given`: it is revealed only if one of these fields is
    neither empty nor at its default.
    """

    what: str
    to: str
    exact: bool = False
    per_bin: bool = False
    given: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArraySpec:
    """The required dtype and number of dimensions of an array field: `Annotated[..., ArraySpec(...)]`."""

    dtype: str
    ndim: int


@dataclass(frozen=True)
class Message:
    """The base class of all messages. Fields are int, float, bool, str, tuple[str, ...] or annotated arrays.

    Every class must set `reveals`, if only to an empty tuple.
    """

    reveals: ClassVar[tuple[Reveals, ...]]

    @classmethod
    def type_name(cls) -> str:
        return cls.__name__


def revealed(message: Message) -> tuple[Reveals, ...]:
    """What this message reveals: without facts whose fields it leaves empty."""
    return tuple(
        item for item in message.reveals if not item.given or any(_is_set(message, name) for name in item.given)
    )


def _is_set(message: Message, name: str) -> bool:
    value, default = getattr(message, name), getattr(type(message), name, None)
    return bool(cast(AnyArray, value).size) if isinstance(value, np.ndarray) else value != default


@dataclass(frozen=True)
class Done(Message):
    """An answer without content."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


def own_pages(size: int) -> UInt8Array:
    """Zeroed bytes in memory pages of their own, which return to the system with the array.

    Memory from malloc may stay allocated as holes, so a process that sends thousands of messages of slightly different
    sizes would keep growing.
    """
    return np.frombuffer(mmap.mmap(-1, max(1, size), access=mmap.ACCESS_COPY), dtype=np.uint8)[:size]


# --- frames ---------------------------------------------------------------------------------------------------------


MAGIC = b"VBST"
VERSION = 2
MAX_SCALARS = 1 << 20  # bytes of JSON; long values are arrays
MOST_TOGETHER = 32  # messages in one packet
_PREFIX = struct.Struct("<4sHHII")
_ALIGN = 16
_GAPS = [bytes(size) for size in range(_ALIGN)]
_to_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Catalogue:
    """The message types that a receiver accepts; it refuses all others."""

    def __init__(self, types: Iterable[type[Message]]) -> None:
        self._plans = {plan.signature: plan for plan in map(_plan, types)}

    def plan(self, signature: bytes) -> Plan:
        """The plan for reading a message of this type. Its arrays must have the declared dtypes."""
        plan = self._plans.get(signature)
        if plan is None:
            name = signature.partition(b" ")[0]
            if any(known.partition(b" ")[0] == name for known in self._plans):
                raise MalformedMessage("received a message whose arrays have unexpected types")
            raise UnknownMessage("received a message of a type that this protocol does not use")
        return plan


def encode(message: Message) -> bytes:
    """Encode a message as a frame."""
    plan = _plan(type(message))
    values = message.__dict__
    arrays = [np.ascontiguousarray(values[item.name], item.dtype) for item in plan.arrays]
    scalars = _to_json([values[name] for name, _ in plan.scalars]).encode() if plan.scalars else b"[]"
    pieces: list[Any] = [
        _PREFIX.pack(MAGIC, VERSION, len(plan.signature), len(scalars), plan.sizes.size // 8),
        plan.signature,
        scalars,
        plan.sizes.pack(*(size for array in arrays for size in array.shape)),
    ]
    size = _ALIGN + len(plan.signature) + len(scalars) + plan.sizes.size
    for array in arrays:
        gap = -size % _ALIGN
        pieces.append(_GAPS[gap])
        if array.size:  # an empty array has no buffer to join
            pieces.append(array.data)
        size += gap + array.nbytes
    return b"".join(pieces)


def frame_size(message: Message) -> int:
    """The size in bytes of the frame that `encode` would return."""
    plan, values = _plan(type(message)), message.__dict__
    size = plan.least_size
    for name, _ in plan.scalars:
        value = values[name]  # most are integers; true is as long as True
        size += len(str(value) if type(value) in (int, bool) else _to_json(value))
    for name, itemsize in plan.buffers:
        size += -size % _ALIGN + values[name].size * itemsize
    return size


def join_frames(frames: Sequence[bytes]) -> bytes:
    """The frames of messages that are sent together."""
    if len(frames) == 1:
        return frames[0]
    return b"".join(part for frame in frames[:-1] for part in (frame, _GAPS[-len(frame) % _ALIGN])) + frames[-1]


def decode(frame: bytes, catalogue: Catalogue) -> Message:
    """Decode a frame. Raises a coded error unless type, fields, dtypes, shapes and length are all valid."""
    message, end = _decode_at(0, frame, catalogue)
    if end != len(frame):
        raise MalformedMessage(f"{message.type_name()} has bytes after its last field")
    return message


def decode_all(frames: bytes, catalogue: Catalogue) -> list[tuple[Message, bytes]]:
    """Decode messages that were sent together, as strictly; return each with its frame."""
    found: list[tuple[Message, bytes]] = []
    start, end = 0, -1
    while end != len(frames):
        if len(found) == MOST_TOGETHER:
            raise MalformedMessage(f"more than {MOST_TOGETHER} messages were sent together")
        message, end = _decode_at(start, frames, catalogue)
        found.append((message, frames[start:end]))
        start = end + -end % _ALIGN
    return found


def _decode_at(start: int, frame: bytes, catalogue: Catalogue) -> tuple[Message, int]:
    """Decode the frame that begins at `start`; return where it ends, too."""
    if len(frame) < start + _ALIGN:
        raise MalformedMessage("a frame is shorter than its prefix")
    magic, version, type_size, scalar_size, size_count = _PREFIX.unpack_from(frame, start)
    if magic != MAGIC or version != VERSION:
        raise MalformedMessage(f"a frame is not VeilBoost wire format version {VERSION}")
    scalars_at = start + _ALIGN + type_size
    sizes_at = scalars_at + scalar_size
    offset = sizes_at + 8 * size_count
    if scalar_size > MAX_SCALARS or offset > len(frame):
        raise MalformedMessage("a frame's header is longer than the frame or than allowed")
    plan = catalogue.plan(frame[start + _ALIGN : scalars_at])
    if size_count != plan.sizes.size // 8:
        raise MalformedMessage(f"{plan.name} has the wrong number of sizes")
    values = _read_scalars(plan, frame[scalars_at:sizes_at])
    sizes, used = plan.sizes.unpack_from(frame, sizes_at), 0
    for item in plan.arrays:
        shape = sizes[used : used + item.ndim]
        used += item.ndim
        count = math.prod(shape)
        offset += -offset % _ALIGN
        size = count * item.dtype.itemsize
        if offset + size > len(frame):
            raise MalformedMessage(f"{plan.name}.{item.name} is longer than the frame")
        array = np.frombuffer(frame, item.dtype, count, offset) if count else np.empty(0, item.dtype)
        try:
            values[item.name] = array if item.ndim == 1 else array.reshape(shape)
        except (ValueError, OverflowError) as error:  # no elements, but a dimension too long for any array
            raise MalformedMessage(f"{plan.name}.{item.name} has an invalid shape") from error
        offset += size
    # A frozen dataclass sets its fields one by one through object.__setattr__; here all are known at once.
    message = object.__new__(plan.cls)
    message.__dict__.update(values)
    return message, offset


@dataclass(frozen=True)
class ArrayField:
    name: str
    dtype: np.dtype[Any]
    ndim: int


@dataclass(frozen=True)
class Plan:
    """How the fields of a message class are encoded. `least_size`: of a frame without its scalars and buffers."""

    cls: type[Message]
    name: str
    scalars: tuple[tuple[str, Any], ...]
    arrays: tuple[ArrayField, ...]
    buffers: tuple[tuple[str, int], ...]  # the name of each array, and the size of its elements
    signature: bytes
    sizes: struct.Struct
    least_size: int


@cache
def _plan(cls: type[Message]) -> Plan:
    hints = get_type_hints(cls, include_extras=True)
    scalars: list[tuple[str, Any]] = []
    arrays: list[ArrayField] = []
    for item in dataclasses.fields(cls):
        hint = hints[item.name]
        if get_origin(hint) is Annotated:
            spec = next(extra for extra in get_args(hint)[1:] if isinstance(extra, ArraySpec))
            dtype = np.dtype(spec.dtype).newbyteorder("<")
            arrays.append(ArrayField(item.name, dtype, spec.ndim))
        elif hint in (int, float, bool, str, tuple[str, ...]):
            scalars.append((item.name, hint))
        else:
            raise TypeError(f"{cls.__name__}.{item.name}: a message cannot have a field of type {hint}")
    dtypes = ",".join(f"{item.dtype.name}:{item.ndim}" for item in arrays)
    sizes = struct.Struct(f"<{sum(item.ndim for item in arrays)}Q")
    name = cls.type_name()
    signature = f"{name} {dtypes}".encode("ascii")
    least_size = _ALIGN + len(signature) + sizes.size + max(2, 1 + len(scalars))  # brackets and commas of the scalars
    buffers = tuple((item.name, item.dtype.itemsize) for item in arrays)
    return Plan(cls, name, tuple(scalars), tuple(arrays), buffers, signature, sizes, least_size)


def _read_scalars(plan: Plan, text: bytes) -> dict[str, Any]:
    if text == b"[]" and not plan.scalars:
        return {}
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"the scalars of {plan.name} cannot be read") from error
    if type(found) is not list or len(cast(list[Any], found)) != len(plan.scalars):
        raise MalformedMessage(f"{plan.name} has the wrong fields")
    return {
        field: _scalar(plan, field, kind, value)
        for (field, kind), value in zip(plan.scalars, cast(list[Any], found), strict=True)
    }


def _scalar(plan: Plan, field: str, kind: Any, value: Any) -> Any:
    if kind is float:
        # Neither NaN nor an infinity, which JSON does not have and Python's reader accepts, nor an int beyond a float.
        if type(value) in (int, float) and abs(value) <= sys.float_info.max:
            return float(value)
    elif type(value) is kind:
        return value
    if kind == tuple[str, ...] and isinstance(value, list):
        items = cast(list[Any], value)
        if all(isinstance(item, str) for item in items):
            return tuple(items)
    raise MalformedMessage(f"{plan.name}.{field} has the wrong type")
