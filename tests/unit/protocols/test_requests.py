"""What a passive party refuses of an active party that bends its requests."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, quick, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.errors import MalformedMessage
from veilboost.privacy.event import MemoryAccount
from veilboost.protocols.plain.spec import SPEC as PLAIN
from veilboost.protocols.registry import protocols_of
from veilboost.protocols.vertical.messages import BeginRound, BeginTraining, SplitRequest, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast

ROWS = 150
SUMMING = [name for name, spec in protocols_of("vertical").items() if name != "federboost"]


def scene(**changes):
    columns = make_columns(4, rows=ROWS, numeric=4)
    tables = split_among(columns, make_labels(4, columns, changes.get("objective", "binary")), 2)
    return tables, TrainingConfig.from_dict({"objective": "binary", "n_estimators": 2, "max_depth": 3} | changes)


def fewer_rows_refused(job, least):
    """The same job with another min_node_rows."""
    return dataclasses.replace(job, config=dataclasses.replace(job.config, min_node_rows=least))


def meddled(monkeypatch, protocol, config, tables, meddle):
    """Train, showing every request to `meddle(side, handler, message)` before it is sent; returns the model's hash."""

    class Meddling(MemoryChannel):
        def send(self, message):
            side = self._handler.__self__
            meddle(side, self._handler, message)
            return super().send(message)

    with monkeypatch.context() as patch:
        patch.setattr(simulation_module, "MemoryChannel", Meddling)
        return sha(train(tables, config, protocol, unsafe_noise_seed=0))


@pytest.mark.parametrize("protocol", SUMMING)
def test_nodes_named_twice_or_out_of_order_are_refused_and_leave_no_trace(protocol, monkeypatch):
    """400 copies of one node were 400 independent noises of the same sums."""
    tables, config = scene()
    tried = []

    def meddle(side, handler, message):
        if isinstance(message, StatisticsRequest):
            for build in (np.repeat(message.build[:1], 400), np.append(message.build, message.build[0])):
                with pytest.raises(MalformedMessage, match="named twice"):
                    handler(dataclasses.replace(message, build=build.astype(np.int32)))
                tried.append(message.depth)

    config = quick(config, protocol)
    expected = sha(train(tables, config, protocol, unsafe_noise_seed=0))
    assert meddled(monkeypatch, protocol, config, tables, meddle) == expected
    assert max(tried) > 0


@pytest.mark.parametrize("protocol", SUMMING)
def test_a_node_with_too_few_rows_is_not_summed(protocol, monkeypatch):
    tables, config = scene()
    tried = []

    def meddle(side, handler, message):
        if isinstance(message, StatisticsRequest):
            agreed = side._job
            side._job = fewer_rows_refused(agreed, ROWS + 1)
            if message.ahead:  # the active party cannot know the rows of all nodes
                assert isinstance(handler(message), Done)
            else:
                with pytest.raises(MalformedMessage, match="min_node_rows"):
                    handler(message)
            side._job = agreed
            tried.append(message.depth)

    config = quick(config, protocol)
    expected = sha(train(tables, config, protocol, unsafe_noise_seed=0))
    assert meddled(monkeypatch, protocol, config, tables, meddle) == expected
    assert max(tried) > 0


def test_the_sibling_of_a_node_with_too_few_rows_is_not_summed_either(monkeypatch):
    """Its sums and the parent's give those of the node."""
    tables, config = scene(max_depth=2)
    refused = []

    def meddle(side, handler, message):
        if isinstance(message, StatisticsRequest) and message.depth == 1:
            fit, _ = side._round.children(message)
            small, large = sorted(fit.counts.tolist())
            larger = np.array([int(fit.counts.argmax())], dtype=np.int32)
            agreed = side._job
            side._job = fewer_rows_refused(agreed, small + 1)
            assert large > small
            with pytest.raises(MalformedMessage, match="sibling"):
                handler(dataclasses.replace(message, build=larger))
            side._job = agreed
            refused.append(small)

    meddled(monkeypatch, "plain", config, tables, meddle)
    assert refused


@pytest.mark.parametrize("protocol", SUMMING)
def test_a_request_for_no_node_is_refused(protocol, monkeypatch):
    """A level that nobody sums would pass by min_node_rows."""
    tables, config = scene()
    tried = []

    def meddle(side, handler, message):
        if isinstance(message, StatisticsRequest):
            with pytest.raises(MalformedMessage, match="no node"):
                handler(dataclasses.replace(message, build=message.build[:0]))
            tried.append(message.depth)

    config = quick(config, protocol)
    expected = sha(train(tables, config, protocol, unsafe_noise_seed=0))
    assert meddled(monkeypatch, protocol, config, tables, meddle) == expected
    assert max(tried) > 0


