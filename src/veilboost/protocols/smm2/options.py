"""The parameters of `smm2`, and which nodes both sides score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.fields import param
from veilboost.protocols.vertical.kernels import KernelOptions
from veilboost.types import Int64Array

DECOYS = ("random", "nested")


@dataclass(frozen=True)
class Smm2Options(KernelOptions):
    """How nodes are masked, and what a passive party hides its split columns among (Alg. 5, lines 6 to 8)."""

    l1: int = param(16, "decoy splits of a node, M' in Alg. 5", low=0, high=10_000)
    l2: int = param(32, "random real columns of a node, Y in Alg. 5", low=0, high=10_000)
    decoys: str = param(
        "random", "decoy splits: random bits as published, or nested steps of shuffled features", choices=DECOYS
    )

    def added(self, rows: int) -> tuple[int, int]:
        """Decoys and real columns of a node: at most an eighth of its rows each, so that there is room for splits."""
        return min(self.l1, rows // 8), min(self.l2, rows // 8)

    def columns(self, rows: int) -> int:
        """How many split columns may share kernel vectors, so that the null space is far larger than what is sent."""
        l1, l2 = self.added(rows)
        return max(1, min(rows // 2, rows - 1 - self.count(rows, 2)) - l1 - l2)


def scored_nodes(build: Int64Array, depth: int, config: TrainingConfig) -> Int64Array:
    """Positions, in order, of the nodes of a level whose gradients were masked and of those that follow.

    A sibling's sums are what its parent's leave, where both count by the same bins.
    """
    return np.union1d(build, build ^ 1) if depth and config.proposal == "global" else build
