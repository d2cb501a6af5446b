"""Parameters of `sealed`, their automatic values, its releases, and the noise for a budget.

Labels (adjacency: one label is replaced), against everything that passive parties and users of the model receive: one
private selection per level of each tree, of epsilon `selection`; one noisy sum per leaf, of standard deviation
`leaf_sigma` in units of a gradient. The nodes of a level are disjoint in rows, so a record pays for one of each. With
several classes a label is in two trees of every round, that of its old class and that of its new one.

Passive features (adjacency: the features of one record are replaced by others with the same left/right assignment at
every winning split), against the active party: discrete Gaussian noise in every cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from veilboost.config import DEFAULTS, ProtocolOptions, TrainingConfig
from veilboost.errors import UnsupportedCombination
from veilboost.fields import param
from veilboost.privacy.accountant import DEFAULT_DELTA, bisect, compose
from veilboost.privacy.calibrate import gaussian_sigma
from veilboost.privacy.discrete import TABLES
from veilboost.privacy.event import Adjacency, Event, ExactRelease, Exponential, Gaussian
from veilboost.protocols.lattice.layouts import LAYOUT_HELP, LAYOUTS
from veilboost.types import Role


@dataclass(frozen=True)
class SealedOptions(ProtocolOptions):
    """Privacy budgets and their use."""

    eps: float = param(
        1.0,
        "label epsilon of everything that passive parties and users of the model receive",
        low=0,
        low_open=True,
        high=1000,
    )
    delta: float = param(
        DEFAULT_DELTA,
        "label delta; in a job between parties it is taken from the active party's policy and can be left out",
        low=0,
        low_open=True,
        high=0.1,
    )
    eps_features: float = param(
        0.0, "epsilon of the passive statistics that the active party receives; 0: exact sums", low=0, high=1000
    )
    delta_features: float = param(
        DEFAULT_DELTA,
        "delta of the passive statistics; in a job between parties it must equal that of the passive parties' policies",
        low=0,
        low_open=True,
        high=0.1,
    )
    utility: str = param(
        "root", "utility of private selection: the square root of the gain, or the gain", choices=("root", "square")
    )
    selection_share: float = param(
        0.5, "share of the label budget for selecting splits; the rest is for leaves", low=0.01, high=0.99
    )
    least_rows: int = param(0, "least rows of a child; 0: chosen from the number of rows", low=0)
    layout: str = param("auto", LAYOUT_HELP, choices=LAYOUTS)


def options_of(config: TrainingConfig) -> SealedOptions:
    return SealedOptions.from_dict(config.options)


def layout_of(config: TrainingConfig) -> str:
    return options_of(config).layout


def delta_option(config: TrainingConfig, role: Role) -> str | None:
    """The option that holds the delta of a role's data; statistics without noise have none."""
    if role is Role.ACTIVE:
        return "delta"
    return "delta_features" if options_of(config).eps_features > 0 else None


def refuse(config: TrainingConfig) -> None:
    """Raise for parameters that would reveal labels outside the accounted releases (the proof names each)."""
    problems = [
        (
            config.categories == "sets",
            "categories='sets' orders categories by their labels; set categories to onehot or ordinal",
        ),
        (config.early_stopping_rounds is not None, "early stopping uses labels; remove early_stopping_rounds"),
        (config.gamma > 0, "gamma compares with a gain that is not private; set gamma to 0"),
        (config.scale_pos_weight != 1.0, "scale_pos_weight reveals labels through the hessians; set it to 1"),
        (config.sampling == "goss", "goss samples rows by their gradients; set sampling to uniform"),
        (config.base_score not in {None, 0.5}, "a base_score from the labels would cost budget; set base_score to 0.5"),
        (config.reg_lambda < 0.5, "the sensitivity of the gain would have no bound; set reg_lambda to 0.5 or more"),
        (
            config.max_delta_step > 0 or config.reg_alpha > 0,
            "the proof does not cover reg_alpha and max_delta_step; set both to 0",
        ),
    ]
    if options_of(config).eps_features > 0:
        problems += [
            (config.proposal == "local", "with eps_features cut points are computed once; set proposal to global"),
            (config.binning == "width", "with eps_features cut points are noisy quantiles; set binning to quantile"),
            (config.weighted_bins, "with eps_features cut points ignore weights; turn weighted_bins off"),
            (
                options_of(config).layout == "masks",
                "with eps_features only roots may reuse masks, as a row must count once in a level; set layout to root",
            ),
        ]
    for found, problem in problems:
        if found:
            what, _, fix = problem.partition("; ")
            raise UnsupportedCombination(f"sealed: {what}", fix)


