"""Noise on the sums of `secagg`: every participant adds its part of a discrete Gaussian before it masks an answer.

The releases of a job are the tables of counts from which cut points are found, and the sums of every level of every
tree. The claim is about one record (`Adjacency.RECORD`: one person's row changes, the number of rows does not):

- **A table of counts.** A changed record leaves one cell of a column and enters another: the squared L2 distance is 2
  for each numeric column. All columns of a step are one release.
- **The sums of a level.** A record is in one bin of every column of at most one of the requested nodes. In units of the
  largest |g| and h of the loss, a change from one bin to another moves g by at most 1 and h by at most 1 in each, and a
  change within a bin moves g by at most 2 and h by at most 1. So the squared Mahalanobis distance of a column is at
  most max(2a + 2b, 4a + b), where a and b are the squares of the largest |g| and h over their sigmas.

With `colluding` = c of n participants, of which k may drop out, each participant adds noise of variance
sigma^2 / (n - k - c): the noise of those whose noise the attacker does not know has at least variance sigma^2. A
participant answers for one roster of a round, so the number of releases is the same. A sum of m discrete Gaussians is
not a discrete Gaussian. By Kairouz, Liu and Steinke (The distributed discrete Gaussian mechanism, 2021) its Renyi
divergences are at most those of a Gaussian of Mahalanobis distance D / sigma + tau sqrt(d), for a D-sensitive vector of
d numbers, with tau = 10 sum_{k < m} exp(-2 pi^2 s^2 k / (k + 1)) and s the sigma of one participant. `LEAST_SIGMA`
keeps tau sqrt(d) below 2^-40, `SLACK` of the budget is left for it, and epsilon follows from the Renyi divergences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from veilboost.boost.objective import objective_of
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination
from veilboost.fields import param
from veilboost.fixedpoint import Scale
from veilboost.privacy.accountant import DEFAULT_DELTA, bisect, compose
from veilboost.privacy.calibrate import check_delta, gaussian_sigma
from veilboost.privacy.discrete import LEVELS, TABLES, discrete_gaussian, search_cuts
from veilboost.privacy.event import Adjacency, Event, Gaussian
from veilboost.privacy.mechanism import Generator
from veilboost.types import Float32Array, Int64Array, UInt32Array, UInt64Array

COUNTS_SHARE = 0.1  # of the squared budget, for cut points
HESSIAN_SHARE = 0.5  # b over a
SLACK = 1e-6  # of the budget, for the difference between sums of discrete Gaussians and a Gaussian
LEAST_SIGMA = (
    3.0  # of one participant, in units of the sums: tau sqrt(d) < 2^-40 for 10^6 participants and 2^40 numbers
)
_TOP = np.iinfo(np.uint32).max
SAFE_SIGMAS = 2.0  # sigmas of a child's hessian below which no node is split


@dataclass(frozen=True)
class SecaggOptions(ProtocolOptions):
    """Noise on the sums, for differential privacy of one record, and participants that may be lost."""

    epsilon: float = param(0.0, "epsilon of one record over the whole job; 0: no noise, exact sums", low=0, high=1000)
    delta: float = param(DEFAULT_DELTA, "delta of one record, if epsilon is above 0", low=0, high=1, low_open=True)
    colluding: int = param(
        1, "participants whose noise does not count, because they may collude with the server", low=1, high=100_000
    )
    dropouts: int = param(
        0,
        "participants that may be lost while the others train on; 0: the job stops, and can resume",
        low=0,
        high=99_997,
    )


def options_of(config: TrainingConfig) -> SecaggOptions:
    return SecaggOptions.from_dict(config.options)


def least_roster(config: TrainingConfig, participants: int) -> int:
    """The fewest participants with which a round may begin.

    Raises `InvalidParameter` if so few could be opened by the server with those that collude with it.
    """
    dropouts = options_of(config).dropouts
    if not dropouts:
        return participants
    # One server with c colluders must not find two rosters of a round that have no honest participant in common.
    colluding = options_of(config).colluding if "colluding" in config.options else 0
    least, most = participants - dropouts, min(participants - 3, (participants - colluding - 1) // 2)
    if dropouts > most:
        raise InvalidParameter(
            f"dropouts is {dropouts}, and of {participants} participants with {colluding} colluding at most "
            f"{max(most, 0)} may be lost: at least 3 must be left, and twice as many as are left must be more than "
            "all participants and the colluding ones together",
            f"set dropouts to at most {max(most, 0)}",
        )
    return least


def refuse_with_noise(config: TrainingConfig) -> None:
    """Raise for parameters with which a job would release something without noise."""
    options = options_of(config)
    if options.epsilon == 0:
        return
    check_delta(options.delta)
    if config.objective != "binary":
        raise UnsupportedCombination(
            f"secagg with epsilon needs declared classes and bounded gradients, and objective is {config.objective!r}",
            'set objective to "binary", or epsilon to 0',
        )
    if config.binning != "quantile":
        raise UnsupportedCombination(
            "secagg with epsilon has quantile bins only: equal widths need the exact extremes of columns",
            'set binning to "quantile"',
        )
    if config.scale_pos_weight != 1.0 or config.early_stopping_rounds is not None:
        raise UnsupportedCombination(
            "secagg with epsilon supports neither scale_pos_weight nor early_stopping_rounds",
            "remove them, or set epsilon to 0",
        )


@dataclass(frozen=True)
class Distances:
    """The Mahalanobis distance of one table of counts, and of the sums of one level of one tree."""

    counts: float
    sums: float

    @staticmethod
    def of(config: TrainingConfig) -> Distances:
        options = options_of(config)
        total = (1.0 - SLACK) * _largest_distance(options.epsilon, options.delta)
        levels = config.n_estimators * config.max_depth
        return Distances(total * math.sqrt(COUNTS_SHARE / TABLES), total * math.sqrt((1 - COUNTS_SHARE) / levels))

    def events(self, config: TrainingConfig, content: str = "") -> Sequence[Event]:
        """The releases of a job, by each participant. `content` is the digest of its table."""

        def event(what: str, distance: float, count: int) -> Event:
            return Gaussian(
                distance / (1.0 - SLACK),
                what=f"{what}, summed over all participants with noise",
                adjacency=Adjacency.RECORD,
                adversary="the server and every participant",
                protocol="secagg",
                release=what,
                content=content,
                count=count,
            )

        levels = config.n_estimators * config.max_depth
        return (
            event("counts of values", self.counts, TABLES),
            event("sums of gradients per node and bin", self.sums, levels),
        )


@dataclass(frozen=True)
class SumNoise:
    """The sigmas of the noise on the sums over all participants: of counts, and of g and h in their own units."""

    counts: float
    g: float
    h: float

    @staticmethod
    def of(config: TrainingConfig, columns: int) -> SumNoise | None:
        """The noise of a job with this number of columns; None if it has none."""
        if options_of(config).epsilon == 0:
            return None
        distances = Distances.of(config)
        summed = columns if config.colsample_bytree >= 1.0 else max(1, int(config.colsample_bytree * columns))
        a = distances.sums**2 / summed / max(2.0 + 2.0 * HESSIAN_SHARE, 4.0 + HESSIAN_SHARE)
        g_limit, h_limit = objective_of("binary", config, 2).bounds(1.0, np.zeros((1, 1)), np.zeros((1, 1)))
        return SumNoise(
            counts=math.sqrt(2.0 * columns) / distances.counts,
            g=g_limit / math.sqrt(a),
            h=h_limit / math.sqrt(a * HESSIAN_SHARE),
        )

    def part(self, config: TrainingConfig, participants: int) -> SumNoise:
        """The noise that each participant adds."""
        left = least_roster(config, participants)
        others = left - options_of(config).colluding
        if others < 1:
            raise InvalidParameter(
                f"colluding is {options_of(config).colluding}, and the job has {left} participants at least",
                "set colluding below the number of participants that are left with all dropouts",
            )
        root = math.sqrt(others)
        return SumNoise(self.counts / root, self.g / root, self.h / root)

    def safe_weight(self, bins: int) -> float:
        """The least hessian of a child: sums below are mostly noise, which would decide the split."""
        return SAFE_SIGMAS * self.h * math.sqrt(bins)

    def add_to_sums(self, generator: Generator, sums: Int64Array, scale: Scale) -> Int64Array:
        """Add noise to sums (..., 2) on this grid."""
        noisy = sums.copy()
        for place, sigma in enumerate((self.g / scale.g_unit, self.h / scale.h_unit)):
            noisy[..., place] += _integers(generator, sigma, noisy[..., place].shape)
        return noisy

    def add_to_cells(self, generator: Generator, below: UInt64Array) -> UInt64Array:
        """Return noisy counts of the cells between values; `below` are counts up to each value (columns, values)."""
        cells = np.diff(below.astype(np.int64), axis=1, prepend=0)
        return (cells + _integers(generator, self.counts, cells.shape)).view(np.uint64)


@cache
def _largest_distance(epsilon: float, delta: float) -> float:
    """The largest Mahalanobis distance whose Renyi divergences give at most this epsilon."""

    def too_far(distance: float) -> bool:
        event = Gaussian(distance, what="", adjacency=Adjacency.RECORD, adversary="", protocol="", release="")
        return compose([event], delta, convolve=False).renyi > epsilon

    # The exact epsilon of a Gaussian is never above that of its Renyi divergences.
    return math.nextafter(bisect(too_far, 0.0, 1.0 / gaussian_sigma(epsilon, delta)), 0.0)


def _integers(generator: Generator, sigma: float, shape: tuple[int, ...]) -> Int64Array:
    return discrete_gaussian(generator, max(sigma, LEAST_SIGMA), math.prod(shape)).reshape(shape)


# --- cut points from noisy counts, at the server ---------------------------------------------------------------------


def cuts_by_noisy_counts(columns: int, bins: int, count: Callable[[UInt32Array], Int64Array]) -> Sequence[Float32Array]:
    """The cut points of all columns, searched in parallel.

    `count` takes values (columns, values), as integers in the order of float32 values, and returns the noisy number of
    values up to each, not counting those up to the value before.
    """
    searches = [search_cuts(bins) for _ in range(columns)]
    asked = [next(search) for search in searches]
    while columns:
        keys = [_edges(*each) for each in asked]
        values = np.full((columns, max(map(len, keys))), _TOP, dtype=np.uint32)
        for row, own in zip(values, keys, strict=True):
            row[: len(own)] = own
        found, ends = count(values), list[Float32Array]()
        for at, (search, (first, width)) in enumerate(zip(searches, asked, strict=True)):
            try:
                asked[at] = search.send(found[at, np.searchsorted(keys[at], _last(first + width))])
            except StopIteration as end:  # all searches take the same number of tables
                ends.append(end.value)
        if ends:
            return ends
    return []


def _edges(first: Int64Array, width: int) -> Int64Array:
    """The last value before each range of cells, and the last value in it."""
    edges = np.unique(np.concatenate((_last(first), _last(first + width))))
    return edges[edges >= 0]


def _last(cell: Int64Array) -> Int64Array:
    """The last value before a cell."""
    return (cell << (32 - LEVELS)) - 1
