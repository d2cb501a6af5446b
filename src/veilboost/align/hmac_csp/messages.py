"""Every message of `hmac_csp`. The active party drives; each party speaks with authority and CSP by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.types import UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals

CHECK_BYTES = 32

Digests = Annotated[UInt8Array, ArraySpec("uint8", 2)]
Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class PrepareHashes(Message):
    """Active to passive: get the key and hash your ids with this hash."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()
    hash: str


@dataclass(frozen=True)
class KeyRequest(Message):
    """Active or passive to authority: the key, please."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("which parties align rows, and when", "authority"),)


@dataclass(frozen=True)
class AlignmentKey(Message):
    """Authority to active or passive: the key of this alignment."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the key of the hash: with it the digests of any party can be tested for ids", "active"),
        Reveals("the key of the hash: with it the digests of any party can be tested for ids", "passive"),
    )
    key: Bytes


@dataclass(frozen=True)
class SubmitHashes(Message):
    """Active to passive: send your hashed ids to the CSP."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class HashedRows(Message):
    """Active or passive to CSP: the digests of the party's ids, sorted."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows each party has", "csp"),
        Reveals("which digests each party has: how many rows any two or more parties share, but not who", "csp"),
    )
    digests: Digests


@dataclass(frozen=True)
class CommonRequest(Message):
    """Active or passive to CSP: which of my digests does everybody have?"""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class CommonHashes(Message):
    """CSP to active or passive: the digests that all parties sent, sorted."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which of its rows all parties have in common", "active"),
        Reveals("which of its rows all parties have in common", "passive"),
    )
    digests: Digests


@dataclass(frozen=True)
class ConfirmCommon(Message):
    """Active to passive: ask the CSP for the common digests, and say what it told you."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class CommonConfirmed(Message):
    """Passive to active: how many rows are common, and a keyed digest of what the CSP said."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("whether the CSP told both the same", "active"),)
    rows: int
    check: Bytes
