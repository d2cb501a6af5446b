"""The parameters of `smm2`."""

from __future__ import annotations

from dataclasses import dataclass

from veilboost.config import param
from veilboost.protocols.vertical.kernels import KernelOptions

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
