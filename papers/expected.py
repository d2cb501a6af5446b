"""About how long a training takes: seconds per tree of depth 6 on one core of a 2.5 GHz Xeon, by rows and columns.

Good enough to tell minutes from hours before a run starts. `veilboost plan` knows better, after calibration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

START = 3.0  # a process of its own: imports and the table
_PER_ROW = {
    "plain": 1e-6,
    "federboost": 1.2e-6,
    "ldp": 3e-6,
    "masked-law": 4e-6,
    "lattice": 1e-5,
    "smm1": 2e-5,
    "smm2": 4e-5,
}
_PAILLIER = {512: 9e-5, 1024: 2.5e-4, 2048: 8e-4, 3072: 2.2e-3}
_MASKED = 3e-6  # per row, passive column and noise vector


def training_seconds(
    protocol: str, rows: int, passive_columns: int, trees: int, options: Mapping[str, Any] | None = None
) -> float:
    """Of all trees, without what a process needs to start."""
    own = options or {}
    if protocol == "masked":
        each = _MASKED * passive_columns * int(own.get("noise_vectors") or 1)
    elif protocol == "paillier":
        each = _PAILLIER[int(own.get("key_bits", 2048))]
    else:
        each = _PER_ROW[protocol]
    return trees * (0.01 + rows * each)
