"""Joint prediction: routed and one-shot agree with the joined model and with training's own margins."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost import grower
from veilboost.config import TrainingConfig
from veilboost.errors import ForeignColumns, InvalidParameter, MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer import joint
from veilboost.infer.joint import PredictionResponder
from veilboost.infer.messages import AllSplitsRequest, BeginPrediction, RouteAnswer, RouteRequest
from veilboost.model.joined import join
from veilboost.party.simulation import simulate_prediction
from veilboost.types import Column
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast


def trained(objective="binary", parties=3, rows=200, **options):
    columns = make_columns(9, rows, numeric=4, categorical=2, missing=0.15)
    config = TrainingConfig.from_dict({"objective": objective, "n_estimators": 4, "max_depth": 4} | options)
    tables = split_among(columns, make_labels(9, columns, objective), parties)
    return columns, tables, train(tables, config)


def fresh_tables(parties, rows=150):
    columns = make_columns(10, rows, numeric=4, categorical=2, missing=0.3)
    return columns, split_among(columns, np.zeros(rows), parties)


@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression", "poisson"])
@pytest.mark.parametrize("categories", ["sets", "onehot", "ordinal"])
def test_all_ways_of_predicting_agree(objective, categories):
    _, _, run = trained(objective, categories=categories)
    columns, tables = fresh_tables(3)
    expected = join(run.shares).margins(columns)
    for method in ("routed", "oneshot"):
        np.testing.assert_array_equal(simulate_prediction(run.shares, "p0", tables, method), expected)


@pytest.mark.parametrize("proposal", ["global", "local"])
def test_predicting_the_training_rows_gives_training_margins(proposal, monkeypatch):
    margins = []
    grow = grower.grow

    def spy(finder, start, config, margin):
        trees = grow(finder, start, config, margin)
        margins.append(margin.copy())
        return trees

    monkeypatch.setattr("veilboost.boost.booster.grow", spy)
    _, tables, run = trained("multiclass", proposal=proposal, subsample=0.7)
    np.testing.assert_array_equal(simulate_prediction(run.shares, "p0", tables), margins[-1])


def test_rows_are_walked_in_batches(monkeypatch):
    _, _, run = trained()
    _, tables = fresh_tables(3)
    expected = simulate_prediction(run.shares, "p0", tables)
    monkeypatch.setattr(joint, "PAIRS_AT_ONCE", 40)
    np.testing.assert_array_equal(simulate_prediction(run.shares, "p0", tables), expected)


def test_only_visited_nodes_are_asked():
    _, tables, run = trained(parties=2)
    asked: list[RouteRequest] = []
    responder = PredictionResponder(run.shares["p1"], run.shares["p1"].matrix(tables["p1"].columns, 200))

    class Spy(Channel):
        def send(self, message):
            if isinstance(message, RouteRequest):
                asked.append(message)
            answer = responder.handle(message)
            return lambda: answer

    joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({"p1": Spy()}))
    assert len(asked) <= 4, "at most one exchange per level, for all trees together"
    pairs = sum(len(message.rows) for message in asked)
    assert 0 < pairs < run.shares["p1"].records.count * 200


def test_a_model_of_single_leaves_predicts_its_base():
    columns = make_columns(3, 40, numeric=2)
    config = TrainingConfig(objective="regression", n_estimators=2, gamma=1e12)
    tables = split_among(columns, make_labels(3, columns, "regression"), 2)
    run = train(tables, config)
    for method in ("routed", "oneshot"):
        margin = simulate_prediction(run.shares, "p0", tables, method)
        assert np.ptp(margin) == 0
    assert simulate_prediction(run.shares, "p0", {k: t.take(np.arange(0)) for k, t in tables.items()}).shape == (1, 0)


def test_unknown_categories_and_missing_columns():
    _, _, run = trained()
    _columns, tables = fresh_tables(3)
    last = tables["p2"]
    strange = Column(last.columns[-1].name, np.zeros(150, dtype=np.int32), ("never seen",))
    as_missing = Column(last.columns[-1].name, np.full(150, -1, dtype=np.int32), last.columns[-1].categories)

    def predict(column):
        changed = dataclasses.replace(last, columns=(*last.columns[:-1], column))
        return simulate_prediction(run.shares, "p0", {**tables, "p2": changed})

    np.testing.assert_array_equal(predict(strange), predict(as_missing))
    with pytest.raises(ForeignColumns):
        predict(Column(last.columns[-1].name, np.zeros(150, dtype=np.float32)))
    with pytest.raises(ForeignColumns):
        simulate_prediction(run.shares, "p0", {**tables, "p2": last.select(last.names[:-1])})
    with pytest.raises(InvalidParameter):
        simulate_prediction(run.shares, "p0", tables, "guessing")


def test_only_the_active_party_with_all_others_can_predict():
    _, tables, run = trained()
    with pytest.raises(MissingShare):
        joint.predict_joint(run.shares["p1"], tables["p1"].columns, 200, Peers({}))
    with pytest.raises(MissingShare):
        joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({}))


def test_a_responder_refuses_nonsense():
    _, tables, run = trained(parties=2)
    part = run.shares["p1"]
    responder = PredictionResponder(part, part.matrix(tables["p1"].columns, 200))
    ints = lambda *values: np.array(values, dtype=np.int32)  # noqa: E731
    tree, node = part.records.tree[:1], part.records.node[:1]
    good = RouteRequest(tree, node, ints(0, 3), ints(0, 5, 199))
    assert isinstance(responder.handle(good), RouteAnswer)
    for wrong in (
        dataclasses.replace(good, rows=ints(0, 5, 200)),
        dataclasses.replace(good, rows=ints(0, 5, -1)),
        dataclasses.replace(good, starts=ints(0, 2)),
        dataclasses.replace(good, starts=ints(1, 3)),
        dataclasses.replace(good, node=ints(10_000)),
        dataclasses.replace(good, tree=ints()),
        RouteRequest(tree.repeat(2), node.repeat(2), ints(0, 1, 3), ints(0, 5, 199)),
        dataclasses.replace(good, starts=ints(0, 201), rows=ints(*range(200), 0)),
        BeginPrediction(199),
    ):
        with pytest.raises(MalformedMessage):
            responder.handle(wrong)
    with pytest.raises(UnexpectedMessage):
        responder.handle(Done())
    assert responder.handle(AllSplitsRequest()).left.shape == (part.records.count, 25)


def test_the_active_side_refuses_wrong_answers():
    _, tables, run = trained(parties=2)

    class Liar(Channel):
        def send(self, message):
            answer = Done() if isinstance(message, BeginPrediction) else RouteAnswer(np.zeros(1, dtype=np.uint8))
            return lambda: answer

    with pytest.raises(MalformedMessage):
        joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({"p1": Liar()}))

    class Confused(Channel):
        def send(self, message):
            return Done

    with pytest.raises(UnexpectedMessage):
        joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({"p1": Confused()}))
