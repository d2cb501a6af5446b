"""What `sealed` releases and what it costs; from budgets to noise.

Labels (adjacency: one person's label is another), against all that passive parties and the model's users see:
one private selection per level of each tree, of epsilon `selection`; one noisy sum per leaf, of deviation `leaf_sigma`
in units of a gradient. The nodes of a level are disjoint in rows, so a person pays for one of each. With several
classes a label is in two trees of every round, that of its old class and that of its new one.

Passive features (one person's are others, which lie on the same side of every winning cut), against the active party:
discrete Gaussian noise in every cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.keys import Sizes
from veilboost.errors import UnsupportedCombination
from veilboost.privacy.accountant import bisect, compose
from veilboost.privacy.discrete import TABLES
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Exponential, Gaussian
from veilboost.protocols.sealed.options import SealedOptions, options_of
from veilboost.types import Role

_OF_LABELS: dict[str, Any] = {
    "adjacency": Adjacency.LABEL,
    "adversary": "passive parties, and whoever gets the model",
    "protocol": "sealed",
}
_OF_FEATURES: dict[str, Any] = {
    "adjacency": Adjacency.SAME_SIDES,
    "adversary": "the active party",
    "protocol": "sealed",
}
_EXACT_CELLS = "exact sums of gradients and counts per bin (eps_features is off)"
_SIDES = "on which side of each winning cut of a passive column a row lies"


@dataclass(frozen=True)
class LabelNoise:
    """The noise that a label budget buys."""

    selection: float  # epsilon of one private selection
    leaf_sigma: float  # deviation of a leaf's sum, of which one label moves 1


@cache
def label_noise(options: SealedOptions, trees: int, depth: int, classes: int = 2) -> LabelNoise:
    """Shares the budget: rho = T D eps0^2 / 8 + T / (2 sigma^2) in zCDP, as much of it as (eps, delta) allows."""

    def noise(rho: float) -> LabelNoise:
        tree_count = trees * _trees_per_label(classes)
        for_selection = options.selection_share * rho
        return LabelNoise(
            math.sqrt(8.0 * for_selection / (tree_count * depth)), math.sqrt(tree_count / (2.0 * (rho - for_selection)))
        )

    def too_much(rho: float) -> bool:
        events = [*_selections(noise(rho), trees, depth, classes), *_leaves(noise(rho), trees, classes)]
        return compose(events, options.delta, convolve=False).noised > options.eps

    high = 1e-6
    while not too_much(high):
        high *= 2.0
    return noise(math.nextafter(bisect(too_much, 0.0, high), 0.0) if high > 1e-6 else high / 2)


CUTS_SHARE = 0.1  # of the features' budget: for the cuts of bins; the rest is for the cells


def _features_budget(options: SealedOptions) -> float:
    """The square of the Mahalanobis distance that (eps_features, delta_features) allows for all releases together."""
    from veilboost.privacy.calibrate import gaussian_sigma

    return gaussian_sigma(options.eps_features, options.delta_features) ** -2


def feature_multiplier(options: SealedOptions, trees: int, depth: int, classes: int = 2) -> float:
    """Deviation of a cell's noise over the L2 sensitivity of a level: all levels together keep to their share."""
    # Two tables a level, of gradients and of counts, each with a Mahalanobis distance of 1 / multiplier.
    levels = trees * depth * (1 if classes == 2 else classes)
    return math.sqrt(2.0 * levels / ((1.0 - CUTS_SHARE) * _features_budget(options)))


def cuts_sigma(options: SealedOptions, columns: int) -> float:
    """Deviation of every count by which cuts are found: `TABLES` tables a column, each of L2 sensitivity sqrt 2."""
    return math.sqrt(2.0 * TABLES * columns / (CUTS_SHARE * _features_budget(options)))


def cuts_event(options: SealedOptions, columns: int, number: int) -> Gaussian:
    """The cuts of one of so many columns."""
    return Gaussian(
        math.sqrt(2.0) / cuts_sigma(options, columns),
        what="the cuts of a column, by noisy counts",
        release=f"cuts of column {number}",
        count=TABLES,
        **_OF_FEATURES,
    )


