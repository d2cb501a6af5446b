"""The active role of `paillier`: encrypts the gradients once per round and decrypts sums."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from veilboost.boost.grower import Level
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.ciphertexts import PairPacking
from veilboost.crypto.paillier.keys import Owner, PreparedRandomness, generate_key
from veilboost.engine.shards import per_row
from veilboost.errors import GradientRange, InvalidParameter, MalformedMessage
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums, options_of
from veilboost.protocols.vertical import roles
from veilboost.types import BoolArray, Int32Array, Int64Array, PartyName, UInt8Array


class PaillierCipher(roles.StatisticsCipher):
    """Owns the key, which is used for one run. A second encryption of a value reveals no more than the first."""

    shuffled = checks_totals = asks_ahead = True

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        options = options_of(context.config)
        if isinstance(context.randomness, PreparedRandomness):
            self._owner: Owner = context.randomness.owner
            if self._owner.public.bits != options.key_bits:
                raise InvalidParameter(
                    f"the prepared key has {self._owner.public.bits} bits, but the job has key_bits={options.key_bits}",
                    "run veilboost prepare again",
                )
            return
        key = generate_key(options.key_bits, Csprng(), options.allow_insecure_key)
        draws = context.rows * context.trees_per_round * context.config.n_estimators
        self._owner = Owner(key, draws, Csprng())

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        # g and h in one plaintext (SecureBoost+), encrypted once for all passive parties.
        start, public = current.start, self._owner.public
        fit = np.zeros(start.gradients.shape[1], dtype=np.bool_)
        fit[np.asarray(start.fit)] = True
        pairs = start.gradients[:, fit]
        packing = self._packing = PairPacking.for_sums(pairs, pairs.shape[1])
        if not packing.fits(public.bits):
            raise GradientRange(
                "sums of the gradients do not fit 64 bits for this number of rows", "lower gradient_bits"
            )
        encrypted = np.asarray(per_row(partial(encrypt_rows, self._owner, packing), start.gradients, fit))
        content: dict[str, Any] = {
            "modulus": public.to_bytes(),
            "g_bits": packing.high,
            "h_bits": packing.low,
            "ciphertexts": encrypted,
        }
        return {name: PaillierRound(**vars(each), **content) for name, each in openings.items()}

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        answers = self.context.peers.collect(waiting, PaillierSums)
        return {
            name: self.decrypt(name, answer, len(level.build), current.layouts[name].slots)
            for name, answer in answers.items()
        }

    def decrypt(self, name: PartyName, answer: PaillierSums, nodes: int, slots: int) -> Int64Array:
        """Decrypt the sums of a party's answer, (nodes, slots, 2)."""
        public, count = self._owner.public, nodes * slots
        if len(answer.packages) != -(-count // self._packing.capacity(public.bits)):
            raise MalformedMessage(f"{name} sent sums for other nodes or bins")
        plaintexts = self._owner.decrypt(public.read_units(answer.packages), self.context.threads)
        return self._packing.unpack(plaintexts, count, public.n).reshape(nodes, slots, 2)


def encrypt_rows(owner: Owner, packing: PairPacking, gradients: Int32Array, fit: BoolArray) -> UInt8Array:
    """Encrypt gradients (trees, rows, 2) to ciphertexts (trees, fit rows, bytes)."""
    pairs = gradients[:, fit]
    encrypted = owner.encrypt(packing.pack(pairs.reshape(-1, 2)), Csprng())
    return owner.public.write(encrypted).reshape(*pairs.shape[:2], owner.public.width)
