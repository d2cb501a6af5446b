"""Solvers of scipy, with types."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilboost.types import Float64Array


def nearest_pairs(gap: Float64Array) -> list[tuple[int, int]]:
    """Each row with a column of its own, so that the sum of what they are apart is least."""
    from scipy import optimize  # pyright: ignore[reportMissingTypeStubs]

    solver: Any = optimize
    rows, columns = solver.linear_sum_assignment(gap)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def between(
    towards: Float64Array, a: Float64Array, known: Float64Array, highest: Float64Array
) -> Float64Array | None:
    """Of all x with a x = known and 0 <= x <= highest one furthest in a direction; None where there is none."""
    from scipy import optimize  # pyright: ignore[reportMissingTypeStubs]

    solver: Any = optimize
    bounds = np.stack([np.zeros_like(highest), highest], axis=1)
    found = solver.linprog(-towards, A_eq=a, b_eq=known, bounds=bounds, method="highs")
    return np.asarray(found.x, dtype=np.float64) if found.status == 0 else None
