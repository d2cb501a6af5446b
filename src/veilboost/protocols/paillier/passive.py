"""The passive role of `paillier`: multiplies ciphertexts per node and bin, packs and re-randomises the products."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.ciphertexts import Blinder, PairPacking, compress, sums_by_label
from veilboost.crypto.paillier.integers import Halves, halve
from veilboost.crypto.paillier.keys import PublicKey, check_public_key
from veilboost.engine.shards import per_row
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums, options_of
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, BoolArray, Int32Array, UInt8Array


class PaillierPassiveCipher(PassiveCipher):
    """Stores the round's ciphertexts and answers with packed sums under fresh randomness."""

    shuffles = True

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._key: PublicKey | None = None

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, PaillierRound):
            raise UnexpectedMessage("a round of another protocol")
        options = options_of(self.job.config)
        # A resumed job has a new key; every new key is checked before it is used.
        key = self._key
        if key is None or not np.array_equal(key.to_bytes(), message.modulus):
            key = check_public_key(message.modulus, options.key_bits)
        packing = PairPacking(message.g_bits, message.h_bits)
        if not packing.fits(key.bits):
            raise MalformedMessage("the fields of a plaintext have impossible sizes")
        fit = np.ones(self.context.rows, dtype=np.bool_)
        if len(message.fit):
            fit = np.unpackbits(message.fit, count=len(fit)).astype(np.bool_)
        if message.ciphertexts.shape != (self.job.trees_per_round, np.count_nonzero(fit), key.width):
            raise MalformedMessage("the ciphertexts are of another number of rows or classes, or another key")
        every = message.ciphertexts
        if not fit.all():  # one entry per row, so that rows and ciphertexts have the same shards
            every = np.zeros((len(every), len(fit), key.width), dtype=np.uint8)
            every[:, fit] = message.ciphertexts
        ciphertexts = per_row(partial(read_rows, key), self.job.block.placed(every), fit)
        if key is not self._key:
            self._key, self._blinder = key, Blinder(key, self._expected_answers(packing, key), Csprng())
        self._packing = packing
        self._ciphertexts = ciphertexts

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> PaillierSums:
        if self._key is None:
            raise UnexpectedMessage("no ciphertexts have arrived yet")
        by_node = build.folded(
            partial(sums_of_nodes, self._key, state.block.layout.widths.tolist()),
            [self._ciphertexts, *state.bins.bins],
            partial(multiplied, self._key.square),
        )
        slots: list[int] = state.shuffle.slots.tolist()
        sums = [own[slot] for own in by_node for slot in slots]
        packing = self._packing
        packages = compress(self._key, sums, packing.width, packing.capacity(self._key.bits), self.context.threads)
        return PaillierSums(self._key.write(self._blinder.blind(packages, Csprng())))

    def _expected_answers(self, packing: PairPacking, key: PublicKey) -> int:
        """The approximate number of packages of the job; it determines only the size of a table."""
        config = self.job.config
        nodes = min(1 << (config.max_depth - 1), self.context.rows)
        slots = len(self.context.columns) * config.max_bin
        trees = config.n_estimators * self.job.trees_per_round
        return -(-nodes * slots * trees // packing.capacity(key.bits))


@dataclass(frozen=True)
class RowCiphertexts:
    """The ciphertexts of the fit rows of every tree; row r has index `place[r]` among them."""

    trees: list[Halves]
    place: Int32Array
    shape: tuple[int, ...]


def read_rows(key: PublicKey, ciphertexts: UInt8Array, fit: BoolArray) -> RowCiphertexts:
    """Read ciphertexts (trees, rows, bytes) of fit rows."""
    place = (fit.cumsum() - 1).astype(np.int32)
    return RowCiphertexts([halve(key.read(tree[fit]), key.n) for tree in ciphertexts], place, ciphertexts.shape)


def sums_of_nodes(
    key: PublicKey, widths: Sequence[int], build: RowGroups, ciphertexts: RowCiphertexts, *bins: AnyArray
) -> list[list[int]]:
    """SecureBoost Alg. 1 (encrypted statistics per bin), without cumulative sums: the active party computes these."""
    sums: list[list[int]] = []
    for node, tree in enumerate(map(int, build.group)):
        rows, every = build.rows[build.begin[node] : build.end[node]], ciphertexts.trees[tree]
        at: list[int] = ciphertexts.place[rows].tolist()
        chosen = Halves([every.x[k] for k in at], [every.t[k] for k in at])
        sums.append(sums_by_label(key, chosen, bins[tree if len(bins) > 1 else 0][rows], widths))
    return sums


def multiplied(square: int, *parts: list[list[int]]) -> list[list[int]]:
    """Combine sums of several batches of rows: ciphertexts are added by multiplication."""
    return [
        [functools.reduce(lambda a, b: a * b % square, cells) for cells in zip(*nodes, strict=True)]
        for nodes in zip(*parts, strict=True)
    ]
