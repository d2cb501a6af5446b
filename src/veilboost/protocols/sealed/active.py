"""The active role of `sealed`: encrypts (g, 1), selects splits privately, and adds noise to leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from veilboost.boost.bins import KIND_CODES, BinLayout
from veilboost.boost.grower import Choices, Level, Round
from veilboost.boost.split import Candidates, SplitLimits, candidates_from_sums, leaf_weights
from veilboost.crypto.fingerprint import content_digest
from veilboost.engine.shards import per_row
from veilboost.errors import UnsupportedCombination
from veilboost.fixedpoint import Scale
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.privacy.mechanism import exponential
from veilboost.protocols.lattice.active import LatticeCipher
from veilboost.protocols.sealed import parameters
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.active import VerticalActive
from veilboost.types import ColumnKind, Float64Array, Int32Array, Int64Array, PartyName

LEAST_SHARE = 1 / 20  # of a node's rows, for each child


def sealed_active(context: roles.ActiveContext) -> VerticalActive:
    """Make the role. What it sends, and the model, depend on labels only through accounted releases."""
    if not context.bounded or context.trees_per_round == 2:
        raise UnsupportedCombination("sealed: gradients must be at most 1", 'set objective to "binary" or "multiclass"')
    if context.largest_weight > 1.0:
        raise UnsupportedCombination(
            "sealed: a row with a weight above 1 changes sums by more than the noise hides",
            "scale the sample weights to at most 1",
        )
    config, classes = context.config, _classes(context)
    noise = parameters.label_noise(parameters.options_of(config), config.n_estimators, config.max_depth, classes)
    selector, leaves = PrivateSelector(context, noise), PrivateLeaves(context, noise)
    return VerticalActive(context, SealedCipher(context), selector, leaves)


def _classes(context: roles.ActiveContext) -> int:
    return 2 if context.trees_per_round == 1 else context.trees_per_round


class SealedCipher(roles.StatisticsCipher):
    """The cipher of `lattice`, with counts instead of hessians and room for the noise of passive parties."""

    noisy_gains = True  # covers depend on labels only through released leaves, so gains of leaves are post-processing

    def __init__(self, context: roles.ActiveContext) -> None:
        super().__init__(context)
        self._options, self._classes = parameters.options_of(context.config), _classes(context)
        refuse = partial(parameters.refuse_noise, context.config, self._classes)
        self._lattice = LatticeCipher(
            context, parameters.layout_of, noise_bits=parameters.noise_bits(self._options), check_room=refuse
        )
        self.checks_totals = self._lattice.checks_totals
        self._draws = 0  # most noise draws in a cell: the blocks of a node, and of its ancestors if it is derived

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        self._lattice.begin_training(layouts)

    @property
    def chosen(self) -> str:
        return self._lattice.chosen

    def shown(self, start: Round) -> Round:
        self._draws = 0
        scale = Scale(start.scale.g_exponent, 0)
        return self._lattice.shown(replace(start, gradients=per_row(_counted, start.gradients), scale=scale))

    def openings(self, current: roles.ActiveRound, openings: roles.Openings) -> roles.Openings:
        return self._lattice.openings(current, openings)

    def totals(self, level: Level) -> Int64Array:
        return _counted_totals(level)

    def enter(self, current: roles.ActiveRound, level: Level) -> tuple[roles.ActiveRound, Level]:
        return current, replace(level, totals=self.totals(level))

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> roles.Waiting:
        waiting = self._lattice.ask(current, level, requests)
        self._draws += self._lattice.blocks
        return waiting

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> roles.Statistics:
        return self._lattice.read(current, level, waiting)

    def tolerance(self, current: roles.ActiveRound, name: PartyName, bins: Int64Array) -> Int64Array | int:
        """Eight standard deviations of the noise in this many cells: honest parties exceed them in 1 of 10^15 sums."""
        if self._options.eps_features == 0:
            return 0
        sigmas = parameters.cell_sigmas(self.config, self._classes, current.layouts[name].features)
        return np.ceil(8.0 * np.sqrt(bins * self._draws)[:, None] * np.array(sigmas)).astype(np.int64)


class PrivateSelector(roles.Selector):
    """Scores with counts instead of hessians, and selects by the exponential mechanism."""

    def __init__(self, context: roles.ActiveContext, noise: parameters.LabelNoise) -> None:
        super().__init__(context)
        self._options, self._noise, self._classes = parameters.options_of(context.config), noise, _classes(context)
        # Splits with a smaller child are no candidates.
        self._scoring = replace(context.config, min_child_weight=float(self._options.least_rows))

    def score(
        self,
        current: roles.ActiveRound,
        level: Level,
        sums: Int64Array,
        layout: BinLayout,
        shuffled: bool,
        limits: SplitLimits,
    ) -> Candidates:
        """Return the gains of all candidates. Ties are not named, because they would reveal labels."""
        sums, totals = sums[level.open], level.totals[level.open]
        offer = candidates_from_sums(
            sums, layout, totals, current.start.scale, self._scoring, self.context.threads, keep_gains=True
        )
        rows, left = totals[:, 1, None], _left_counts(sums[..., 1], layout)
        enough = np.minimum(left, rows - left) >= self._least(rows)
        return replace(offer, gain=np.where(enough, _gains(offer, len(sums)), -np.inf))

    def _least(self, rows: Int64Array) -> Float64Array:
        """The least rows of a child of a node with `rows` rows; with more rows one label changes the utility less."""
        return np.maximum(self._options.least_rows, LEAST_SHARE * rows)

    def select(self, current: roles.ActiveRound, level: Level, offers: Sequence[Candidates]) -> Choices:
        gains = np.concatenate([_gains(offer, len(level.open)) for offer in offers], axis=1)
        first = np.cumsum([0, *(_gains(offer, len(level.open)).shape[1] for offer in offers)])
        g, n = _counted_totals(level)[level.open].T * np.array([[current.start.scale.g_unit], [1.0]])
        # XGBoost's gain is G_L^2/(n_L+lambda) + G_R^2/(n_R+lambda) minus the same term of the node.
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
        # If a peer answers differently after a resume, the utilities differ: they get new noise and are booked again.
        event = parameters.selection_event(self._noise, current.start.number, level.depth, self._classes)
        digest = content_digest(self.context.randomness, repr(event), utility)
        self.context.account.spend(replace(event, content=digest.hex()))
        generator = self.context.randomness.for_request("selection", digest)
        chosen = exponential(generator, utility[nodes], self._noise.selection, sensitivity=1.0)
        owner = (first.searchsorted(chosen, side="right") - 1).astype(np.int32)
        handle = (chosen - first[owner]).astype(np.int32)
        # The gain itself would be another release. The model's gains follow from its leaves.
        return Choices(level.open[nodes], owner, np.zeros(len(nodes)), handle)


class PrivateLeaves(roles.Leaves):
    """Adds noise to the gradient sums of leaves."""

    def __init__(self, context: roles.ActiveContext, noise: parameters.LabelNoise) -> None:
        super().__init__(context)
        self._noise, self._classes = noise, _classes(context)

    def begin_round(self, start: Round) -> None:
        self._event, self._closed = parameters.leaf_event(self._noise, start.number, self._classes), b""

    def weights(self, current: roles.ActiveRound, level: Level, leaves: Int64Array, scale: Scale) -> Float64Array:
        noisy = level.totals[leaves]
        # The digest covers these leaves and those of earlier levels.
        self._closed = content_digest(self.context.randomness, repr(self._event), self._closed, noisy)
        generator = self.context.randomness.for_request("leaves", self._closed)
        noisy[:, 0] += discrete_gaussian(generator, self._noise.leaf_sigma / scale.g_unit, len(noisy))
        return leaf_weights(noisy, scale, self.config)

    def end_round(self) -> None:
        """A record is in one leaf of a tree, at whatever level: the leaves of a round are one release."""
        self.context.account.spend(replace(self._event, content=self._closed.hex()))


def _counted_totals(level: Level) -> Int64Array:
    """Sums of (g, 1) of every node."""
    return np.stack((level.totals[:, 0], level.fit.counts), axis=1)


def _gains(offer: Candidates, nodes: int) -> Float64Array:
    return np.empty((nodes, 0)) if offer.gain is None else offer.gain


def _left_counts(counts: Int64Array, layout: BinLayout) -> Int64Array:
    """The rows that each candidate sends left, (nodes, handles), from the rows per bin; no column has sets."""
    slot = np.arange(layout.slots)
    feature = np.repeat(np.arange(layout.features), layout.widths)
    first = np.where(layout.kind[feature] == KIND_CODES[ColumnKind.ONEHOT], slot, layout.offsets[feature])
    below = np.zeros((len(counts), layout.slots + 1), dtype=np.int64)
    np.cumsum(counts, axis=1, out=below[:, 1:])
    left = below[:, slot + 1] - below[:, first]
    missing = counts[:, layout.offsets[feature + 1] - 1] * layout.missing[feature]
    return np.stack((left, left + missing), axis=2).reshape(len(counts), 2 * layout.slots)


def _counted(gradients: Int32Array) -> Int32Array:
    """Return (g, 1) instead of (g, h)."""
    pairs = gradients.copy()
    pairs[..., 1] = 1
    return pairs
