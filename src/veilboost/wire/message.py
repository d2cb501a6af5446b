"""What a message is: a frozen dataclass that says what it reveals and to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


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