def completed(config: TrainingConfig, rows: int) -> TrainingConfig:
    """Replace defaults: trees, depth and learning rate for the budget and the rows, and base_score."""
    options = options_of(config)
    # Measured on 24000 rows; the product of epsilon and rows decides. Noise in the cells needs even fewer trees.
    weakest = options.eps if options.eps_features == 0 else min(options.eps, options.eps_features / 8)
    signal = weakest * rows / 24_000
    trees, depth, rate = (10, 3, 0.5) if signal < 1.5 else (20, 4, 0.3) if signal < 3 else (40, 5, 0.2)
    least = options.least_rows or max(5, min(rows // 120, 2000))
    return replace(
        config,
        n_estimators=config.n_estimators if config.n_estimators > 0 else trees,
        max_depth=depth if config.max_depth == DEFAULTS.max_depth else config.max_depth,
        learning_rate=rate if config.learning_rate == DEFAULTS.learning_rate else config.learning_rate,
        base_score=0.5,
        options={**config.options, "least_rows": least},
    )


_OF_LABELS: dict[str, Any] = {
    "adjacency": Adjacency.LABEL,
    "adversary": "passive parties, and everyone who receives the model",
    "protocol": "sealed",
}
_OF_FEATURES: dict[str, Any] = {
    "adjacency": Adjacency.SAME_ASSIGNMENTS,
    "adversary": "the active party",
    "protocol": "sealed",
}
_EXACT_CELLS = "exact sums of gradients and counts per bin (eps_features is off)"
_ASSIGNMENTS = "the left/right assignment of each row at each winning split on a passive column"


@dataclass(frozen=True)
class LabelNoise:
    """The noise for a label budget."""

    selection: float  # epsilon of one private selection
    leaf_sigma: float  # standard deviation of a leaf's sum, which one label changes by 1


@cache
def label_noise(options: SealedOptions, trees: int, depth: int, classes: int = 2) -> LabelNoise:
    """Divide the budget: rho = T D eps0^2 / 8 + T / (2 sigma^2) in zCDP, the largest that (eps, delta) allows."""

    def noise(rho: float) -> LabelNoise:
        tree_count = trees * _trees_per_label(classes)
        for_selection = options.selection_share * rho
        return LabelNoise(
            math.sqrt(8.0 * for_selection / (tree_count * depth)), math.sqrt(tree_count / (2.0 * (rho - for_selection)))
        )

    def too_much(rho: float) -> bool:
        return (
            compose(_label_events(noise(rho), trees, depth, classes), options.delta, convolve=False).noised
            > options.eps
        )

    high = 1e-6
    while not too_much(high):
        high *= 2.0
    return noise(math.nextafter(bisect(too_much, 0.0, high), 0.0) if high > 1e-6 else high / 2)


CUTS_SHARE = 0.1  # of the features' budget, for the cut points of bins; the rest is for the cells


def _features_budget(options: SealedOptions) -> float:
    """The square of the Mahalanobis distance that (eps_features, delta_features) allows for all releases together."""
    return gaussian_sigma(options.eps_features, options.delta_features) ** -2


def feature_multiplier(options: SealedOptions, trees: int, depth: int, classes: int = 2) -> float:
    """Standard deviation of a cell's noise over the L2 sensitivity of a level; all levels stay within their share."""
    # Two tables per level, of gradients and of counts, each with a Mahalanobis distance of 1 / multiplier.
    levels = trees * depth * (1 if classes == 2 else classes)
    return math.sqrt(2.0 * levels / ((1.0 - CUTS_SHARE) * _features_budget(options)))


def cuts_sigma(options: SealedOptions, columns: int) -> float:
    """Noise deviation of the counts that give cut points: `TABLES` tables per column, each of L2 sensitivity sqrt 2."""
    return math.sqrt(2.0 * TABLES * columns / (CUTS_SHARE * _features_budget(options)))


def cuts_event(options: SealedOptions, columns: int, number: int) -> Gaussian:
    """The release of the cut points of one of `columns` columns."""
    what, distance = "the cut points of a column, from noisy counts", math.sqrt(2.0) / cuts_sigma(options, columns)
    return Gaussian(distance, what=what, release=f"cuts of column {number}", count=TABLES, **_OF_FEATURES)


def cell_sigmas(config: TrainingConfig, classes: int, features: int) -> tuple[float, float]:
    """Standard deviations of the noise in a cell of gradient sums, on the fixed-point grid, and in a cell of counts.

    A record moves between two bins of each column and stays in its node: an L2 distance of sqrt(2 d).
    """
    multiplier = feature_multiplier(options_of(config), config.n_estimators, config.max_depth, classes)
    of_counts = multiplier * math.sqrt(2.0 * features)
    return of_counts * 2**config.gradient_bits, of_counts


def noise_bits(options: SealedOptions) -> int:
    """With noise, half of the range of encrypted sums is reserved for it."""
    return 1 if options.eps_features > 0 else 0


def refuse_noise(config: TrainingConfig, classes: int, largest_sum: int, features: int) -> None:
    """Raise if the noise does not fit beside the sums: twelve standard deviations, which never occur."""
    if options_of(config).eps_features > 0:
        largest = 12 * max(cell_sigmas(config, classes, features))
        if largest > largest_sum // 2:
            raise UnsupportedCombination(
                "sealed: the noise for eps_features does not fit beside the encrypted sums",
                f"lower gradient_bits to {config.gradient_bits - math.ceil(math.log2(2 * largest / largest_sum))}"
                ", raise eps_features, or train fewer trees",
            )


def selection_event(noise: LabelNoise, round_number: int, depth: int, classes: int) -> Exponential:
    what, release = (
        "the privately selected split of every node of a level",
        f"round {round_number} level {depth} splits",
    )
    return Exponential(noise.selection, what=what, release=release, count=_trees_per_label(classes), **_OF_LABELS)


def leaf_event(noise: LabelNoise, round_number: int, classes: int) -> Gaussian:
    what, release = "noisy sums of gradients of leaves", f"round {round_number} leaves"
    return Gaussian(1.0 / noise.leaf_sigma, what=what, release=release, count=_trees_per_label(classes), **_OF_LABELS)


def cells_event(multiplier: float, round_number: int, depth: int, classes: int) -> Gaussian:
    what, release = "noisy sums of gradients and counts per bin", f"round {round_number} level {depth} cells"
    count = 1 if classes == 2 else classes
    return Gaussian(math.sqrt(2.0) / multiplier, what=what, release=release, count=count, **_OF_FEATURES)


def _exact_event(what: str, release: str) -> ExactRelease:
    common: dict[str, Any] = {**_OF_FEATURES, "adjacency": Adjacency.PASSIVE_RECORD}
    return ExactRelease(what=what, release=release, **common)


def plan(config: TrainingConfig, rows: int, role: Role, columns: int = 1) -> Sequence[Event]:
    """The releases of a party of this role in the whole job, with the most assignments and leaves possible."""
    config = completed(config, rows)
    options, trees, depth = options_of(config), config.n_estimators, config.max_depth
    classes = 3 if config.objective == "multiclass" else 2
    if role is Role.ACTIVE:
        return _label_events(label_noise(options, trees, depth, classes), trees, depth, classes)
    levels = [(number, level) for number in range(trees) for level in range(depth)]
    assignments = [
        replace(_exact_event(_ASSIGNMENTS, f"round {number} level {level} assignments"), assignments=1)
        for number, level in levels
    ]
    if options.eps_features == 0:
        return [
            *(_exact_event(_EXACT_CELLS, f"round {number} level {level} cells") for number, level in levels),
            *assignments,
        ]
    multiplier = feature_multiplier(options, trees, depth, classes)
    cells = [cells_event(multiplier, number, level, classes) for number, level in levels]
    return [*(cuts_event(options, columns, number) for number in range(columns)), *cells, *assignments]


def _trees_per_label(classes: int) -> int:
    return 1 if classes == 2 else 2


def _label_events(noise: LabelNoise, trees: int, depth: int, classes: int) -> list[Event]:
    """A record is in one leaf of a tree, at whatever level."""
    splits = [selection_event(noise, number, level, classes) for number in range(trees) for level in range(depth)]
    return [*splits, *(leaf_event(noise, number, classes) for number in range(trees))]
