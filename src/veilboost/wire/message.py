"""What a message is: a frozen dataclass that says what it reveals and to whom."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from veilboost.types import UInt8Array


@dataclass(frozen=True)
class Reveals:
    """One thing the receiver learns from a message.

    `exact`: a value of the sender's data itself, in the protocols whose spec names the message so. `per_bin`: for every
    bin of the sender's columns.
    """

    what: str
    to: str
    exact: bool = False
    per_bin: bool = False


@dataclass(frozen=True)
class ArraySpec:
    """The dtype and number of dimensions an array field must have, written as `Annotated[..., ArraySpec(...)]`."""

    dtype: str
    ndim: int


@dataclass(frozen=True)
class Message:
    """The base of all messages. Fields are int, float, bool, str, tuple[str, ...] or annotated arrays.

    `reveals` must be set by every class, if only to an empty tuple: silence about leakage is not an option.
    """

    reveals: ClassVar[tuple[Reveals, ...]]

    @classmethod
    def type_name(cls) -> str:
        return cls.__name__


@dataclass(frozen=True)
class Done(Message):
    """An answer without content."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


def own_pages(size: int) -> UInt8Array:
    """Bytes, all 0, in pages of their own: these go back to the system with the array.

    What malloc gives may stay behind as holes, and a process that sends thousands of messages of slightly different
    sizes grows by them.
    """
    return np.frombuffer(mmap.mmap(-1, max(1, size), access=mmap.ACCESS_COPY), dtype=np.uint8)[:size]
