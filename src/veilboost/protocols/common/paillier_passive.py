"""The feature side of `paillier`: multiplies ciphertexts per node and bin, packs the products and makes them anew."""

from __future__ import annotations

import numpy as np

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.rows import RowGroups
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.ciphertexts import Blinder, compress
from veilboost.crypto.paillier.halves import Halves, halve
from veilboost.crypto.paillier.keys import PublicKey, check_public_key
from veilboost.crypto.paillier.packing import PairPacking
from veilboost.crypto.paillier.sums import sums_by_label
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.api import PassiveContext
from veilboost.protocols.common.messages import BeginRound
from veilboost.protocols.common.paillier_messages import PaillierRound, PaillierSums
from veilboost.protocols.common.paillier_options import options_of
from veilboost.protocols.common.passive import VerticalPassive
from veilboost.types import Int32Array


class PaillierPassive(VerticalPassive):
    """Keeps the round's ciphertexts and answers with packed sums under fresh randomness."""

    shuffles = True

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._key: PublicKey | None = None

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, PaillierRound):
            raise UnexpectedMessage("a round of another protocol")
        options = options_of(self.config)
        # A job that is taken up again has a new key; every new one is looked at before it is used.
        key = self._key
        if key is None or not np.array_equal(key.to_bytes(), message.modulus):
            key = check_public_key(message.modulus, options.key_bits)
        packing = PairPacking(message.g_bits, message.h_bits)
        if not packing.fits(key.bits):
            raise MalformedMessage("the fields of a plaintext have impossible sizes")
        rows = np.arange(self.context.rows)
        if len(message.fit):
            rows = rows[np.unpackbits(message.fit, count=len(rows)) == 1]
        if message.ciphertexts.shape != (self.trees_per_round, len(rows), key.width):
            raise MalformedMessage("the ciphertexts are of another number of rows or classes, or another key")
        ciphertexts = [halve(key.read(tree), key.n) for tree in message.ciphertexts]
        if key is not self._key:
            self._key, self._blinder = key, Blinder(key, self._expected_answers(packing, key), Csprng())
        self._packing = packing
        self._ciphertexts = ciphertexts
        self._place = np.full(self.context.rows, -1, dtype=np.int32)
        self._place[rows] = np.arange(len(rows), dtype=np.int32)

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> PaillierSums:
        if self._key is None or self.shuffle is None:
            raise UnexpectedMessage("there are no ciphertexts yet")
        sums: list[int] = []
        for begin, end, tree in zip(build.begin, build.end, build.group, strict=True):
            own = self._node_sums(self._key, block, bins, build.rows[begin:end], int(tree))
            sums += [own[slot] for slot in self.shuffle.slots.tolist()]
        packing = self._packing
        packages = compress(self._key, sums, packing.width, packing.capacity(self._key.bits), self.context.threads)
        return PaillierSums(self._key.write(self._blinder.blind(packages, Csprng())))

    def _node_sums(self, key: PublicKey, block: ColumnBlock, bins: LevelBins, rows: Int32Array, tree: int) -> list[int]:
        """SecureBoost Alg. 1 (encrypted statistics per bin), without running totals: these the active party makes."""
        every = self._ciphertexts[tree]
        at: list[int] = self._place[rows].tolist()
        matrix = bins.bins[tree if len(bins.bins) > 1 else 0]
        chosen = Halves([every.x[k] for k in at], [every.t[k] for k in at])
        return sums_by_label(key, chosen, matrix[rows], block.layout.widths.tolist())

    def _expected_answers(self, packing: PairPacking, key: PublicKey) -> int:
        """About how many packages the job will ask for; decides only how large a table pays."""
        nodes = min(1 << (self.config.max_depth - 1), self.context.rows)
        slots = len(self.context.columns) * self.config.max_bin
        trees = self.config.n_estimators * self.trees_per_round
        return -(-nodes * slots * trees // packing.capacity(key.bits))
