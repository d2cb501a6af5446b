"""`federboost`: buckets leave once under randomized response, trees grow at the active party."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.boost.columns import ColumnBlock
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.errors import InvalidParameter, MalformedMessage, UnsupportedCombination, VeilBoostError
from veilboost.model.joined import join
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.privacy.accountant import compose
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.event import Adjacency, ExactRelease, MemoryAccount, RandomizedResponse
from veilboost.privacy.mechanism import keep_probability
from veilboost.protocols.federboost.messages import Buckets, BucketSplits, BucketsRequest
from veilboost.protocols.federboost.spec import SPEC
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.protocols.vertical.messages import BeginTraining
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.types import Column, Role
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast

ROWS = 400


def federation(rows=ROWS, parties=3, objective="binary"):
    columns = make_columns(8, rows=rows, numeric=4, categorical=2, missing=0.1)
    return split_among(columns, make_labels(8, columns, objective), parties)


def job(**settings):
    return TrainingConfig.from_dict(
        {"objective": "binary", "n_estimators": 4, "max_depth": 3, "max_bin": 8, "categories": "ordinal"} | settings
    )


def opened(table, config, key=b"k" * 32):
    """A passive side whose job has begun, and its account."""
    import json

    account = MemoryAccount()
    context = PassiveContext("p1", table.columns, table.rows, 1, None, JobRandomness(key), account)
    side = SPEC.roles["passive"](context)
    side.handle(BeginTraining(json.dumps(config.to_dict()), table.rows, 1, 0, np.empty(0, dtype=np.uint8), np.empty(0)))
    return side, account


def test_buckets_are_kept_as_often_as_they_should_be_and_moved_evenly():
    rows, epsilon = 20_000, 2.0
    table = federation(rows)["p1"]
    config = job(options={"epsilon": epsilon})
    side, _ = opened(table, config)
    shown = side.handle(BucketsRequest()).buckets
    block = ColumnBlock.build(table.columns, rows, config)
    true = block.shared.bins[0]
    for column, width in enumerate(block.layout.widths.tolist()):
        kept = keep_probability(width, epsilon)
        counts = np.bincount((shown[:, column] - true[:, column].astype(np.int64)) % width, minlength=width)
        expected = rows * np.array([kept] + [(1 - kept) / (width - 1)] * (width - 1))
        assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all()
        if block.layout.missing[column]:
            was_missing = true[:, column] == width - 1
            assert 0 < (shown[was_missing, column] != width - 1).mean() < 1, "missing values are hidden too"


def test_asking_again_shows_the_same_and_costs_nothing_more():
    table, config = federation()["p1"], job(options={"epsilon": 1.0})
    side, account = opened(table, config)
    first, spent = side.handle(BucketsRequest()).buckets, account.events
    assert np.array_equal(first, side.handle(BucketsRequest()).buckets)
    assert account.events == spent
    again, other = (opened(table, config, key)[0].handle(BucketsRequest()).buckets for key in (b"k" * 32, b"o" * 32))
    assert np.array_equal(first, again), "a job that is taken up again draws the same"
    assert not np.array_equal(first, other)


def test_other_values_under_the_same_key_draw_other_noise():
    """Else the difference of two answers would be the difference of the values."""
    values = np.arange(ROWS, dtype=np.float32)
    moved = values.copy()
    moved[0] = 399.5
    shown = [
        opened(dataclasses.replace(federation()["p1"], columns=(Column("x", v),)), job(options={"epsilon": 1.0}))[0]
        .handle(BucketsRequest())
        .buckets
        for v in (values, moved)
    ]
    assert (shown[0] != shown[1]).mean() > 0.3


def test_a_record_costs_the_sum_of_its_columns():
    table = federation()["p1"]
    constant = Column("flat", np.ones(ROWS, dtype=np.float32))
    table = dataclasses.replace(table, columns=(*table.columns, constant))
    side, account = opened(table, job(options={"epsilon": 1.5}))
    assert not account.events, "nothing is spent before it is asked for"
    side.handle(BucketsRequest())
    assert len(account.events) == len(table.columns) - 1, "a column of one bucket tells nothing"
    for event in account.events:
        assert isinstance(event, RandomizedResponse)
        assert event.adjacency is Adjacency.PASSIVE_RECORD
        assert event.adversary == "the active party"
    assert compose(account.events, 1e-6).basic == pytest.approx(1.5 * len(account.events))
    assert isinstance(SPEC.plan(job(), ROWS, Role.PASSIVE)[0], RandomizedResponse)
    assert not SPEC.plan(job(), ROWS, Role.ACTIVE)
    side, account = opened(table, job(options={"mechanism": "none"}))
    side.handle(BucketsRequest())
    assert {type(event) for event in account.events} == {ExactRelease}


def test_a_budget_that_cannot_be_spent_stops_the_buckets():
    class Empty:
        def spend(self, event):
            raise InvalidParameter("nothing left")

    table = federation()["p1"]
    side, _ = opened(table, job(options={"epsilon": 1.0}))
    side.cipher.context = dataclasses.replace(side.context, account=Empty())
    with pytest.raises(InvalidParameter):
        side.handle(BucketsRequest())


def test_nothing_about_rows_goes_to_a_passive_party(monkeypatch):
    received = []

    class Listening(MemoryChannel):
        def send(self, message):
            received.append(message)
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    train(federation(), job(subsample=0.5, options={"epsilon": 1.0}), "federboost")
    assert sum(isinstance(message, BucketsRequest) for message in received) == 2
    for message in received:
        for item in dataclasses.fields(message):
            value = getattr(message, item.name)
            assert not isinstance(value, np.ndarray) or value.size < ROWS / 8, "not even a bit per row"


def test_prediction_goes_by_true_values():
    tables = federation()
    config = job(options={"epsilon": 1.0})
    run = simulate_training(tables, "p0", "federboost", config)
    columns = [column for table in tables.values() for column in table.columns]
    assert np.array_equal(simulate_prediction(run.shares, "p0", tables), join(run.shares).margins(columns))
    plain = train(tables, dataclasses.replace(config, options={}))
    quiet = train(tables, dataclasses.replace(config, options={"mechanism": "none"}), "federboost")
    assert sha(plain) == sha(quiet) != sha(run)


def test_less_noise_learns_more():
    from sklearn.metrics import roc_auc_score

    columns = make_columns(5, rows=3000, numeric=6)
    tables = split_among(columns, make_labels(5, columns), 2)

    def area(epsilon):
        run = train(tables, job(n_estimators=10, options={"epsilon": epsilon}), "federboost")
        return roc_auc_score(tables["p0"].label, simulate_prediction(run.shares, "p0", tables)[0])

    assert area(8.0) > area(0.05) + 0.02


@pytest.mark.parametrize("settings", [{"categories": "sets"}, {"proposal": "local"}])
def test_combinations_that_do_not_fit_are_refused_on_input(settings):
    with pytest.raises(UnsupportedCombination):
        train(federation(), job(**settings), "federboost")


@pytest.mark.parametrize(
    "options", [{"epsilon": 0.0}, {"epsilon": -1.0}, {"epsilon": math.inf}, {"mechanism": "laplace"}, {"delta": 0.1}]
)
def test_impossible_options_are_refused_on_input(options):
    with pytest.raises(InvalidParameter):
        train(federation(), job(options=options), "federboost")


@pytest.mark.parametrize("wrong", ["rows", "columns", "bucket"])
def test_buckets_that_do_not_fit_are_refused(monkeypatch, wrong):
    def bend(answer):
        if not isinstance(answer, Buckets):
            return answer
        buckets = answer.buckets.copy()
        if wrong == "bucket":
            buckets[3, 0] = 999
        return Buckets({"rows": buckets[1:], "columns": buckets[:, 1:], "bucket": buckets}[wrong])

    class Lying(MemoryChannel):
        def __init__(self, handler, *rest):
            super().__init__(lambda message: bend(handler(message)), *rest)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Lying)
    with pytest.raises(MalformedMessage):
        train(federation(), job(options={"epsilon": 1.0}), "federboost")


def test_splits_that_do_not_fit_are_refused(monkeypatch):
    class Meddling(MemoryChannel):
        def send(self, message):
            if isinstance(message, BucketSplits):
                doubled = {item.name: np.repeat(getattr(message, item.name), 2) for item in dataclasses.fields(message)}
                for change in (
                    {"tree": message.tree + 1},
                    {"tree": message.tree - 1},
                    {"node": -1 - message.node},
                    {"handles": message.handles + np.int32(10_000)},
                    doubled,
                ):
                    with pytest.raises(VeilBoostError):
                        self._handler(dataclasses.replace(message, **change))
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Meddling)
    train(federation(), job(options={"epsilon": 4.0}), "federboost")


def test_calibrated_options_keep_to_the_budget():
    for delta in (None, 1e-6):
        asked = CalibrationRequest(1000, 20, 16, 60, 6, epsilon_passive=4.0, delta_passive=delta)
        found = SPEC.calibrate(asked)
        validate(ResolvedJob(SPEC, job(options=found["options"])))
        event = SPEC.plan(job(options=found["options"]), 1000, Role.PASSIVE)[0]
        spent = compose([dataclasses.replace(event, count=20)], delta or 1e-6)
        assert (spent.basic if delta is None else spent.epsilon) <= 4.0 * (1 + 1e-9)
        assert 1 / 16 < found["noise"]["kept"] < 1
    with pytest.raises(InvalidParameter, match="passive"):
        SPEC.calibrate(CalibrationRequest(1000, 20, 16, 60, 6, epsilon_active=4.0))
