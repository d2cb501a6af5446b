"""Where a numeric feature may be cut. A value x goes left of cut c when x < c, in float32, as in XGBoost."""

from __future__ import annotations

import numpy as np

from veilboost.types import Float32Array, Float64Array

ABOVE_ALL = np.float32(np.finfo(np.float32).max)  # the cut that sends every present value left


def propose_cuts(values: Float32Array, weights: Float64Array | None, max_bin: int, binning: str) -> Float32Array:
    """At most `max_bin - 1` increasing cuts for one feature; missing values (NaN) do not count."""
    present = ~np.isnan(values)
    if not present.all():
        values = values[present]
        weights = None if weights is None else weights[present]
    if len(values) == 0:
        return np.empty(0, dtype=np.float32)
    if binning == "width":
        return _equal_width(values, max_bin)
    return _quantiles(values, weights, max_bin)


def _equal_width(values: Float32Array, max_bin: int) -> Float32Array:
    low, high = float(values.min()), float(values.max())
    edges = low + (high - low) * np.arange(1, max_bin) / max_bin
    cuts = np.unique(edges.astype(np.float32))
    return cuts[cuts > np.float32(low)]


def _quantiles(values: Float32Array, weights: Float64Array | None, max_bin: int) -> Float32Array:
    if weights is None:
        values = np.sort(values)
        starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
        distinct, mass = values[starts], np.diff(np.append(starts, len(values))).astype(np.float64)
    else:
        order = np.argsort(values, kind="stable")
        values = values[order]
        starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
        distinct, mass = values[starts], np.add.reduceat(weights[order], starts)
    first_of_bin = _first_of_each_bin(mass, max_bin)
    return between(distinct[first_of_bin - 1], distinct[first_of_bin])


def _first_of_each_bin(mass: Float64Array, max_bin: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions (beside 0) at which a new bin starts, so that bins hold about equal mass.

    A value heavier than a fair share takes a bin of its own, and what remains is shared anew among the rest:
    otherwise one heavy value would swallow several quantiles and leave fewer bins than were asked for.
    """
    count = len(mass)
    if count <= max_bin:
        return np.arange(1, count)
    heavy = np.zeros(count, dtype=np.bool_)
    while True:
        bins_left = max_bin - int(heavy.sum())
        if bins_left < 1:
            break
        more = (mass >= mass[~heavy].sum() / bins_left) & ~heavy
        if not more.any():
            break
        heavy |= more
    # Every heavy value counts one whole share, the light ones their part of a share.
    light_mass = float(mass[~heavy].sum())
    light_bins = max(max_bin - int(heavy.sum()), 1)
    share = np.where(heavy, 1.0, mass * (light_bins / light_mass if light_mass > 0 else 0.0))
    reached = np.concatenate(([0.0], np.cumsum(share)[:-1]))  # shares used up before each value
    bin_of = np.floor(reached + 1e-9)
    starts = np.flatnonzero(np.concatenate(([False], bin_of[1:] != bin_of[:-1])))
    return starts[: max_bin - 1]


def between(low: Float32Array, high: Float32Array) -> Float32Array:
    """A float32 in (low, high], the midpoint where there is room: no party's cut need be anybody's value."""
    middle = (low.astype(np.float64) + high.astype(np.float64)) / 2
    cut = middle.astype(np.float32)
    return np.where(cut > low, cut, high).astype(np.float32)
