"""Parties that deviate: what the other side notices, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deviations import LEFT_OUT, deviating_masks, reverse_sum, shrunk_coefficients
from support import make_columns, make_labels, split_among
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.protocols.masked.active import most_nearly_bare

CONFIG = TrainingConfig(n_estimators=3, max_bin=8, max_depth=2, categories="onehot")


def tables(rows: int = 120) -> dict[str, PartyTable]:
    columns = make_columns(2, rows, 6)
    return split_among(columns, make_labels(2, columns), 2)


@pytest.mark.parametrize("protocol", ["plain", "lattice"])
def test_chosen_gradients_spell_every_bin(protocol: str) -> None:
    wide = replace(CONFIG, gradient_bits=20)  # bits that chosen gradients can spell
    outcome = reverse_sum(tables(), "p0", "p1", protocol, wide)
    assert outcome.value == 1.0
    assert outcome.sentence.startswith("120 of 120 rows")


def by_hand(vectors: int, **options: float) -> TrainingConfig:
    chosen = {"noise_vectors": vectors, "sigma1": 1.0, "sigma2": 1.0} | options
    return TrainingConfig(n_estimators=1, max_bin=8, categories="onehot", options=chosen)


@pytest.mark.parametrize(
    ("kind", "vectors"),
    [("zero", 1), ("small", 1), ("on one row", 1), ("zero", 3), ("dependent", 3), ("on one row", 3)],
)
def test_masks_that_hide_nothing_are_refused_before_gradients_leave(kind: str, vectors: int) -> None:
    found = deviating_masks(tables(), "p0", by_hand(vectors), kind)
    assert found.refused is not None
    assert found.outcome is None


@pytest.mark.parametrize("vectors", [1, 3])
def test_masks_that_leave_out_a_few_rows_are_not_noticed_and_show_them(vectors: int) -> None:
    """As many rows stand nearly bare under an honest mask, by chance: what the check cannot see, it cannot refuse."""
    found = deviating_masks(tables(400), "p0", by_hand(vectors), "not on all rows")
    assert found.refused is None
    assert found.outcome is not None
    assert found.outcome.value == 1.0
    assert found.outcome.sentence.startswith(f"{400 // LEFT_OUT} of 400 rows")


def test_honest_masks_leave_fewer_rows_nearly_bare_than_is_refused() -> None:
    rng = np.random.default_rng(1)
    for rows in (50, 100, 1000, 10_000):
        bare = np.count_nonzero(np.abs(rng.normal(size=(300, rows))) < 0.1, axis=1)
        assert bare.max() < most_nearly_bare(rows) < rows
    assert most_nearly_bare(20) == 20  # of so few rows nothing is sure
    assert most_nearly_bare(100_000) < 0.1 * 100_000


def test_short_coefficients_are_there_to_be_seen() -> None:
    """Nobody looks in the protocol, but whoever made the masks takes them off and has the coefficients."""
    found = shrunk_coefficients(tables(), "p0", by_hand(3, sigma1=2.0), 0.1)
    assert found.refused is None
    assert found.outcome is not None
    assert found.outcome.baseline < 0.1
    assert found.outcome.value > 0.9
