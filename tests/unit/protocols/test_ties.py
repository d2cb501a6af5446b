"""Where handles are shuffled, the active party names all that tie and their owner takes its first: the same model."""

from __future__ import annotations

import dataclasses

import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.protocols.plain.active import PlainCipher
from veilboost.protocols.vertical.messages import SplitRequest
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("categories", ["sets", "onehot"])
def test_owners_pick_the_first_of_tied_candidates(monkeypatch, categories):
    columns = make_columns(31, rows=120, numeric=5, categorical=2, distinct=9, missing=0.1)
    columns += [dataclasses.replace(column, name=f"same_as_{column.name}") for column in columns[2:]]
    tables = split_among(columns, make_labels(31, columns), 2)
    config = TrainingConfig(objective="binary", n_estimators=6, max_depth=4, categories=categories)
    expected = sha(train(tables, config))

    tied = []

    class Listening(MemoryChannel):
        def send(self, message):
            if isinstance(message, SplitRequest):
                tied.append(len(message.handles) - len(message.node))
            return super().send(message)

    monkeypatch.setattr(PlainCipher, "shuffled", True)
    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    assert sha(train(tables, config)) == expected
    assert sum(tied) >= 3, "the data ties"
