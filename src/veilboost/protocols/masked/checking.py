"""Are these masks? The active party looks before it puts its gradients under them.

The paper says that a passive party that deviates harms only itself (appendix G). Not so: under masks of zeros the
gradients would travel in the clear.
"""

from __future__ import annotations

import numpy as np

from veilboost.errors import MalformedMessage
from veilboost.protocols.masked.parameters import Noise
from veilboost.types import Float64Array, PartyName

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
