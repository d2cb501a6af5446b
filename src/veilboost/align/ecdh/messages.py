"""Every message of `ecdh`. The active party drives and carries the sets from one party to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import Int64Array, UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Points = Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class BlindOwn(Message):
    """Active to passive: hash your ids to points and blind them."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class OwnPoints(Message):
    """Passive to active: its ids as points under its own secret, sorted, which hides the order of its rows."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows the passive party has", "active"),)
    points: Points


@dataclass(frozen=True)
class BlindOther(Message):
    """Active to passive: the points of `owner`, blinded by others so far. Blind them too."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows every other party has", "passive"),)
    owner: str
    points: Points


@dataclass(frozen=True)
class OtherPoints(Message):
    """Passive to active: the same points in the same order, under its secret as well."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of the active party's own ids each passive party knows, common to all or not", "active"),
        Reveals("how many rows any two or more parties share", "active"),
    )
    points: Points


@dataclass(frozen=True)
class CommonRows(Message):
    """Active to passive: the places of the common rows in the points that the party sent first, in the common order."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which of its rows all parties have in common", "passive"),)
    places: Annotated[Int64Array, ArraySpec("int64", 1)]
