"""What horizontal protocols share: asking those that are there, descriptions, models on the wire."""

from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels
from veilboost.config import TrainingConfig
from veilboost.data.schema import infer_objective
from veilboost.data.table import PartyTable
from veilboost.errors import (
    LabelOutOfRange,
    MalformedMessage,
    MissingColumn,
    MissingLabel,
    MixedTypes,
    PeerRefused,
    PeerUnreachable,
    UnexpectedMessage,
)
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.horizontal.full_model import from_message, to_message
from veilboost.protocols.horizontal.roles import ask_reachable
from veilboost.protocols.horizontal.schema import Schema, describe, encoded_table, unify
from veilboost.protocols.mal.messages import KeysRequest
from veilboost.types import Column
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast


class Way:
    """A channel that answers, or fails when it is used or waited for."""

    def __init__(self, answer=None, at_send=None, at_wait=None):
        self.answer, self.at_send, self.at_wait = answer, at_send, at_wait

    def send(self, message):
        if self.at_send is not None:
            raise self.at_send

        def wait():
            if self.at_wait is not None:
                raise self.at_wait
            return self.answer

        return wait


def test_who_is_gone_is_noted_and_the_others_are_heard():
    gone = PeerUnreachable("gone")
    peers = Peers({"a": Way(Done()), "b": Way(at_send=gone), "c": Way(at_wait=gone), "d": Way(Done())})
    dropped = {}
    answers = ask_reachable(peers, dict.fromkeys("abcd", Done()), dropped, Done)
    assert set(answers) == {"a", "d"}
    assert set(dropped) == {"b", "c"}
    assert peers.rounds == 1


def test_a_refusal_and_a_strange_answer_are_no_losses():
    for way, error in ((Way(at_wait=PeerRefused("no")), PeerRefused), (Way(KeysRequest()), UnexpectedMessage)):
        with pytest.raises(error):
            ask_reachable(Peers({"a": way}), {"a": Done()}, {}, Done)


# --- descriptions ---------------------------------------------------------------------------------------------


def described(**changes):
    columns = (
        Column("n", np.array([1, np.nan], dtype=np.float32)),
        Column("c", np.array([0, -1], dtype=np.int32), ("x",)),
    )
    return describe(PartyTable(np.arange(2), columns, np.array([0.0, 1.0]), **changes), "auto")


def test_descriptions_come_back_and_are_put_together():
    schema = described()
    assert Schema.from_json(schema.to_json()) == schema
    assert schema.missing == (True, True)
    other = replace(
        schema, columns=(schema.columns[0], replace(schema.columns[1], categories=("w", "x"))), missing=(False, False)
    )
    both = unify({"a": schema, "b": other}, "auto")
    assert both.columns[1].categories == ("w", "x")
    assert both.missing == (True, True)
    table = PartyTable(
        np.arange(1),
        (Column("n", np.ones(1, dtype=np.float32)), Column("c", np.array([0], dtype=np.int32), ("x",))),
        np.ones(1),
    )
    columns, _ = encoded_table(table, both)
    assert columns[1].values.tolist() == [1]


@pytest.mark.parametrize("protocol", ["mal", "secagg"])
def test_different_columns_kinds_and_labels_are_refused(protocol):
    columns = make_columns(4, rows=200, numeric=3, categorical=1)
    table = PartyTable(np.arange(200), tuple(columns), make_labels(4, columns, "binary"))
    first, *rest = table.columns
    odd = {
        MissingColumn: replace(table, columns=(replace(first, name="other"), *rest)),
        MixedTypes: replace(table, columns=(Column(first.name, np.zeros(200, dtype=np.int32), ("x",)), *rest)),
        LabelOutOfRange: replace(table, label_classes=("no", "yes")),
    }
    for error, other in odd.items():
        tables = {"p0": table, "p1": other, "p2": table}
        with pytest.raises(error, match="p1"):
            simulate_training(tables, SERVER, protocol, TrainingConfig(objective="binary", n_estimators=1))


