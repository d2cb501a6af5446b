"""The label side of `elxgb`: HENS grows the first tree, DPNS the others (ELXGB section 6.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from veilboost.boost.columns import Rule
from veilboost.boost.grower import Choices, Level, Round
from veilboost.boost.split import Candidates, leaf_weights
from veilboost.crypto.content import content_digest
from veilboost.fixedpoint import Scale
from veilboost.model.part import SplitRecords
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.elxgb.accounting import leaf_event
from veilboost.protocols.elxgb.clock import ClockedPeers
from veilboost.protocols.elxgb.dpns import DpnsActive
from veilboost.protocols.elxgb.options import ElxgbOptions, leaf_ranges
from veilboost.protocols.lattice.active import LatticeActive
from veilboost.protocols.paillier.active import PaillierActive
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.protocols.vertical.encrypted import EncryptedActive
from veilboost.protocols.vertical.perturb import multiplier
from veilboost.protocols.vertical.roles import ActiveContext, ActiveSide
from veilboost.types import BoolArray, Float64Array, Int64Array, UInt8Array

_HENS: dict[str, type[EncryptedActive]] = {"paillier": PaillierActive, "lattice": LatticeActive}


class ElxgbActive(ActiveSide):
    """Two sides in one: which of them a round belongs to, its number says."""

    def __init__(self, context: ActiveContext) -> None:
        self._options = ElxgbOptions.from_dict(context.config.options)
        if self._options.clock:
            context = dataclasses.replace(context, peers=ClockedPeers(context.peers, self._options.clock))
        self._context = context
        self._hens = _HENS[self._options.backend](context)
        if self._options.clock:  # a party that missed the level above has no sums to derive siblings from
            self._hens.derives_siblings = False
        self._dpns = DpnsActive(context)
        self._earlier: dict[tuple[int, int], Rule] = {}
        self._growing: VerticalActive = self._hens
        self.derives_siblings = self._hens.derives_siblings

    # --- the job ----------------------------------------------------------------------------------------

    def begin_training(self, held_out: BoolArray | None, bin_weights: Float64Array | None) -> Sequence[int]:
        columns = self._hens.begin_training(held_out, bin_weights)
        self._dpns.layouts = self._hens.layouts
        return columns

    def resume(self, records: SplitRecords, trees: int) -> None:
        self._earlier = {key: rule for key, rule in records.rules().items() if key[0] < trees}
        self._hens.resume(SplitRecords.of({}), trees)
        self._dpns = DpnsActive(self._context)
        self._dpns.layouts = self._hens.layouts

    def records(self) -> SplitRecords:
        return SplitRecords.of({**self._earlier, **self._hens.records().rules(), **self._dpns.records().rules()})

    def end_training(self, trees: int) -> SplitRecords:
        self._hens.end_training(trees)
        return SplitRecords.of({key: rule for key, rule in self.records().rules().items() if key[0] < trees})

    # --- the round --------------------------------------------------------------------------------------

    def begin_round(self, start: Round) -> None:
        self._growing = self._hens if start.number == 0 else self._dpns
        self.derives_siblings = self._growing.derives_siblings
        self._round, self._closings = start, b""
        self._growing.begin_round(start)

    def candidates(self, level: Level) -> Sequence[Candidates]:
        return self._growing.candidates(level)

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        return self._growing.select(level, offers)

    def split(self, level: Level, offers: Sequence[Candidates], choices: Choices) -> tuple[UInt8Array, UInt8Array]:
        return self._growing.split(level, offers, choices)

    def check_split(self, level: Level, choices: Choices, children: Level) -> None:
        self._growing.check_split(level, choices, children)

    def leaf_weights(self, totals: Int64Array, scale: Scale) -> Float64Array:
        if self._options.private_leaves and self._options.mechanism != "none":
            totals = self._noisy(totals, scale)
        return leaf_weights(totals, scale, self._context.config)

    def end_round(self) -> None:
        if self._closings:  # the leaves of a round are disjoint: one release, whichever levels close them
            ranges = leaf_ranges(self._context.config, self._context.trees_per_round)
            event = leaf_event(self._options, ranges, self._round.trees, f"round {self._round.number} leaves")
            self._context.account.spend(dataclasses.replace(event, content=self._closings.hex()))

    def _noisy(self, totals: Int64Array, scale: Scale) -> Int64Array:
        """Leaf sums with noise for the whole range of one person's gradient and hessian."""
        ranges = leaf_ranges(self._context.config, self._context.trees_per_round)
        randomness, number = self._context.randomness, self._round.number
        event = leaf_event(self._options, ranges, self._round.trees, f"round {number} leaves")
        # Of these leaves and of all that were closed before them.
        law = repr((event, ranges, scale))
        self._closings = content_digest(randomness, law, self._closings, self._round.gradients, totals)
        generator = randomness.for_request("elxgb leaves", number, self._closings)
        noisy = totals.copy()
        for at, (width, unit) in enumerate(((2.0 * ranges.g, scale.g_unit), (ranges.h or 0.0, scale.h_unit))):
            if width:
                noisy[:, at] += discrete_gaussian(generator, multiplier(self._options) * width / unit, len(totals))
        np.maximum(noisy[:, 1], 0, out=noisy[:, 1])  # hessians sum to no less, whatever the noise says
        return noisy
