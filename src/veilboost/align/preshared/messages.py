"""What parties send to see that their rows are in the same order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class OrderCheck(Message):
    """Active to passive: so many rows, and a salted digest of their ids in order. Are yours the same?"""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows the active party has", "passive"),
        Reveals("a salted digest of all ids in order: a guess of the whole list can be tested", "passive"),
    )
    rows: int
    salt: Bytes
    digest: Bytes


@dataclass(frozen=True)
class OrderConfirmed(Message):
    """Passive to active: they are; the digest is made with another label, so only who has the ids can make it."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that the passive party has the same ids in the same order", "active"),
    )
    digest: Bytes
