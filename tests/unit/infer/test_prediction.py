"""Joint prediction: it agrees with the joined model and with training's own margins."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.boost import grower
from veilboost.config import TrainingConfig
from veilboost.errors import ForeignColumns, MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer import joint
from veilboost.infer.joint import PredictionResponder
from veilboost.infer.messages import BeginPrediction, RouteAnswer, RouteRequest
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
def test_joint_predictions_are_those_of_the_joined_model(objective, categories):
    _, _, run = trained(objective, categories=categories)
    columns, tables = fresh_tables(3)
    expected = join(run.shares).margins(columns)
    np.testing.assert_array_equal(simulate_prediction(run.shares, "p0", tables), expected)


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


def owners_on_path(run, tables, rows) -> list[list[str]]:
    """The owners of the nodes that each row meets in each tree, from the directions at all splits."""
    skeleton, left = run.shares["p0"].skeleton, {}
    for name, part in run.shares.items():
        bits = np.unpackbits(part.records.all_left(part.matrix(tables[name].columns, rows)), axis=1, count=rows)
        left |= {
            (int(t), int(n)): bits[k] for k, (t, n) in enumerate(zip(part.records.tree, part.records.node, strict=True))
        }
    found = []
    for number, tree in enumerate(skeleton.trees):
        for row in range(rows):
            node, owners = 0, []
            while tree.left[node] >= 0:
                owners.append(skeleton.parties[tree.owner[node]])
                node = tree.left[node] + (not left[number, node][row])
            found.append(owners)
    return found


def test_a_party_is_asked_once_for_its_nodes_in_a_row_and_answers_for_those_on_the_path_only():
    _, tables, run = trained(parties=2)
    asked: list[RouteRequest] = []
    answered: list[RouteAnswer] = []
    responder = PredictionResponder(run.shares["p1"], run.shares["p1"].matrix(tables["p1"].columns, 200), 4)

    class Spy(Channel):
        def send(self, message):
            answer = responder.handle(message)
            if isinstance(message, RouteRequest):
                asked.append(message)
                answered.append(answer)
            return lambda: answer

    joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({"p1": Spy()}))
    paths = owners_on_path(run, tables, 200)
    runs = [[owner for owner, _ in itertools.groupby(path)].count("p1") for path in paths]
    assert len(asked) == max(runs), "as many exchanges as the path with the most changes of owner needs"
    assert max(runs) < max(path.count("p1") for path in paths), "the model has nodes of one party in a row"
    assert sum(len(message.rows) for message in asked) == sum(runs)
    directions = sum(path.count("p1") for path in paths)
    assert directions <= 8 * sum(len(answer.left) for answer in answered) < directions + 8 * len(answered)


def test_a_model_of_single_leaves_predicts_its_base():
    columns = make_columns(3, 40, numeric=2)
    config = TrainingConfig(objective="regression", n_estimators=2, gamma=1e12)
    tables = split_among(columns, make_labels(3, columns, "regression"), 2)
    run = train(tables, config)
    assert np.ptp(simulate_prediction(run.shares, "p0", tables)) == 0
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


def test_only_the_active_party_with_all_others_can_predict():
    _, tables, run = trained()
    with pytest.raises(MissingShare):
        joint.predict_joint(run.shares["p1"], tables["p1"].columns, 200, Peers({}))
    with pytest.raises(MissingShare):
        joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({}))


def test_a_responder_refuses_nonsense():
    _, tables, run = trained(parties=2)
    part = run.shares["p1"]
    values = part.matrix(tables["p1"].columns, 200)

    def handle(message):
        return PredictionResponder(part, values, 4).handle(message)

    ints = lambda *values: np.array(values, dtype=np.int32)  # noqa: E731
    tree, node = part.records.tree[:1], part.records.node[:1]
    good = RouteRequest(tree, node, ints(0, 3), ints(0, 5, 199), ints(-1))
    assert isinstance(handle(good), RouteAnswer)
    of_tree = np.flatnonzero(part.records.tree == np.argmax(np.bincount(part.records.tree)))[:3]
    three = RouteRequest(
        part.records.tree[of_tree], part.records.node[of_tree], ints(0, 3, 3, 3), good.rows, ints(-1, 0, 1)
    )
    assert len(handle(three).left) == 1, "six directions"
    two = ints(0, part.records.count - 1)
    other_tree = RouteRequest(part.records.tree[two], part.records.node[two], ints(0, 3, 3), good.rows, ints(-1, -1))
    assert isinstance(handle(other_tree), RouteAnswer)
    for wrong in (
        dataclasses.replace(good, rows=ints(0, 5, 200)),
        dataclasses.replace(good, rows=ints(0, 5, -1)),
        dataclasses.replace(good, starts=ints(0, 2)),
        dataclasses.replace(good, starts=ints(1, 3)),
        dataclasses.replace(good, node=ints(10_000)),
        dataclasses.replace(good, tree=ints()),
        RouteRequest(tree.repeat(2), node.repeat(2), ints(0, 1, 3), ints(0, 5, 199), ints(-1, -1)),
        dataclasses.replace(good, starts=ints(0, 201), rows=ints(*range(200), 0)),
        dataclasses.replace(good, after=ints()),
        dataclasses.replace(good, after=ints(-2)),
        dataclasses.replace(three, after=ints(-1, 0, -4)),
        dataclasses.replace(good, after=ints(0)),  # after itself
        dataclasses.replace(three, after=ints(-1, 0, 0)),  # both are the left child of one
        dataclasses.replace(three, after=ints(-1, 4, 1)),  # after a later one
        dataclasses.replace(three, after=ints(-1, 0, 6)),
        dataclasses.replace(three, after=ints(-1, 0, 2**31 - 1)),
        dataclasses.replace(three, after=ints(-1, 0, 1), starts=ints(0, 2, 2, 3)),  # it has rows of its own
        dataclasses.replace(other_tree, after=ints(-1, 0)),
        BeginPrediction(199),
    ):
        with pytest.raises(MalformedMessage):
            handle(wrong)
    with pytest.raises(UnexpectedMessage):
        handle(Done())


def test_the_active_side_refuses_wrong_answers():
    _, tables, run = trained(parties=2)

    class Liar(Channel):
        def __init__(self, size):
            self.size = size

        def send(self, message):
            answer = (
                Done() if isinstance(message, BeginPrediction) else RouteAnswer(np.zeros(self.size, dtype=np.uint8))
            )
            return lambda: answer

    for size in (0, 1, 10_000):
        with pytest.raises(MalformedMessage):
            joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({"p1": Liar(size)}))

    class Confused(Channel):
        def send(self, message):
            return Done

    with pytest.raises(UnexpectedMessage):
        joint.predict_joint(run.shares["p0"], tables["p0"].columns, 200, Peers({"p1": Confused()}))
