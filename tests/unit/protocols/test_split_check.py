"""A split that does not add up to the sums by which it was chosen stops the job, in every protocol that knows sums."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.bins import BinLayout, Sets
from veilboost.boost.split import left_sums
from veilboost.config import TrainingConfig
from veilboost.errors import InconsistentSplit
from veilboost.protocols.plain.messages import PlainSums
from veilboost.protocols.sealed.passive import SealedPassiveCipher
from veilboost.protocols.vertical.messages import SplitAnswer
from veilboost.types import ColumnKind
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast

OPTIONS = {"sealed": {"eps": 50.0, "least_rows": 5}, "elxgb": {"backend": "lattice"}}


def scene(protocol: str, **parameters):
    columns = make_columns(5, 200, numeric=4, categorical=0 if protocol == "sealed" else 2, missing=0.1)
    values = {"objective": "binary", "n_estimators": 2, "max_depth": 3, "max_bin": 8, "min_child_weight": 0.0}
    config = TrainingConfig(**values | {"options": OPTIONS.get(protocol, {})} | parameters)
    return split_among(columns, make_labels(5, columns), 2), config


def altered(change, kind):
    """A channel whose peer changes its answers of a kind."""

    class Cheating(MemoryChannel):
        def send(self, message):
            pending = super().send(message)
            return lambda: change(answer) if isinstance(answer := pending(), kind) else answer

    return Cheating


def one_row_swapped(answer: SplitAnswer) -> SplitAnswer:
    """The first row that is told goes to the other side."""
    bits = answer.fit_left.copy()
    bits[:1] ^= np.uint8(128)
    return dataclasses.replace(answer, fit_left=bits)


@pytest.mark.parametrize("protocol", ["plain", "lattice", "paillier", "smm1", "elxgb", "sealed"])
def test_a_row_on_the_wrong_side_is_found(protocol, monkeypatch):
    tables, config = scene(protocol)
    monkeypatch.setattr(simulation_module, "MemoryChannel", altered(one_row_swapped, SplitAnswer))
    with pytest.raises(InconsistentSplit, match="p1"):
        train(tables, config, protocol)


def test_sums_that_favour_a_cut_are_found_when_it_wins(monkeypatch):
    """What column 0 loses in its first bin it gains in the second: every column still adds up to the node."""

    def favoured(answer: PlainSums) -> PlainSums:
        sums = answer.sums.copy()
        sums[:, 0, 0] += 1 << 26
        sums[:, 1, 0] -= 1 << 26
        return PlainSums(sums)

    tables, config = scene("plain")
    monkeypatch.setattr(simulation_module, "MemoryChannel", altered(favoured, PlainSums))
    with pytest.raises(InconsistentSplit, match="VB-1411: p1"):
        train(tables, config, "plain")


@pytest.mark.parametrize("eps_features", [0.0, 20.0])
def test_a_passive_party_that_multiplies_in_sealed_is_found_when_it_wins(eps_features, monkeypatch):
    """The review's attack: a target row counts 2^14 times in one bin, and as often less in the next."""
    honest = SealedPassiveCipher.noise

    def multiplied(self, asked, state):
        added, shape = honest(self, asked, state), (asked.answers, 2, state.block.layout.slots)
        added = np.zeros(shape, dtype=np.int64) if added is None else added
        added[:, 0, 0] += 1 << 34
        added[:, 0, 1] -= 1 << 34
        return added

    options = {"eps": 1000.0, "least_rows": 5, "eps_features": eps_features, "layout": "runs"}
    tables, config = scene("sealed", options=options)
    monkeypatch.setattr(SealedPassiveCipher, "noise", multiplied)
    with pytest.raises(InconsistentSplit, match="p1"):
        train(tables, config, "sealed")


@pytest.mark.parametrize("protocol", ["lattice", "paillier", "smm1"])
def test_ties_and_sets_of_categories_pass(protocol):
    """Columns that repeat tie at every node, and the owner takes the first of them."""
    columns = make_columns(7, 200, numeric=2, categorical=2, missing=0.2)
    twins = [*columns, *(dataclasses.replace(column, name=f"{column.name} again") for column in columns)]
    tables = split_among(twins, make_labels(7, columns), 2)
    config = TrainingConfig(
        objective="binary", n_estimators=2, max_depth=4, max_bin=6, categories="sets", options=OPTIONS.get(protocol, {})
    )
    assert sha(train(tables, config, protocol)) == sha(train(tables, config))


def test_left_sums_by_hand():
    kinds = [ColumnKind.NUMERIC, ColumnKind.ONEHOT, ColumnKind.SETS]
    layout = BinLayout.of([3, 2, 3], [True, False, True], kinds)
    sums = (np.arange(layout.slots)[None, :, None] * np.array([1, 100]) + np.array([[[0]], [[1000]]])).astype(np.int64)
    # Slots: numeric 0 1 2 (3 missing), one-hot 4 5, sets 6 7 8 (9 missing).
    handles = np.array([2 * 1, 2 * 1 + 1, 2 * 5, 2 * 7, 2 * 7 + 1], dtype=np.int32)
    sets = Sets(np.array([0, 0, 0, 0, 2, 4], dtype=np.int32), np.array([0, 2, 0, 2], dtype=np.int32))
    found, bins = left_sums(sums, layout, np.zeros(5, dtype=np.int64), handles, sets)
    assert found[:, 0].tolist() == [0 + 1, 0 + 1 + 3, 5, 6 + 8, 6 + 8 + 9]
    assert bins.tolist() == [2, 3, 1, 2, 3]
    other, _ = left_sums(sums, layout, np.ones(1, dtype=np.int64), handles[:1])
    assert other.tolist() == [[2001, 2100]]