def test_labels_of_text_share_their_classes():
    north = described(label_classes=("no", "yes"))
    south = replace(north, classes=("maybe", "no"))
    assert unify({"a": north, "b": south}, "auto").classes == ("maybe", "no", "yes")
    assert unify({"a": north, "b": south}, "auto").objective == "multiclass"
    with pytest.raises(LabelOutOfRange):
        unify({"a": described(), "b": replace(described(), objective="regression")}, "auto")
    with pytest.raises(MissingLabel):
        describe(PartyTable(np.arange(1), ()), "auto")


@pytest.mark.parametrize(
    ("labels", "objective"),
    [
        ([[0, 0], [0, 1]], "binary"),
        ([[0, 0], [1, 1]], "binary"),
        ([[0, 2], [0, 1, 2], [1, 1]], "multiclass"),
        ([[0, 1], [0, 1, 2]], "multiclass"),
        ([[1, 3], [1, 5]], "regression"),
        ([[0, 0], [0.5, 1]], "regression"),
        ([[0, 0], [0, 0]], "regression"),
    ],
)
def test_the_loss_is_that_of_pooled_labels(labels, objective):
    tables = {str(at): PartyTable(np.arange(len(y)), (), np.array(y, dtype=float)) for at, y in enumerate(labels)}
    assert unify({name: describe(table, "auto") for name, table in tables.items()}, "auto").objective == objective
    assert infer_objective(np.concatenate([table.label for table in tables.values()])) == objective


def test_labels_whose_loss_the_participants_do_not_determine_are_refused():
    for other in ([0, 2], [0.5, 1.5]):
        described = [describe(PartyTable(np.arange(2), (), np.array(y, dtype=float)), "auto") for y in ([0, 1], other)]
        with pytest.raises(LabelOutOfRange, match="different losses"):
            unify(dict(zip("ab", described, strict=True)), "auto")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"names": ["a", "a"], "categories": [null, null], "missing": [1, 1], "classes": null, '
     '"objective": "binary", "kinds": 2}', '{"names": [1], "categories": [null], "missing": [1], "classes": null, '
     '"objective": "binary", "kinds": 2}'],
)  # fmt: skip
def test_garbage_is_no_description(text):
    with pytest.raises(MalformedMessage):
        Schema.from_json(text)


# --- models on the wire ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def part():
    columns = make_columns(1, rows=200, numeric=2, categorical=1)
    table = PartyTable(np.arange(200), tuple(columns), make_labels(1, columns))
    tables = {"a": table.take(np.arange(100)), "b": table.take(np.arange(100, 200))}
    config = TrainingConfig(objective="binary", n_estimators=3, max_depth=3, max_bin=8)
    return simulate_training(tables, SERVER, "secagg", config).outcome.share


def test_a_model_comes_back(part):
    assert join({"model": from_message(to_message(part))}).sha256() == join({"model": part}).sha256()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: {"about": "{}"},
        lambda m: {"about": m.about.replace('"trees_per_round": 1', '"trees_per_round": 2')},
        lambda m: {"sizes": m.sizes + 1},
        lambda m: {"sizes": m.sizes * 0},
        lambda m: {"left": np.where(m.left == 1, 0, m.left).astype(np.int32)},  # a node that is its own child
        lambda m: {"left": np.where(m.left == 5, 3, m.left).astype(np.int32)},  # a node with two parents
        lambda m: {"left": np.where(m.left == 1, 10**6, m.left).astype(np.int32)},
        lambda m: {"feature": m.feature + 10},
        lambda m: {"feature": m.feature[1:]},
        lambda m: {"set_of": m.set_of + 100},
        lambda m: {"base_margin": np.zeros(3)},
        lambda m: {"weight": m.weight[1:]},
    ],
)
def test_a_model_whose_pieces_do_not_fit_is_refused(part, spoil):
    message = to_message(part)
    with pytest.raises(MalformedMessage):
        from_message(replace(message, **spoil(message)))
