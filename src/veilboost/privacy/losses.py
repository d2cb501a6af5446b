"""Distributions of privacy losses, convolved: the typed face of `dp_accounting`, loaded only when it is needed.

The distributions are composed by hand. The library's own event accountants know no Gaussian beside randomized response,
and where a record is replaced they double a Gaussian's sensitivity, which our events state already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

_INTERVAL = 1e-4  # the grid of losses; coarser where they are so many that a finer one would not fit
_CELLS = 8e6


def convolved_epsilon(
    mahalanobis: float, laplaces: Sequence[tuple[float, int]], pures: Sequence[tuple[float, int]], delta: float
) -> float:
    """Epsilon at `delta` of a Gaussian (0: none) beside Laplace and other pure mechanisms: (epsilon, count) each."""
    from dp_accounting.pld import privacy_loss_distribution  # pyright: ignore[reportMissingTypeStubs]
    from dp_accounting.pld.common import DifferentialPrivacyParameters  # pyright: ignore[reportMissingTypeStubs]

    losses: Any = privacy_loss_distribution
    widest = math.fsum(epsilon * count for epsilon, count in (*laplaces, *pures))
    grid = {"value_discretization_interval": max(_INTERVAL, widest / _CELLS)}
    parts: list[Any] = []
    if mahalanobis > 0:
        parts.append(losses.from_gaussian_mechanism(1.0 / mahalanobis, **grid))
    for epsilon, count in laplaces:
        parts.append(losses.from_laplace_mechanism(1.0 / epsilon, **grid).self_compose(count))
    for epsilon, count in pures:  # no mechanism of pure epsilon is worse than the one of these two points
        two_points: Any = losses.from_privacy_parameters(DifferentialPrivacyParameters(epsilon, 0.0), **grid)
        parts.append(two_points.self_compose(count))
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return cast(float, whole.get_epsilon_for_delta(delta))
