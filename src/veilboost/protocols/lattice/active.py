"""The active role of lattice encryption: encrypts the nodes of every level, and decrypts the sums."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level, Round
from veilboost.engine.shards import pieces_of
from veilboost.fixedpoint import weight_bits
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.choice import CheckRoom, Choice, JobSizes, choose
from veilboost.protocols.lattice.expansion_active import ExpandedLevels
from veilboost.protocols.lattice.layouts import ActiveLayout, LayoutOf, only_runs
from veilboost.protocols.lattice.masks_active import MaskedLevels
from veilboost.protocols.lattice.runs_active import LevelsInRuns
from veilboost.protocols.vertical import roles
from veilboost.types import PartyName

_ROWS_AT_ONCE = 1 << 20  # rows that are hashed at once


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
        check_room: CheckRoom | None = None,
    ) -> None:
        super().__init__(context)
        self._name, self._noise_bits, self._check_room = layout_of(context.config), noise_bits, check_room
        self.checks_totals, self.shuffled = not noise_bits, True
        bits = messages.value_bits(self.config, weight_bits(context.largest_weight))
        self._runs = LevelsInRuns(context, bits + noise_bits, streams, check_room)
        self._choice: Choice | None = None
        self._masks: MaskedLevels | None = None
        self._expanded: ExpandedLevels | None = None
        self._used: ActiveLayout = self._runs

    @property
    def blocks(self) -> int:
        """The most answers about one node of the last level."""
        return self._used.blocks

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        peers = {name: layouts[name] for name in self.context.peers.names}
        self._runs.begin_training(peers)
        if not peers:
            return
        slots, features = (max(getattr(each, name) for each in peers.values()) for name in ("slots", "features"))
        job = JobSizes(
            self.context.rows,
            slots,
            features,
            self.config.max_depth,
            self.config.n_estimators,
            messages.value_bits(self.config, weight_bits(self.context.largest_weight)) + self._noise_bits,
            self.context.trees_per_round,
            noisy=self._noise_bits > 0,
            moving=self.config.proposal == "local",
        )
        choice = self._choice = choose(self._name, job, self.context.peers.network)
        if choice.keys:
            self._expanded = ExpandedLevels(self.context)
            self._expanded.begin_training(peers)
        if choice.masks is not None:
            if self._check_room is not None:
                self._check_room(choice.masks.largest_sum, features)
            # A mask belongs to a bin for the whole job, so the order of columns cannot change.
            self._masks, self.shuffled = MaskedLevels(self.context, choice.masks), False
            self._masks.begin_training(peers)

    @property
    def chosen(self) -> str:
        return "" if self._choice is None or self._name != "auto" else str(self._choice)

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
        """The layout of a level. It depends on sizes and the job's line, so a resumed job repeats it."""
        if self._choice is None:
            return self._runs
        shapes = [(current.layouts[name].slots, current.layouts[name].features) for name in requests]
        check_room = self._check_room if self._noise_bits else None
        found = self._choice.of_level(level.depth, level.fit.counts[level.build], shapes, check_room)
        if found.dense is not None and self._expanded is not None:
            self._expanded.planned = found.dense
            return self._expanded
        return self._masks if found.layout == "masks" and self._masks is not None else self._runs
