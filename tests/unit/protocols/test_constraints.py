"""Constraints of parties: who sets them, what the other party learns, and what is refused of a peer that bends them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, quick, sha, split_among, train
from veilboost.boost.limits import ColumnConstraints
from veilboost.config import TrainingConfig
from veilboost.data.constraints import Constraints
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.party.job import Job, JobParty
from veilboost.protocols.constraints import of_columns
from veilboost.protocols.vertical.constraints import MOST_SETS, checked_constraints, offered_constraints
from veilboost.protocols.vertical.messages import BeginRound, BeginTraining, ColumnsOffered, SplitAnswer
from veilboost.types import Column
from veilboost.wire.channel import MemoryChannel
from veilboost.wire.message import encode

pytestmark = pytest.mark.fast

LIMITS = {"monotone_constraints": {"n0": 1, "n2": -1, "n3": 1}, "interaction_constraints": [["n0", "n2"], ["n3", "c0"]]}


def problem(parties=2, **changes):
    """Columns with few values and a copy of one of them, so that candidates tie."""
    columns = make_columns(4, rows=200, numeric=4, categorical=1, missing=0.1, distinct=3)
    n0, n1, n2, n3, c0 = columns
    columns = [n0, n1, c0, n2, Column("copy", n3.values), n3]  # n2 and n3 may change places around the copy
    config = TrainingConfig.from_dict({"objective": "binary", "n_estimators": 3, "max_depth": 4} | changes)
    return split_among(columns, make_labels(4, columns), parties), config


def intercepted(monkeypatch, protocol, tables, config, answered=lambda message: message, asked=lambda message: None):
    """Train while `asked` sees every request and `answered` changes every answer."""

    class Channel(MemoryChannel):
        def __init__(self, handler, *rest):
            super().__init__(lambda message: answered(handler(message)), *rest)

        def send(self, message):
            asked(message)
            return super().send(message)

    with monkeypatch.context() as patch:
        patch.setattr(simulation_module, "MemoryChannel", Channel)
        return sha(train(tables, config, protocol, unsafe_noise_seed=0))


def own(table, **constraints):
    return dataclasses.replace(table, constraints=Constraints(**constraints))


@pytest.mark.parametrize("protocol", ["plain", "paillier", "lattice"])
def test_parties_may_set_their_own_constraints(protocol):
    tables, config = problem(3)
    together = sha(train(tables, dataclasses.replace(config, **LIMITS)))
    apart = {
        name: own(
            table,
            monotone={name: way for name, way in LIMITS["monotone_constraints"].items() if name in table.names},
            sets={
                str(at): tuple(name for name in names if name in table.names)
                for at, names in enumerate(LIMITS["interaction_constraints"], 1)
            },
        )
        for name, table in tables.items()
    }
    assert sha(train(apart, config, protocol)) == together != sha(train(tables, config))


@pytest.mark.parametrize("protocol", ["paillier", "lattice"])
@pytest.mark.parametrize("limits", [LIMITS, {"monotone_constraints": {"copy": -1}}, {"colsample_bylevel": 0.5}])
def test_tied_candidates_give_the_model_of_plain(protocol, limits, monkeypatch):
    """A column and its copy, of which one has a direction: only its owner knows which of them a node splits by."""
    tables, config = problem(2, **limits)
    taken = []

    def answered(message):
        if isinstance(message, SplitAnswer):
            taken.extend(message.taken.tolist())
        return message

    pooled, _ = problem(1)
    expected = sha(train(pooled, config))
    if protocol == "lattice":
        config = dataclasses.replace(config, options={"layout": "runs"})  # other layouts do not shuffle columns
    assert intercepted(monkeypatch, protocol, tables, config, answered) == expected
    assert bool(taken) == ("colsample_bylevel" not in limits)


@pytest.mark.parametrize("protocol", ["plain", "paillier", "lattice"])
def test_no_message_names_a_column(protocol, monkeypatch):
    tables, config = problem(2, **LIMITS)
    named = {"n0": "income_of_bank", "n2": "age_of_bank", "n3": "visits_of_shop", "c0": "city_of_shop"}
    tables = {
        party: dataclasses.replace(
            table,
            columns=tuple(dataclasses.replace(each, name=named.get(each.name, each.name)) for each in table.columns),
        )
        for party, table in tables.items()
    }
    config = TrainingConfig.from_dict(
        config.to_dict()
        | {
            "monotone_constraints": {named[name]: way for name, way in LIMITS["monotone_constraints"].items()},
            "interaction_constraints": [[named[name] for name in each] for each in LIMITS["interaction_constraints"]],
        }
    )
    sent = []

    def seen(message):
        sent.append(encode(message))
        return message

    intercepted(monkeypatch, protocol, tables, config, seen, seen)
    assert len(sent) > 10
    assert not any(b"_of_" in frame for frame in sent)


def test_a_job_without_constraints_sends_none(monkeypatch):
    tables, config = problem(2)
    offers, rounds = [], []

    def answered(message):
        offers.extend([message] if isinstance(message, ColumnsOffered) else [])
        assert not isinstance(message, SplitAnswer) or not len(message.taken)
        return message

    def asked(message):
        rounds.extend([message] if isinstance(message, BeginRound) else [])
        if isinstance(message, BeginTraining):
            assert '"monotone_constraints": {}' in message.config

    intercepted(monkeypatch, "paillier", tables, quick(config, "paillier"), answered, asked)
    assert all(not len(each.direction) and not len(each.set_starts) and not each.sets for each in offers)
    assert all(not each.levels.size for each in rounds)
    assert offers
    assert rounds


def test_a_partys_sets_do_not_isolate_the_columns_of_others():
    tables, config = problem(2)
    tables["p1"] = own(tables["p1"], sets={"few": ("n2", "n3")})
    run = train(tables, config)
    kept = {"few": {"n2", "n3"}, "copy": {"copy"}, "rest": {"n0", "n1", "c0"}}
    paths = []

    def walk(tree, node, above):
        if tree.left[node] < 0:
            paths.append(frozenset(above))
            return
        here = (*above, run.model.columns[tree.feature[node]].name)
        walk(tree, int(tree.left[node]), here)
        walk(tree, int(tree.left[node]) + 1, here)

    for tree in run.model.trees:
        walk(tree, 0, ())
    assert all(len(path) <= 1 or any(path <= each for each in kept.values()) for path in paths)
    assert any(len(path) > 1 and path <= kept["rest"] for path in paths)


# --- a peer that bends messages -------------------------------------------------------------------------------------


def offer(**fields):
    kind = np.array([0, 0, 2], dtype=np.uint8)
    return ColumnsOffered(np.array([0, 4, 8, 11], dtype=np.int32), np.zeros(3, dtype=np.uint8), kind, **fields)


def ints(*values):
    return np.array(values, dtype=np.int32)


def directions(*values):
    return np.array(values, dtype=np.int8)


def test_constraints_survive_their_message():
    columns = ("a", "b", "c")
    for given in (
        Constraints(),
        Constraints({"a": 1, "b": -1}),
        Constraints({}, {}),
        Constraints({"b": 1}, {"one": ("c", "a"), "two": ("b",), "none": ()}),
    ):
        own = of_columns(given, columns)
        read = checked_constraints("shop", offer(**offered_constraints(own)))
        np.testing.assert_array_equal(read.direction, own.direction)
        assert (read.sets is None) == (own.sets is None)
        assert {name: each.tolist() for name, each in (read.sets or {}).items()} == {
            name: each.tolist() for name, each in (own.sets or {}).items()
        }


@pytest.mark.parametrize(
    "fields",
    [
        {"direction": directions(1, 0)},
        {"direction": directions(2, 0, 0)},
        {"direction": directions(0, 0, 1)},  # of a column of categories
        {"sets": ("one",)},
        {"set_columns": ints(0)},
        {"sets": ("one",), "set_starts": ints(0, 1), "set_columns": ints(3)},
        {"sets": ("one",), "set_starts": ints(0, 1), "set_columns": ints(-1)},
        {"sets": ("one",), "set_starts": ints(0, 2), "set_columns": ints(1, 1)},
        {"sets": ("one",), "set_starts": ints(0, 2), "set_columns": ints(1, 0)},
        {"sets": ("one",), "set_starts": ints(0, 1), "set_columns": ints(1, 2)},
        {"sets": ("one",), "set_starts": ints(1, 2), "set_columns": ints(1, 2)},
        {"sets": ("one", "two"), "set_starts": ints(0, 2, 1), "set_columns": ints(1, 2)},
        {"sets": ("one", "one"), "set_starts": ints(0, 1, 2), "set_columns": ints(1, 2)},
        {"sets": ("x" * 65,), "set_starts": ints(0, 1), "set_columns": ints(1)},
        {"sets": tuple(f"s{k}" for k in range(MOST_SETS + 1)), "set_starts": np.zeros(MOST_SETS + 2, dtype=np.int32)},
    ],
)
def test_inconsistent_constraints_are_refused(fields):
    with pytest.raises(MalformedMessage):
        checked_constraints("shop", offer(**fields))


@pytest.mark.parametrize("wrong", [lambda taken: taken[:-1], lambda taken: taken + 100, lambda taken: taken - 100])
def test_a_taken_candidate_must_be_one_of_the_tied(wrong, monkeypatch):
    tables, config = problem(2, **LIMITS)

    def answered(message):
        if isinstance(message, SplitAnswer) and len(message.taken):
            return dataclasses.replace(message, taken=wrong(message.taken))
        return message

    with pytest.raises(MalformedMessage, match="tied"):
        intercepted(monkeypatch, "paillier", tables, config, answered)


def test_nobody_names_what_it_took_unasked(monkeypatch):
    tables, config = problem(2)

    def answered(message):
        return dataclasses.replace(message, taken=ints(0)) if isinstance(message, SplitAnswer) else message

    with pytest.raises(MalformedMessage, match="nobody asked"):
        intercepted(monkeypatch, "plain", tables, config, answered)


@pytest.mark.parametrize("changes", [{}, {"colsample_bylevel": 0.5}])
def test_columns_of_levels_are_those_of_the_job(changes, monkeypatch):
    tables, config = problem(2, **changes)
    tried = []

    def asked(message):
        if isinstance(message, BeginRound):
            tried.append(message)

    expected = intercepted(monkeypatch, "paillier", tables, config, asked=asked)
    assert expected == sha(train(tables, config))
    shape = tried[0].levels.shape
    assert shape == ((4, 3) if changes else (0, 0))

    class Bending(MemoryChannel):
        def send(self, message):
            if isinstance(message, BeginRound):
                for levels in (np.ones((4, 3 if not changes else 2), np.uint8), np.full(shape or (4, 3), 2, np.uint8)):
                    if levels.size:
                        with pytest.raises(MalformedMessage, match="levels"):
                            self._handler(dataclasses.replace(message, levels=levels))
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Bending)
    assert sha(train(tables, config, "paillier", unsafe_noise_seed=0)) == expected


# --- jobs -----------------------------------------------------------------------------------------------------------


def job_of(protocol, roles, **training):
    parties = {name: JobParty(address="127.0.0.1:1", role=role) for name, role in roles.items()}
    return Job("credit", parties, protocol=protocol, training=TrainingConfig.from_dict(training))


def test_a_vertical_job_leaves_without_the_names_of_columns():
    job = job_of("lattice", {"bank": "active", "shop": "passive"}, monotone_constraints={"salary": 1}, max_depth=3)
    shared = job.shared()
    assert "salary" not in shared.text()
    assert "salary" in job.text()
    assert shared.training == TrainingConfig(max_depth=3)
    horizontal = job_of("secagg", {"hub": "server", "a": "participant", "b": "participant"}, **LIMITS)
    assert horizontal.shared().training.monotone_constraints == LIMITS["monotone_constraints"]


def test_two_directions_of_one_column_are_refused():
    given = Constraints({"salary": 1})
    assert given.joined(Constraints({"salary": 1, "age": -1})).monotone == {"salary": 1, "age": -1}
    with pytest.raises(UnsupportedCombination, match="two directions"):
        given.joined(Constraints({"salary": -1}))


def test_sampled_columns_keep_their_constraints():
    constraints = ColumnConstraints(directions(1, 0, -1, 1), {"s": ints(0, 2, 3)})
    some = constraints.subset(ints(2, 3))
    assert some.direction.tolist() == [-1, 1]
    assert some.sets["s"].tolist() == [0, 1]
    assert constraints.subset(None) is constraints
