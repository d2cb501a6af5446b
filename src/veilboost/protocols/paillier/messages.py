"""Messages of `paillier`, in addition to the common messages, and the parameters of its key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.paillier.keys import check_key_bits
from veilboost.fields import param
from veilboost.protocols.vertical.messages import EXACT_SUMS, BeginRound
from veilboost.types import UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class PaillierRound(BeginRound):
    """Active to passive: the public key, and a ciphertext for every tree and fit row, (trees, fit rows, bytes).

    Fit rows are in ascending order. A plaintext is a pair of signed fields, g high and h low (see
    `crypto.paillier.ciphertexts`); numbers are little-endian.
    """

    reveals = (
        *BeginRound.reveals,
        Reveals("how many bits the sums of all gradients and of all hessians may need", "passive"),
    )
    modulus: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    g_bits: int
    h_bits: int
    ciphertexts: Annotated[UInt8Array, ArraySpec("uint8", 3)]


@dataclass(frozen=True)
class PaillierSums(Message):
    """Passive to active: sums of (g, h) per node and bin, node by node, packed into as few ciphertexts as possible."""

    reveals = (EXACT_SUMS,)
    packages: Annotated[UInt8Array, ArraySpec("uint8", 2)]


@dataclass(frozen=True)
class PaillierOptions(ProtocolOptions):
    """The size of the key."""

    key_bits: int = param(
        2048, "bits of the modulus: 2048 or 3072; 512 or 1024 only with allow_insecure_key", low=512, high=3072
    )
    allow_insecure_key: bool = param(False, "allow the short keys of published experiments, which protect nothing")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_key_bits(self.key_bits, self.allow_insecure_key)


def options_of(config: TrainingConfig) -> PaillierOptions:
    """Return the parameters of the key, from the options of any protocol that has them."""
    known = PaillierOptions.names()
    return PaillierOptions.from_dict({name: value for name, value in config.options.items() if name in known})
