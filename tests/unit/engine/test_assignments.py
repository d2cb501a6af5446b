"""Left/right bits cross in pieces, and lie in shards where the rows do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import make_columns, make_labels, sha, split_among, train
from veilboost.audit.replay import rounds
from veilboost.audit.sources import views_of_simulation
from veilboost.boost import rows as boost_sides
from veilboost.boost.rows import ReceivedAssignments, RowGroups
from veilboost.config import TrainingConfig
from veilboost.engine import rows as engine_rows
from veilboost.engine.pool import Pool
from veilboost.engine.sharded import ShardedEngine
from veilboost.engine.shards import ShardedNumbers, Shards
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.party import simulation
from veilboost.protocols.vertical.messages import (
    AssignmentsRequest,
    MoreAssignments,
    SplitAnswer,
    SplitRequest,
    StatisticsRequest,
)
from veilboost.wire.channel import MemoryChannel

ROWS = 173
NO_BITS = np.empty(0, dtype=np.uint8)


@pytest.fixture
def short_pieces(monkeypatch):
    for module in (boost_sides, engine_rows):
        monkeypatch.setattr(module, "ASSIGNMENTS_AT_ONCE", 16)


def scene():
    columns = make_columns(5, ROWS, numeric=4, categorical=1, missing=0.1)
    tables = split_among(columns, make_labels(5, columns, "binary"), 3)
    return tables, TrainingConfig(n_estimators=2, max_depth=3, max_bin=8, categories="onehot")


def engine(count):
    return {} if count is None else {"engine": ShardedEngine(Pool(), count, "ray")}


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("protocol", ["plain", "lattice"])
def test_many_rows_are_told_in_pieces(request, protocol, count):
    tables, config = scene()
    held_out = np.arange(ROWS) % 4 == 1
    expected = train(tables, config, protocol, held_out=held_out)
    request.getfixturevalue("short_pieces")
    run = train(tables, config, protocol, held_out=held_out, record="payload", **engine(count))
    assert sha(run) == sha(expected)
    sent = [message for _, _, message in run.transcripts["p0"].messages]
    assert {"MoreAssignments", "AssignmentsRequest"} <= {message.type_name() for message in sent}
    for message in sent:
        if isinstance(message, MoreAssignments | StatisticsRequest | SplitAnswer):
            assert len(message.fit_left) <= 2
            assert len(message.routed_left) <= 2


def test_an_audit_reads_pieces_as_it_reads_the_whole(request):
    tables, config = scene()

    def levels(run):
        views, _ = views_of_simulation(run, tables)
        found = rounds(views["p0"], "p1")
        return [[(level.fit.listed().tolist(), level.fit.counts.tolist()) for level in one.levels] for one in found]

    expected = levels(train(tables, config, record="payload"))
    request.getfixturevalue("short_pieces")
    assert levels(train(tables, config, record="payload")) == expected
    assert sum(map(len, expected)) > 2


@pytest.mark.parametrize("count", [None, 2])
def test_pieces_that_do_not_fit_are_refused_and_change_nothing(monkeypatch, short_pieces, count):
    refused = []

    class Meddling(MemoryChannel):
        def send(self, message):
            wrong: list[tuple[object, type[Exception]]] = []
            if isinstance(message, MoreAssignments):
                other = (message.split + 1).astype(np.int32)
                wrong = [
                    (dataclasses.replace(message, fit_left=message.fit_left[1:]), MalformedMessage),
                    (dataclasses.replace(message, split=other), MalformedMessage),
                    (dataclasses.replace(message, depth=message.depth + 1), UnexpectedMessage),
                    (MoreAssignments(message.depth, message.split, NO_BITS, NO_BITS), MalformedMessage),
                ]
            if isinstance(message, StatisticsRequest) and len(message.fit_left):
                more = np.concatenate((message.fit_left, message.fit_left))
                wrong = [
                    (dataclasses.replace(message, fit_left=message.fit_left[1:]), MalformedMessage),
                    (dataclasses.replace(message, fit_left=more), MalformedMessage),
                ]
            if isinstance(message, AssignmentsRequest):
                wrong = [(AssignmentsRequest(message.depth + 1), UnexpectedMessage)]
            for each, error in wrong:
                with pytest.raises(error):
                    self._handler(each)
                refused.append(type(each).__name__)
            if isinstance(message, SplitRequest):  # a second one, for other nodes of the same level
                answer = super().send(message)
                other = dataclasses.replace(message, position=message.position + np.int32(1), node=message.node + 1)
                with pytest.raises(UnexpectedMessage, match="was already split here"):
                    self._handler(other)
                refused.append("SplitRequest")
                return answer
            if isinstance(message, StatisticsRequest):  # nothing was split yet
                super_answer = super().send(message)
                with pytest.raises(UnexpectedMessage):
                    self._handler(AssignmentsRequest(message.depth))
                return super_answer
            return super().send(message)

    tables, config = scene()
    expected = sha(train(tables, config))
    monkeypatch.setattr(simulation, "MemoryChannel", Meddling)
    assert sha(train(tables, config, **engine(count))) == expected
    assert set(refused) == {"MoreAssignments", "StatisticsRequest", "SplitRequest", "AssignmentsRequest"}


def test_missing_assignments_are_refused():
    receiver = ReceivedAssignments(20)
    with pytest.raises(MalformedMessage, match="are missing"):
        receiver.whole()
    assert receiver.plus(np.packbits(np.ones(20, np.uint8))).whole().tolist() == [1] * 20
    assert not receiver.complete, "a receiver never changes"
    assert ReceivedAssignments(0).plus(np.empty(0, np.uint8)).whole().tolist() == []


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60), st.integers(1, 9), st.integers(0, 2**16), st.integers(1, 3), st.sampled_from([8, 16, 1 << 21])
)
def test_rows_in_shards_say_the_same(rows, count, seed, splits, at_once):
    """Split, take, merge, send and receive: the same results as with rows in one place, whatever the shards."""
    rng = np.random.default_rng(seed)
    cut = Shards.of(Pool(), rows, count)
    with pytest.MonkeyPatch.context() as patch:
        for module in (boost_sides, engine_rows):
            patch.setattr(module, "ASSIGNMENTS_AT_ONCE", at_once)
        here, there = RowGroups.root(np.arange(rows, dtype=np.int32), 1), ShardedNumbers.every(cut).at_roots(1)
        for _ in range(splits):
            left = rng.integers(2, size=here.size).astype(np.uint8)
            here, there = here.split(left), there.split(left)
        assert there.listed().tolist() == here.listed().tolist()
        left = rng.integers(2, size=here.size).astype(np.uint8)
        chosen = rng.integers(2, size=here.nodes).astype(np.bool_)
        for groups in (here, there):
            parts = [(mask, groups.take(mask, left)) for mask in (chosen, ~chosen)]
            merged = groups.merged(parts)
            assert np.asarray(merged).tolist() == left.tolist()
            assert [np.asarray(part).tolist() for _, part in parts] == [
                left[mask.repeat(here.counts)].tolist() for mask in (chosen, ~chosen)
            ]
            pieces = list(groups.packed_pieces(merged))
            assert [piece.tolist() for piece in pieces] == [piece.tolist() for piece in here.packed_pieces(left)]
            receiver = groups.receiver(np.arange(groups.nodes))
            for piece in pieces:
                assert groups.size == 0 or not receiver.complete
                receiver = receiver.plus(piece)
            assert receiver.complete
            assert np.asarray(receiver.whole()).tolist() == left.tolist()
            assert groups.split(receiver.whole()).listed().tolist() == here.split(left).listed().tolist()
