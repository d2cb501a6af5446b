"""Are these masks? The active party looks before it puts its gradients under them.

The paper says that a passive party that deviates harms only itself (appendix G). Not so: under masks of zeros the
gradients would travel in the clear.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.protocols.masked.parameters import REFUSED_ONCE_IN, Noise
from veilboost.types import Float32Array, Float64Array, PartyName

_NEARLY_BARE = 0.1  # of the noise that a row should have at least
_DEPENDENT = 1e-12  # of the largest eigenvalue: float32 vectors that are multiples of each other lie below


def check_masks(name: PartyName, grams: Float64Array, rows: int, noise: Noise) -> None:
    """Refuse masks that are not numbers, too small or dependent; `grams` (candidates, W, W) has their products."""
    if not np.isfinite(grams).all():
        raise MalformedMessage(f"{name} sent a mask that is not a finite number")
    if noise.off:
        return
    lengths = np.diagonal(grams, axis1=1, axis2=2)
    if float(lengths.min()) < noise.least_norm(rows):
        raise MalformedMessage(
            f"{name} sent masks that are smaller than what was agreed on, and gradients would show under them",
            "stop the job and ask that party; its masks do not follow the protocol",
        )
    if noise.vectors > 1:
        spread = np.linalg.eigvalsh(grams)
        if (spread[:, -min(noise.vectors, rows)] <= _DEPENDENT * spread[:, -1]).any():
            raise MalformedMessage(
                f"{name} sent noise vectors that are multiples of each other",
                "stop the job and ask that party; its masks do not follow the protocol",
            )


def check_cover(name: PartyName, masks: Float32Array, noise: Noise) -> None:
    """Refuse masks (candidates, W, rows) that leave too many rows nearly bare.

    Every entry of an honest mask is normal with the same deviation, so few are small, and of entries that do not depend
    on each other hardly ever many. A mask that lies on a few rows alone has all the length that `check_masks` asks for.
    """
    rows = masks.shape[2]
    most = most_nearly_bare(rows)
    if noise.off or most >= rows:
        return
    bare = np.count_nonzero(np.abs(masks) < _NEARLY_BARE * noise.least_deviation(rows), axis=2)
    if int(bare.max(initial=0)) > most:
        raise MalformedMessage(
            f"{name} sent masks that leave {int(bare.max())} of {rows} rows nearly bare, and gradients would show",
            "stop the job and ask that party; its masks do not follow the protocol",
        )


@cache
def most_nearly_bare(rows: int) -> int:
    """More entries of an honest mask are not that small, but for one mask in 10^15.

    An entry depends on its two neighbours on a circle, so a bound for independent ones holds for half as many (Janson
    2004): P(more than a share q) <= exp(-n/2 KL(q, p)).
    """
    chance = math.erf(_NEARLY_BARE / math.sqrt(2.0))
    needed = -math.log(REFUSED_ONCE_IN) / max((rows - 1) / 2.0, 1.0)
    low, high = chance, 1.0
    for _ in range(40):
        middle = (low + high) / 2.0
        distance = middle * math.log(middle / chance) + (1.0 - middle) * math.log((1.0 - middle) / (1.0 - chance))
        low, high = (middle, high) if distance < needed else (low, middle)
    return math.ceil(rows * high)