def cell_sigma(multiplier: float, features: int, largest: float) -> float:
    """The deviation of a cell's noise. A record moves between two bins of each column, in the node where it stays: an
    L2 distance of sqrt(2 d) times the largest value."""
    return multiplier * math.sqrt(2.0 * features) * largest


def cell_sigmas(config: TrainingConfig, classes: int, features: int) -> tuple[float, float]:
    """The deviation of the noise in a cell of gradient sums, on the fixed-point grid, and in one of counts."""
    multiplier = feature_multiplier(options_of(config), config.n_estimators, config.max_depth, classes)
    return cell_sigma(multiplier, features, float(2**config.gradient_bits)), cell_sigma(multiplier, features, 1.0)


def noise_bits(options: SealedOptions) -> int:
    """Half of the room for sums under encryption is kept for noise, where there is any."""
    return 1 if options.eps_features > 0 else 0


def refuse_noise(config: TrainingConfig, classes: int, features: int, sizes: Sizes) -> None:
    """Refuse noise that would not fit beside the sums: twelve deviations, which are never met."""
    if options_of(config).eps_features > 0:
        largest = 12 * max(cell_sigmas(config, classes, features))
        if largest > sizes.largest_sum // 2:
            raise UnsupportedCombination(
                "sealed: the noise for eps_features does not fit beside the encrypted sums",
                f"lower gradient_bits to {config.gradient_bits - math.ceil(math.log2(2 * largest / sizes.largest_sum))}"
                ", raise eps_features, or train fewer trees",
            )


def selection_event(noise: LabelNoise, round_number: int, depth: int, classes: int) -> Exponential:
    return Exponential(
        noise.selection,
        what="the split of every node of a level, privately selected",
        release=f"round {round_number} level {depth} splits",
        count=_trees_per_label(classes),
        **_OF_LABELS,
    )


def leaf_event(noise: LabelNoise, round_number: int, classes: int) -> Gaussian:
    return Gaussian(
        1.0 / noise.leaf_sigma,
        what="the sums of gradients of leaves, with noise",
        release=f"round {round_number} leaves",
        count=_trees_per_label(classes),
        **_OF_LABELS,
    )


def cells_event(multiplier: float, round_number: int, depth: int, classes: int) -> Gaussian:
    return Gaussian(
        math.sqrt(2.0) / multiplier,
        what="sums of gradients and counts per bin, with noise",
        release=f"round {round_number} level {depth} cells",
        count=1 if classes == 2 else classes,
        **_OF_FEATURES,
    )


def _exact_event(what: str, release: str) -> ExactRelease:
    common: dict[str, Any] = {**_OF_FEATURES, "adjacency": Adjacency.PASSIVE_RECORD}
    return ExactRelease(what=what, release=release, **common)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """What a party of this role would release in the whole job; of sides and leaves, all that there may be."""
    from veilboost.protocols.sealed.options import completed

    config = completed(config, rows)
    options, trees, depth = options_of(config), config.n_estimators, config.max_depth
    classes = 3 if config.objective == "multiclass" else 2
    if role is Role.ACTIVE:
        noise = label_noise(options, trees, depth, classes)
        return [*_selections(noise, trees, depth, classes), *_leaves(noise, trees, classes)]
    levels = [(number, level) for number in range(trees) for level in range(depth)]
    sides = [_exact_event(_SIDES, f"round {number} level {level} sides") for number, level in levels]
    if options.eps_features == 0:
        return [
            *(_exact_event(_EXACT_CELLS, f"round {number} level {level} cells") for number, level in levels),
            *sides,
        ]
    multiplier = feature_multiplier(options, trees, depth, classes)
    cells = [cells_event(multiplier, number, level, classes) for number, level in levels]
    return [*(cuts_event(options, columns, number) for number in range(columns)), *cells, *sides]


def _trees_per_label(classes: int) -> int:
    return 1 if classes == 2 else 2


def _selections(noise: LabelNoise, trees: int, depth: int, classes: int) -> list[Event]:
    return [selection_event(noise, number, level, classes) for number in range(trees) for level in range(depth)]


def _leaves(noise: LabelNoise, trees: int, classes: int) -> list[Event]:
    # A person is in one leaf of a tree, whatever level it is on.
    return [leaf_event(noise, number, classes) for number in range(trees)]
