"""The label side of `sealed`: encrypts (g, 1), selects splits privately, and puts noise into leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from veilboost.boost.grower import Choices, Level, Round
from veilboost.boost.layout import BinLayout
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.engine.shards import per_row
from veilboost.errors import UnsupportedCombination
from veilboost.fixedpoint import Scale
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.privacy.mechanism import exponential
from veilboost.protocols.api import ActiveContext
from veilboost.protocols.common.lattice_active import LatticeActive
from veilboost.protocols.sealed.accounting import (
    cell_sigma,
    feature_multiplier,
    label_noise,
    leaf_event,
    selection_event,
)
from veilboost.protocols.sealed.options import options_of
from veilboost.types import Float64Array, Int32Array, Int64Array


class SealedActive(LatticeActive):
    """Everything that leaves here, or enters the model, depends on labels only through paid releases."""

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        if context.largest_weight > 1.0:
            raise UnsupportedCombination("sealed: a row that weighs more than 1 moves more than the noise hides")
        self._options = options_of(context.config)
        self._classes = 2 if context.trees_per_round == 1 else context.trees_per_round
        config = context.config
        self._noise = label_noise(self._options, config.n_estimators, config.max_depth, self._classes)
        # Scored by counts in place of hessians; children of fewer rows are no candidates.
        self._scoring = replace(config, min_child_weight=float(self._options.least_rows))

    def begin_round(self, start: Round) -> None:
        counted = per_row(_counted, start.gradients)
        self._true_scale = start.scale
        self._closed = 0
        super().begin_round(replace(start, gradients=counted, scale=Scale(start.scale.g_exponent, 0)))

    def largest_value(self, start: Round) -> int:
        return 1 << start.scale.g_exponent  # |g| = 1, whatever the labels

    # --- private selection ------------------------------------------------------------------------------

    def candidates(self, level: Level) -> Sequence[Candidates]:
        self._totals = level.fit.totals(self.start.gradients)
        return super().candidates(replace(level, totals=self._totals))

    def known_totals(self, level: Level) -> Int64Array | None:
        return None if self._options.eps_features > 0 else super().known_totals(level)

    def score(self, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> Candidates:
        """Gains with counts in place of hessians, of all candidates; ties are not named, they would tell of labels."""
        return candidates_from_sums(
            sums, layout, totals, self.start.scale, self._scoring, self.context.threads, keep_gains=True
        )

    def offer(self, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> Candidates:
        return self.score(sums, layout, totals)

    def select(self, level: Level, offers: Sequence[Candidates]) -> Choices:
        gains = np.concatenate([_gains(offer, len(level.open)) for offer in offers], axis=1)
        first = np.cumsum([0, *(_gains(offer, len(level.open)).shape[1] for offer in offers)])
        g, n = self._totals[level.open].T * np.array([[self.start.scale.g_unit], [1.0]])
        # What XGBoost calls gain is G_L^2/(n_L+lambda) + G_R^2/(n_R+lambda) less the same of the node.
        utility = gains + (g * g / (n + self.config.reg_lambda))[:, None]
        able = np.isfinite(utility).any(axis=1)
        nodes = np.flatnonzero(able)
        if not len(nodes):
            nothing = np.empty(0, dtype=np.int32)
            return Choices(level.open[:0], nothing, np.empty(0), nothing)
        if self._options.utility == "root":
            with np.errstate(invalid="ignore"):
                utility = np.where(np.isfinite(utility), np.sqrt(np.maximum(utility, 0.0)), -np.inf)
            sensitivity = 1.0 / np.sqrt(self._options.least_rows + self.config.reg_lambda)
        else:
            sensitivity = 2.0
        event = selection_event(self._noise, self.start.number, level.depth, self._classes)
        self.context.account.spend(event)
        generator = self.context.randomness.for_request("selection", self.start.number, level.depth)
        chosen = exponential(generator, utility[nodes], self._noise.selection, float(sensitivity))
        owner = (first.searchsorted(chosen, side="right") - 1).astype(np.int32)
        handle = (chosen - first[owner]).astype(np.int32)
        # A gain would be a release of its own: the model has none.
        return Choices(level.open[nodes], owner, np.zeros(len(nodes)), handle)

    def room_for_noise(self, features: int) -> int:
        if self._options.eps_features == 0:
            return 0
        config = self.context.config
        multiplier = feature_multiplier(self._options, config.n_estimators, config.max_depth, self._classes)
        largest = float(2**config.gradient_bits)
        return int(12 * cell_sigma(multiplier, features, depth=1, largest=largest))  # twelve deviations, never met

    # --- private leaves ---------------------------------------------------------------------------------

    def leaf_weights(self, totals: Int64Array, scale: Scale) -> Float64Array:
        self.context.account.spend(leaf_event(self._noise, self.start.number, self._classes))
        generator = self.context.randomness.for_request("leaves", self.start.number, self._closed)
        self._closed += 1  # the leaves of the next level
        sigma = self._noise.leaf_sigma / self._true_scale.g_unit
        noisy = totals.copy()
        noisy[:, 0] += discrete_gaussian(generator, sigma, len(totals))
        return super().leaf_weights(noisy, self._true_scale)


def _gains(offer: Candidates, nodes: int) -> Float64Array:
    return np.empty((nodes, 0)) if offer.gain is None else offer.gain


def _counted(gradients: Int32Array) -> Int32Array:
    """(g, 1) in place of (g, h)."""
    pairs = gradients.copy()
    pairs[..., 1] = 1
    return pairs
