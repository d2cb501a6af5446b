"""Deliberately broken twins of `secagg` with noise: each has too little of it.

A twin is a function of a `pytest.MonkeyPatch`. `bench/lower_bound.py` measures the same ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from veilboost.fixedpoint import Scale
from veilboost.protocols.secagg.noise import SumNoise


def divided_by_participants(patch: pytest.MonkeyPatch) -> None:
    """Each of n participants adds noise of sigma / n instead of sigma / sqrt(n - colluding)."""

    def part(self: SumNoise, config: Any, participants: int) -> SumNoise:
        return SumNoise(self.counts / participants, self.g / participants, self.h / participants)

    patch.setattr(SumNoise, "part", part)


def wrong_unit(patch: pytest.MonkeyPatch) -> None:
    """Noise is in units of gradients instead of those of the grid."""
    add = SumNoise.add_to_sums
    patch.setattr(SumNoise, "add_to_sums", lambda self, generator, sums, scale: add(self, generator, sums, Scale(0, 0)))
