"""How noisy sums become candidates: the usual gain, or the first-order score."""

from __future__ import annotations

import numpy as np

from veilboost.boost.bins import KIND_CODES, BinLayout
from veilboost.boost.split import Candidates, candidates_from_sums
from veilboost.config import TrainingConfig
from veilboost.fixedpoint import Scale
from veilboost.protocols.ldp.options import LdpOptions
from veilboost.types import ColumnKind, Float64Array, Int64Array


def score(
    sums: Int64Array, layout: BinLayout, totals: Int64Array, scale: Scale, config: TrainingConfig, threads: int
) -> Candidates:
    """The best candidate of each node from noisy bin sums (nodes, slots, 2) and node totals (nodes, 2).

    With totals that are sums of the same noisy values, the right-hand sum is that of the rows on the right and its
    noise is independent of the left one's: the condition of FedXGBoost's appendix A. With exact totals, as in
    Algorithm 6, line 8, the right-hand noise is minus the left-hand one, and the product gains +Var(G_L)/lambda.
    """
    if LdpOptions.from_dict(config.options).score == "second":
        # A side whose noisy hessians sum to less than they should is no candidate.
        return candidates_from_sums(sums, layout, totals, scale, config, threads)
    gain = first_order(sums, layout, totals, scale, config)
    handle = gain.argmax(axis=1) if layout.slots else np.zeros(len(sums), dtype=np.int64)
    best = gain.max(axis=1, initial=-np.inf)
    return Candidates(handle.astype(np.int32), best)


def first_order(
    sums: Int64Array, layout: BinLayout, totals: Int64Array, scale: Scale, config: TrainingConfig
) -> Float64Array:
    """FedXGBoost eq. (12): -G_L G_R / lambda of every handle, minus infinity where a side has too few rows."""
    g, count = sums[..., 0] * scale.g_unit, sums[..., 1] * scale.h_unit
    all_g, all_count = totals[:, :1] * scale.g_unit, totals[:, 1:] * scale.h_unit
    gain = np.full((len(sums), layout.slots, 2), -np.inf)
    least = max(config.min_child_weight, 1.0)
    for feature, (start, end) in enumerate(zip(layout.offsets[:-1].tolist(), layout.offsets[1:].tolist(), strict=True)):
        values = slice(start, end - int(layout.missing[feature]))
        left_g, left_count = g[:, values], count[:, values]
        if layout.kind[feature] == KIND_CODES[ColumnKind.NUMERIC]:
            left_g, left_count = left_g.cumsum(axis=1), left_count.cumsum(axis=1)
        for direction in range(1 + int(layout.missing[feature])):
            if direction:  # missing values go left
                left_g, left_count = left_g + g[:, end - 1 : end], left_count + count[:, end - 1 : end]
            fits = (left_count >= least) & (all_count - left_count >= least)
            product = -left_g * (all_g - left_g) / config.reg_lambda
            gain[:, values, direction] = np.where(fits, product, -np.inf)
    return gain.reshape(len(sums), 2 * layout.slots)
