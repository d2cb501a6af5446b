"""A number beside its order-revealing ciphertext: sealed for those who hold the master key, who alone can read it."""

from __future__ import annotations

import struct

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import SEAL_BYTES, OreKeys, derive, seal, unseal

_DOUBLE = struct.Struct("<d")
SEALED_BYTES = _DOUBLE.size + SEAL_BYTES


def seal_value(keys: OreKeys, value: float, random: Csprng) -> bytes:
    """The keys are those of one purpose: a sealed value cannot be passed off as that of another."""
    return seal(derive(keys.master, "value"), _DOUBLE.pack(value), random)


def read_value(keys: OreKeys, sealed: bytes) -> float:
    """What was sealed, or `MalformedMessage` where it was changed or belongs to another purpose."""
    return float(_DOUBLE.unpack(unseal(derive(keys.master, "value"), sealed))[0])
