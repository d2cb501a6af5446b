"""The label side of `sealed`: encrypts (g, 1), selects splits privately, and puts noise into leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from veilboost.boost.grower import Choices, Level, Round
from veilboost.boost.layout import KIND_CODES, BinLayout
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.crypto.content import content_digest
from veilboost.crypto.lattice.parameters import Sizes
from veilboost.engine.shards import per_row
from veilboost.errors import UnsupportedCombination
from veilboost.fixedpoint import Scale
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.privacy.mechanism import exponential
from veilboost.protocols.lattice.active import LatticeActive
from veilboost.protocols.sealed.accounting import (
    cell_sigmas,
    label_noise,
    leaf_event,
    noise_bits,
    refuse_noise,
    selection_event,
)
from veilboost.protocols.sealed.options import options_of
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import ColumnKind, Float64Array, Int32Array, Int64Array, PartyName

LEAST_SHARE = 1 / 20  # of a node's rows, for each child


class SealedActive(LatticeActive):
    """Everything that leaves here, or enters the model, depends on labels only through paid releases."""

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        if not context.bounded or context.trees_per_round == 2:
            raise UnsupportedCombination("sealed: gradients must be at most 1, as those of binary or multiclass are")
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
        self._leaves = b""
        self._draws = 0  # of noise, at most, in a cell of a level: a node's blocks, and its ancestors' if it is derived
        super().begin_round(replace(start, gradients=counted, scale=Scale(start.scale.g_exponent, 0)))

    @property
    def noise_bits(self) -> int:
        return noise_bits(self._options)

    def check_sizes(self, sizes: Sizes, features: int) -> None:
        refuse_noise(self.config, self._classes, features, sizes)

    # --- private selection ------------------------------------------------------------------------------

    def candidates(self, level: Level) -> Sequence[Candidates]:
        self._totals = level.fit.totals(self.start.gradients)
        offers = super().candidates(replace(level, totals=self._totals))
        self._draws += int(np.bincount(self.block_node).max(initial=1))
        return offers

    def known_totals(self, level: Level) -> Int64Array | None:
        return None if self._options.eps_features > 0 else super().known_totals(level)

    def score(self, sums: Int64Array, layout: BinLayout, totals: Int64Array) -> Candidates:
        """Gains with counts in place of hessians, of all candidates; ties are not named, they would tell of labels."""
        offer = candidates_from_sums(
            sums, layout, totals, self.start.scale, self._scoring, self.context.threads, keep_gains=True
        )
        rows, left = totals[:, 1, None], _left_counts(sums[..., 1], layout)
        enough = np.minimum(left, rows - left) >= self._least(rows)
        return replace(offer, gain=np.where(enough, _gains(offer, len(sums)), -np.inf))

    def _least(self, rows: Int64Array) -> Float64Array:
        """The least rows of a child of a node of so many: the more there are, the less one label moves the utility."""
        return np.maximum(self._options.least_rows, LEAST_SHARE * rows)

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
            sensitivity = 1.0 / np.sqrt(self._least(n) + self.config.reg_lambda)
        else:
            sensitivity = np.full(len(n), 2.0)
        utility = utility / sensitivity[:, None]
        # Other answers of a peer, after a resume, are other utilities: they meet other noise and are booked again.
        event = selection_event(self._noise, self.start.number, level.depth, self._classes)
        digest = content_digest(self.context.randomness, repr(event), utility)
        self.context.account.spend(replace(event, content=digest.hex()))
        generator = self.context.randomness.for_request("selection", digest)
        chosen = exponential(generator, utility[nodes], self._noise.selection, sensitivity=1.0)
        owner = (first.searchsorted(chosen, side="right") - 1).astype(np.int32)
        handle = (chosen - first[owner]).astype(np.int32)
        # A gain would be a release of its own: the model has none.
        return Choices(level.open[nodes], owner, np.zeros(len(nodes)), handle)

    # --- what a peer's split must add up to ---------------------------------------------------------------

    def left_totals(self, children: Level) -> Int64Array:
        return np.stack((children.totals[0::2, 0], children.fit.counts[0::2]), axis=1)

    def tolerance(self, name: PartyName, bins: Int64Array) -> Int64Array | int:
        """Eight deviations of the noise in so many cells: an honest party exceeds them once in 10^15 sums."""
        if self._options.eps_features == 0:
            return 0
        sigmas = cell_sigmas(self.config, self._classes, self.round_layouts[name].features)
        return np.ceil(8.0 * np.sqrt(bins * self._draws)[:, None] * np.array(sigmas)).astype(np.int64)

    # --- private leaves ---------------------------------------------------------------------------------

    def leaf_weights(self, totals: Int64Array, scale: Scale) -> Float64Array:
        event = leaf_event(self._noise, self.start.number, self._classes)
        # Of these leaves, and of all that earlier levels closed.
        self._leaves = content_digest(self.context.randomness, repr(event), self._leaves, totals)
        generator = self.context.randomness.for_request("leaves", self._leaves)
        sigma = self._noise.leaf_sigma / self._true_scale.g_unit
        noisy = totals.copy()
        noisy[:, 0] += discrete_gaussian(generator, sigma, len(totals))
        return super().leaf_weights(noisy, self._true_scale)

    def end_round(self) -> None:
        """A person is in one leaf of a tree, whichever level it is on: the leaves of a round are one release."""
        event = leaf_event(self._noise, self.start.number, self._classes)
        self.context.account.spend(replace(event, content=self._leaves.hex()))


def _gains(offer: Candidates, nodes: int) -> Float64Array:
    return np.empty((nodes, 0)) if offer.gain is None else offer.gain


def _left_counts(counts: Int64Array, layout: BinLayout) -> Int64Array:
    """How many rows each candidate sends left, (nodes, handles), from the rows in each bin; no column has sets."""
    slot = np.arange(layout.slots)
    feature = np.repeat(np.arange(layout.features), layout.widths)
    first = np.where(layout.kind[feature] == KIND_CODES[ColumnKind.ONEHOT], slot, layout.offsets[feature])
    below = np.zeros((len(counts), layout.slots + 1), dtype=np.int64)
    np.cumsum(counts, axis=1, out=below[:, 1:])
    left = below[:, slot + 1] - below[:, first]
    missing = counts[:, layout.offsets[feature + 1] - 1] * layout.missing[feature]
    return np.stack((left, left + missing), axis=2).reshape(len(counts), 2 * layout.slots)


def _counted(gradients: Int32Array) -> Int32Array:
    """(g, 1) in place of (g, h)."""
    pairs = gradients.copy()
    pairs[..., 1] = 1
    return pairs
