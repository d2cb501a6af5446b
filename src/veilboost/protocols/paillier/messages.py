"""What `paillier` sends beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.protocols.vertical.messages import BeginRound
from veilboost.types import UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class PaillierRound(BeginRound):
    """Active to passive: the public key, and a ciphertext for every tree and fit row, (trees, fit rows, bytes).

    Fit rows stand in ascending order. A plaintext is a pair of signed fields, g high and h low (see
    `crypto.paillier.ciphertexts`); numbers are little-endian.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *BeginRound.reveals,
        Reveals("how many bits sums of all gradients and of all hessians could need", "passive"),
    )
    modulus: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    g_bits: int
    h_bits: int
    ciphertexts: Annotated[UInt8Array, ArraySpec("uint8", 3)]


@dataclass(frozen=True)
class PaillierSums(Message):
    """Passive to active: sums of (g, h) per node and bin, node after node, as many to a ciphertext as fit."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "exact sums of gradients and hessians per node and bin of every column", "active", exact=True, per_bin=True
        ),
    )
    packages: Annotated[UInt8Array, ArraySpec("uint8", 2)]
