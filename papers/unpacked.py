"""SecureBoost as published, without the packing of SecureBoost+: a ciphertext for g, one for h, one for each sum.

For experiments only: a baseline for ratios that were measured against it. `paillier` packs g and h into one plaintext
and many sums into one ciphertext.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.paillier.ciphertexts import PairPacking
from veilboost.engine.shards import per_row
from veilboost.errors import UnexpectedMessage
from veilboost.protocols.paillier.active import PaillierCipher, encrypt_rows
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.paillier.passive import PaillierPassiveCipher
from veilboost.protocols.paillier.spec import SPEC
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.active import active_by
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.passive import passive_by
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Int32Array, Int64Array, PartyName


@dataclass(frozen=True)
class Alone(PairPacking):
    """The same fields, of which one is always 0, and one sum in a ciphertext."""

    def capacity(self, key_bits: int) -> int:
        return 1


class UnpackedCipher(PaillierCipher):
    """Sends the ciphertexts of all g and then those of all h."""

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        start = current.start
        fit = np.zeros(start.gradients.shape[1], dtype=np.bool_)
        fit[np.asarray(start.fit)] = True
        pairs = start.gradients[:, fit]
        fields = PairPacking.for_sums(pairs, pairs.shape[1])
        self._packing = Alone(fields.high, fields.low)
        encrypted = [
            np.asarray(per_row(partial(encrypt_rows, self._owner, self._packing), _only(start.gradients, kind), fit))
            for kind in (0, 1)
        ]
        content: dict[str, Any] = {
            "modulus": self._owner.public.to_bytes(),
            "g_bits": fields.high,
            "h_bits": fields.low,
            "ciphertexts": np.concatenate(encrypted),
        }
        return {name: PaillierRound(**vars(each), **content) for name, each in openings.items()}

    def decrypt(self, name: PartyName, answer: PaillierSums, nodes: int, slots: int) -> Int64Array:
        g, h = (super(UnpackedCipher, self).decrypt(name, PaillierSums(half), nodes, slots) for half in _halves(answer))
        return g + h


def _only(gradients: Int32Array, kind: int) -> Int32Array:
    """g (0) or h (1), with 0 in place of the other."""
    kept = np.zeros_like(gradients)
    kept[..., kind] = gradients[..., kind]
    return kept


def _halves(answer: PaillierSums) -> list[Any]:
    middle = len(answer.packages) // 2
    return [answer.packages[:middle], answer.packages[middle:]]


class UnpackedPassiveCipher(PaillierPassiveCipher):
    """Sums the ciphertexts of g, then those of h."""

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, PaillierRound):
            raise UnexpectedMessage("a round of another protocol")
        self._both: list[Any] = []
        for half in np.split(message.ciphertexts, 2):
            super().open_round(replace(message, ciphertexts=half))
            self._both.append(self._ciphertexts)
        self._packing = Alone(message.g_bits, message.h_bits)

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> PaillierSums:
        packages: list[Any] = []
        for half in self._both:
            self._ciphertexts = half
            packages.append(super().answer(message, state, build).packages)
        return PaillierSums(np.concatenate(packages))


UNPACKED = replace(
    SPEC,
    name="paillier-unpacked",
    summary="experiments only: one number in each ciphertext",
    roles={"active": active_by(UnpackedCipher), "passive": passive_by(UnpackedPassiveCipher)},
)
