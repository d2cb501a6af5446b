"""What is sent where sums are made under lattice encryption, beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from veilboost.protocols.vertical.messages import BeginRound, Ints, StatisticsRequest
from veilboost.types import UInt8Array, UInt64Array
from veilboost.wire.message import ArraySpec, Message, Reveals

Bytes = Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class LatticeRound(BeginRound):
    """Active to passive: a round starts, with the public key its ciphertexts are under."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *BeginRound.reveals,
        Reveals("a public key: nothing of the gradients, as long as ring-LWE is hard", "passive"),
    )
    key_seed: Bytes
    key: Bytes


@dataclass(frozen=True)
class LatticeRequest(StatisticsRequest):
    """Active to passive: a level's request, with the encrypted (g, h) of the rows of the nodes to sum.

    The rows of the nodes, in their order, are cut into blocks (see `lattice.blocks`); block k lies in ciphertexts of
    `run[k]` rows each. Consecutive blocks are a span with a seed of its own (see `crypto.lattice.keys`). Of very many
    spans only the first are here; `LatticeMore` bring the others.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        *StatisticsRequest.reveals,
        Reveals("encrypted gradients: nothing, as long as ring-LWE is hard", "passive"),
    )
    log_delta: int
    run: Ints
    seed: Bytes
    ciphertext: Bytes


@dataclass(frozen=True)
class LatticeMore(Message):
    """Active to passive: ciphertexts of the spans of a level that follow those told so far."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("encrypted gradients: nothing, as long as ring-LWE is hard", "passive"),
    )
    ciphertext: Bytes


@dataclass(frozen=True)
class LatticeSums(Message):
    """Passive to active: sums of (g, h) per block and bin under the active party's key, re-randomised and flooded.

    Of the blocks whose ciphertexts came with the request.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "exact sums of gradients and hessians per node and bin of every column, columns shuffled",
            "active",
            exact=True,
            per_bin=True,
        ),
        Reveals("the same for each range of row numbers, where a node is cut into several blocks", "active"),
    )
    sums: Annotated[UInt64Array, ArraySpec("uint64", 3)]
    masks: Bytes
