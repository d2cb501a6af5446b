"""Parties that deviate: what the other side notices, and what it does not."""

from __future__ import annotations

import pytest

from support import make_columns, make_labels, split_among
from veilboost.audit.experiments import deviating_masks, reverse_sum
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable

CONFIG = TrainingConfig(n_estimators=3, max_bin=8, max_depth=2, categories="onehot")


def tables() -> dict[str, PartyTable]:
    columns = make_columns(2, 120, 6)
    return split_among(columns, make_labels(2, columns), 2)


@pytest.mark.parametrize("protocol", ["plain", "lattice"])
def test_chosen_gradients_spell_every_bin(protocol: str) -> None:
    outcome = reverse_sum(tables(), "p0", "p1", protocol, CONFIG)
    assert outcome.value == 1.0
    assert outcome.sentence.startswith("120 of 120 rows")


@pytest.mark.parametrize(("kind", "vectors"), [("zero", 1), ("small", 1), ("zero", 3), ("dependent", 3)])
def test_masks_that_hide_nothing_are_refused_before_gradients_leave(kind: str, vectors: int) -> None:
    config = TrainingConfig(
        n_estimators=1, max_bin=8, categories="onehot", options={"noise_vectors": vectors, "sigma1": 1.0, "sigma2": 1.0}
    )
    found = deviating_masks(tables(), "p0", config, kind)
    assert found.stopped is not None
    assert found.outcome is None


@pytest.mark.parametrize("vectors", [1, 3])
def test_masks_on_single_rows_are_not_noticed_and_show_all_others(vectors: int) -> None:
    config = TrainingConfig(
        n_estimators=1, max_bin=8, categories="onehot", options={"noise_vectors": vectors, "sigma1": 1.0, "sigma2": 1.0}
    )
    found = deviating_masks(tables(), "p0", config, "one row")
    assert found.stopped is None
    assert found.outcome is not None
    assert found.outcome.value == 1.0