@pytest.mark.parametrize("protocol", SUMMING)
def test_a_node_with_too_few_rows_is_not_split(protocol, monkeypatch):
    """Beside a node that is large enough to be summed, small ones could be split down to single rows."""
    tables, config = scene()
    tried = []

    def meddle(side, handler, message):
        if isinstance(message, SplitRequest):
            agreed = side._job
            side._job = fewer_rows_refused(agreed, ROWS + 1)
            with pytest.raises(MalformedMessage, match="min_node_rows"):
                handler(message)
            side._job = agreed
            tried.append(message.depth)

    config = quick(config, protocol)
    expected = sha(train(tables, config, protocol, unsafe_noise_seed=0))
    assert meddled(monkeypatch, protocol, config, tables, meddle) == expected
    assert max(tried) > 0


def opened(config, held_out=None, trees=1, weights=(), agreed=None):
    table = scene()[0]["p1"]
    context = PassiveContext(
        "p1", table.columns, ROWS, 1, None, JobRandomness(bytes(32)), MemoryAccount(), held_out=agreed
    )
    side = PLAIN.roles["passive"](context)
    bits = np.empty(0, dtype=np.uint8) if held_out is None else np.packbits(held_out)
    side.handle(BeginTraining(json.dumps(config.to_dict()), ROWS, trees, 0, bits, np.array(weights, dtype=np.float64)))
    return side


@pytest.mark.parametrize("objective", ["binary", "regression", "poisson"])
def test_a_loss_with_one_tree_per_round_gets_no_more(objective):
    config = scene(objective=objective)[1]
    opened(config)
    with pytest.raises(MalformedMessage, match="one tree"):
        opened(config, trees=2)


def test_as_many_trees_as_classes_are_taken_where_the_job_leaves_them_open():
    opened(scene(objective="multiclass")[1], trees=3)
    opened(scene(objective="auto")[1], trees=3)


def test_weights_come_only_where_bins_count_them():
    ones = np.ones(ROWS)
    opened(scene(weighted_bins=True)[1], weights=ones)
    with pytest.raises(MalformedMessage, match="weights"):
        opened(scene()[1], weights=ones)


def test_as_many_rows_are_held_out_as_the_job_says():
    held_out = np.arange(ROWS) >= 100
    opened(scene()[1], held_out, agreed=50)
    opened(scene()[1], held_out)  # where nothing is agreed
    for agreed in (0, 49, 51):
        with pytest.raises(MalformedMessage, match="validation"):
            opened(scene()[1], held_out, agreed=agreed)


def beginning(fit=None, columns=None, number=0):
    return BeginRound(
        number,
        np.empty(0, dtype=np.uint8) if fit is None else np.packbits(fit),
        columns is None,
        np.array([] if columns is None else columns, dtype=np.int32),
    )


def test_a_round_takes_the_rows_that_the_job_samples_and_no_others(monkeypatch):
    """One row to fit on, asked for again and again, would spell the whole table."""
    monkeypatch.setattr("veilboost.protocols.plain.passive.PlainPassiveCipher.open_round", lambda *_: None)
    one = np.arange(ROWS) == 7
    held_out = np.arange(ROWS) >= 100
    drawn = np.random.Generator(np.random.PCG64((0, 0, 0))).random(ROWS) < 0.5
    top = np.arange(ROWS) < 30 + 15
    for settings, kept, right, wrong in (
        ({}, None, (None, np.ones(ROWS)), (one, drawn)),
        ({}, held_out, (~held_out,), (None, one, held_out)),
        ({"subsample": 0.5}, None, (drawn,), (None, one, ~drawn, np.roll(drawn, 1))),
        ({"sampling": "goss"}, None, (top, np.roll(top, 9)), (None, one)),
        ({"sampling": "goss"}, held_out, (np.arange(ROWS) < 30,), (np.arange(ROWS) >= 120, top)),
    ):
        config = scene(**settings)[1]
        for fit in right:
            opened(config, kept).handle(beginning(None if fit is None else fit.astype(bool)))
        for fit in wrong:
            with pytest.raises(MalformedMessage, match="the job's sample"):
                opened(config, kept).handle(beginning(fit))


def test_a_round_takes_all_columns_unless_the_job_samples_them(monkeypatch):
    monkeypatch.setattr("veilboost.protocols.plain.passive.PlainPassiveCipher.open_round", lambda *_: None)
    opened(scene(colsample_bytree=0.5)[1]).handle(beginning(columns=[0, 1]))
    for settings, columns in (
        ({}, [0]),
        ({}, []),
        ({"colsample_bytree": 0.5}, None),
        ({"colsample_bytree": 0.5}, [1, 0]),
        ({"colsample_bytree": 0.5}, [1, 1]),
        ({"colsample_bytree": 0.5}, [2]),
    ):
        with pytest.raises(MalformedMessage):
            opened(scene(**settings)[1]).handle(beginning(columns=columns))
