"""The label side of `paillier`: encrypts the gradients once a round and decrypts sums."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.keys import generate_key
from veilboost.crypto.paillier.owner import Owner
from veilboost.crypto.paillier.packing import PairPacking
from veilboost.crypto.paillier.prepared import PreparedRandomness
from veilboost.engine.shards import per_row
from veilboost.errors import GradientRange, ImpossibleParameter, MalformedMessage
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.paillier.options import options_of
from veilboost.protocols.vertical.encrypted import EncryptedActive
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import BoolArray, Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Pending


class PaillierActive(EncryptedActive):
    """Owns the key, which lives in memory and for one run: a job that is taken up again makes a new one.

    Encryption draws fresh randomness from the system each time. Nothing here is noise, so a second version of a
    ciphertext tells no more than the first.
    """

    answer = PaillierSums

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        options = options_of(context.config)
        if isinstance(context.randomness, PreparedRandomness):
            self._owner: Owner = context.randomness.owner
            if self._owner.public.bits != options.key_bits:
                raise ImpossibleParameter("the key that was prepared has other key_bits than the job", "prepare again")
            return
        key = generate_key(options.key_bits, Csprng(), options.allow_insecure_key)
        draws = context.rows * context.trees_per_round * context.config.n_estimators
        self._owner = Owner(key, draws, Csprng())

    def begin_round(self, start: Round) -> None:
        # g and h in one plaintext (SecureBoost+), encrypted once for all passive parties.
        public = self._owner.public
        fit = np.zeros(start.gradients.shape[1], dtype=np.bool_)
        fit[np.asarray(start.fit)] = True
        pairs = start.gradients[:, fit]
        self._packing = PairPacking.for_sums(pairs, pairs.shape[1])
        if not self._packing.fits(public.bits):
            raise GradientRange("sums of the gradients of so many rows do not fit 64 bits", "take fewer gradient_bits")
        encrypt = partial(encrypt_rows, self._owner, self._packing)
        self._ciphertexts = np.asarray(per_row(encrypt, start.gradients, fit))
        super().begin_round(start)

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> PaillierRound:
        return PaillierRound(
            opening.number,
            opening.fit,
            opening.all_columns,
            opening.columns,
            self._owner.public.to_bytes(),
            self._packing.high,
            self._packing.low,
            self._ciphertexts,
        )

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        return self.context.peers.send(requests)

    def decrypt(self, level: Level, name: PartyName, answer: PaillierSums) -> Int64Array:
        public, slots = self._owner.public, self.round_layouts[name].slots
        count = len(level.build) * slots
        if len(answer.packages) != -(-count // self._packing.capacity(public.bits)):
            raise MalformedMessage(f"{name} sent sums for other nodes or bins")
        plaintexts = self._owner.decrypt(public.read_units(answer.packages), self.context.threads)
        return self._packing.unpack(plaintexts, count, public.n).reshape(len(level.build), slots, 2)


def encrypt_rows(owner: Owner, packing: PairPacking, gradients: Int32Array, fit: BoolArray) -> UInt8Array:
    """Ciphertexts (trees, fit rows, bytes) of gradients (trees, rows, 2)."""
    pairs = gradients[:, fit]
    encrypted = owner.encrypt(packing.pack(pairs.reshape(-1, 2)), Csprng())
    return owner.public.write(encrypted).reshape(*pairs.shape[:2], owner.public.width)
