"""The active role of lattice encryption: encrypts the nodes of every level, and decrypts the sums."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level, Round
from veilboost.crypto.lattice.masks import mask_sizes
from veilboost.engine.shards import pieces_of
from veilboost.fixedpoint import weight_bits
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.expansion_active import ExpandedLevels
from veilboost.protocols.lattice.layouts import (
    BYTES_AT_ONCE,
    ActiveLayout,
    LayoutOf,
    expands,
    only_runs,
    reuses_masks,
    runs_bytes,
)
from veilboost.protocols.lattice.masks_active import MaskedLevels
from veilboost.protocols.lattice.runs_active import LevelsInRuns
from veilboost.protocols.vertical import roles
from veilboost.types import PartyName

_ROWS_AT_ONCE = 1 << 20  # rows that are hashed at once
_SUM_BITS_WITH_NOISE = 41  # as much room for the noise of passive parties as in runs


class LatticeCipher(roles.StatisticsCipher):
    """Encrypts every level in one of the layouts of `layouts.py`, the same for all passive parties.

    If it `streams`, it sends a few spans of ciphertexts at a time. `noise_bits` of a sum are reserved for noise;
    `check_room` raises if the largest sum leaves no room for the noise of a party with this many columns.
    """

    def __init__(
        self,
        context: roles.ActiveContext,
        layout_of: LayoutOf = only_runs,
        streams: bool = False,
        noise_bits: int = 0,
        check_room: Callable[[int, int], None] | None = None,
    ) -> None:
        super().__init__(context)
        self._name, self._noise_bits, self._check_room = layout_of(context.config), noise_bits, check_room
        self.checks_totals, self.shuffled = not noise_bits, True
        bits = messages.value_bits(self.config, weight_bits(context.largest_weight))
        self._runs = LevelsInRuns(context, bits + noise_bits, streams, check_room)
        self._masks: MaskedLevels | None = None
        self._expanded: ExpandedLevels | None = None
        self._used: ActiveLayout = self._runs

    @property
    def blocks(self) -> int:
        """The most answers about one node of the last level."""
        return self._used.blocks

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        peers = {name: layouts[name] for name in self.context.peers.names}
        if not peers:
            return
        slots, features = (max(getattr(each, name) for each in peers.values()) for name in ("slots", "features"))
        rows, trees, rounds = self.context.rows, self.context.trees_per_round, self.config.n_estimators
        bits = messages.value_bits(self.config, weight_bits(self.context.largest_weight)) + self._noise_bits
        if expands(self._name, rows, slots, bits, self.config.max_depth, trees * rounds):
            self._expanded = ExpandedLevels(self.context, bits, self._check_room if self._noise_bits else None)
            self._expanded.begin_training(peers)
        if self.config.proposal == "local":
            return
        sizes = mask_sizes(rows, bits, slots, features, _SUM_BITS_WITH_NOISE if self._noise_bits else 0)
        if sizes is not None and reuses_masks(self._name, sizes, rows, slots, trees, rounds):
            if self._check_room is not None:
                self._check_room(sizes.largest_sum, features)
            # A mask belongs to a bin for the whole job, so the order of columns cannot change.
            self._masks, self.shuffled = MaskedLevels(self.context, sizes), False
            self._masks.begin_training(peers)

    def shown(self, start: Round) -> Round:
        content = hashlib.blake2b(digest_size=32)
        for piece in [start.gradients] if start.trees > 1 else pieces_of(start.gradients, _ROWS_AT_ONCE):
            content.update(np.asarray(piece).tobytes())
        self._content = content.digest()
        return start

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        return self._runs.openings(openings)

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        if not requests:
            return {}
        self._used = self._layout_of(current, level, requests)
        return self._used.ask(current, level, requests, self._content)

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        return self._used.read(current, level, waiting)

    def _layout_of(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> ActiveLayout:
        """The layout of a level. It depends on the job's sizes and the rows of nodes, so a resumed job repeats it."""
        if self._masks is not None and (not level.depth or (self._name == "masks" and not self._noise_bits)):
            return self._masks
        chosen: ActiveLayout = self._runs
        slots = max(current.layouts[name].slots for name in requests)
        least = sum(runs_bytes(rows, slots) for rows in level.fit.counts[level.build].tolist())
        if self._expanded is not None:
            expanded = self._expanded.plan(current, level, requests)
            if expanded is not None and expanded < least:
                chosen, least = self._expanded, expanded
        if self._masks is not None and self._name == "auto" and not self._noise_bits:
            vectors = len(level.build) * self._masks.sizes.vector_bytes(self.context.rows)
            if vectors < least and vectors <= BYTES_AT_ONCE:
                return self._masks
        return chosen
