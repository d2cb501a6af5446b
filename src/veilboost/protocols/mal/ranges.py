"""From ranges to buckets: the same at every participant and at the server (MAL Alg. 1, lines 9 to 14)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.boost.cuts import equal_width
from veilboost.protocols.horizontal.schema import Schema
from veilboost.protocols.horizontal.whole import category_cuts
from veilboost.types import Float32Array, Float64Array


def numeric_columns(schema: Schema) -> list[int]:
    """Those that have a lowest and a highest value; categories have one bucket each instead."""
    return [at for at, info in enumerate(schema.columns) if info.categories is None]


def cuts_of(schema: Schema, low: Float64Array, high: Float64Array, buckets: int) -> Sequence[Float32Array]:
    """Cuts of all columns; a numeric column without any value (its low is NaN) has none."""
    cuts: list[Float32Array] = []
    place = 0
    for info in schema.columns:
        if info.categories is not None:
            cuts.append(category_cuts(info))
            continue
        known = not np.isnan(low[place])
        cuts.append(
            equal_width(float(low[place]), float(high[place]), buckets) if known else np.empty(0, dtype=np.float32)
        )
        place += 1
    return cuts
