"""Joint explanations: equal to XGBoost's contributions, and no more is shown than the owner's level allows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels, split_among, train
from veilboost.config import TrainingConfig
from veilboost.errors import MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer import explaining
from veilboost.infer.explaining import ExplanationResponder, _distinct, _Slots, explain_joint, split_columns
from veilboost.infer.messages import (
    EXPLANATION_MESSAGES,
    AllSplits,
    AllSplitsOfRows,
    BeginPrediction,
    RouteRequest,
    SplitColumns,
    SplitColumnsRequest,
)
from veilboost.model import share
from veilboost.model.export import to_xgboost_json
from veilboost.model.joined import join
from veilboost.wire.channel import MemoryChannel, Peers
from veilboost.wire.message import Catalogue, revealed
from veilboost.wire.transcript import Transcript

pytestmark = pytest.mark.fast

ROWS = 130


def trained(objective="binary", parties=3, **options):
    columns = make_columns(9, 300, numeric=4, categorical=2, missing=0.15)
    config = TrainingConfig.from_dict({"objective": objective, "n_estimators": 5, "max_depth": 4} | options)
    return dict(train(split_among(columns, make_labels(9, columns, objective), parties), config).shares)


def fresh(parties):
    columns = make_columns(10, ROWS, numeric=4, categorical=2, missing=0.3)
    return columns, split_among(columns, np.zeros(ROWS), parties)


def peers_of(shares, tables, levels, change=lambda name, answer: answer):
    """Channels to passive parties; `change` alters what one answers."""

    def channel(name):
        responder = ExplanationResponder(
            shares[name], shares[name].matrix(tables[name].columns, ROWS), levels.get(name, "names")
        )
        return MemoryChannel(
            lambda message: change(name, responder.handle(message)),
            Catalogue(EXPLANATION_MESSAGES),
            Transcript("p0"),
            Transcript(name),
        )

    return Peers({name: channel(name) for name in shares if name != "p0"})


def explained(shares, tables, levels=None, **options):
    peers = peers_of(shares, tables, levels or {})
    return explain_joint(shares["p0"], tables["p0"].columns, ROWS, peers, **options)


def xgboosts(shares, columns):
    """XGBoost's contributions (rows, groups, features + 1) for the exported model, and the owner of each feature."""
    xgboost = pytest.importorskip("xgboost")
    model = join(shares)
    booster = xgboost.Booster(model_file=bytearray(json.dumps(to_xgboost_json(model)).encode()))
    encoded = np.stack([values for share in model.shares for values in share.encode(columns)], axis=1)
    rows = xgboost.DMatrix(encoded, feature_names=booster.feature_names)
    found = booster.predict(rows, pred_contribs=True)
    return model, found if found.ndim == 3 else found[:, None]


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression"])
def test_equal_to_xgboosts_contributions(objective, parties):
    shares = trained(objective, parties)
    columns, tables = fresh(parties)
    model, theirs = xgboosts(shares, columns)
    names = [info.name for info in model.columns]
    found = explained(shares, tables)
    values = found.values if found.values.ndim == 3 else found.values[..., None]
    used = [names.index(name) for name in found.feature_names]
    np.testing.assert_allclose(values, theirs[:, :, used].transpose(0, 2, 1), atol=1e-5)
    np.testing.assert_allclose(found.base_values.reshape(ROWS, -1), theirs[..., -1], atol=1e-5)
    unused = [at for at in range(len(names)) if at not in used]
    assert not theirs[:, :, unused].any(), "columns that are left out contribute nothing"
    assert [model.skeleton.parties[model.column_owner[at]] for at in used] == list(found.parties)
    np.testing.assert_allclose(found.margins, model.margins(columns), atol=1e-9)


@pytest.mark.parametrize("objective", ["binary", "multiclass"])
def test_sums_of_a_party_equal_the_sums_of_xgboosts(objective):
    shares = trained(objective)
    columns, tables = fresh(3)
    model, theirs = xgboosts(shares, columns)
    found = explained(shares, tables, {"p1": "party", "p2": "columns"})
    own = [info.name for info in shares["p0"].columns]
    used = len(np.unique(shares["p2"].records.feature))
    assert found.feature_names == (*own, "p1", *(f"p2#{number}" for number in range(1, used + 1)))
    values = found.values if found.values.ndim == 3 else found.values[..., None]
    for at, party in enumerate(("p0", "p1", "p2")):
        ours = values[:, [each == party for each in found.parties]].sum(axis=1)
        np.testing.assert_allclose(ours, theirs[..., :-1][..., model.column_owner == at].sum(axis=2), atol=1e-5)


def test_rows_are_explained_in_batches_and_by_threads(monkeypatch):
    shares = trained()
    _, tables = fresh(3)
    expected = explained(shares, tables)
    monkeypatch.setattr(explaining, "ROWS_AT_ONCE", 24)
    np.testing.assert_array_equal(explained(shares, tables, threads=3).values, expected.values)


def test_values_are_shown_where_the_explaining_party_has_them():
    shares = trained()
    columns, tables = fresh(3)
    found = explained(shares, tables, {"p1": "party"})
    for at, (party, name) in enumerate(zip(found.parties, found.feature_names, strict=True)):
        if party != "p0":
            assert all(value is None or np.isnan(value) for value in found.data[:, at])
            continue
        column = next(each for each in columns if each.name == name)
        if column.categories is None:
            np.testing.assert_array_equal(found.data[:, at].astype(np.float32), column.values)
        else:
            assert found.data[:, at].tolist() == [(*column.categories, None)[code] for code in column.values]


# --- what a level reveals ---------------------------------------------------------------------------------------------


def test_the_level_party_links_splits_within_a_tree_only():
    share = trained(parties=2, n_estimators=8)["p1"]
    records = share.records
    answer = split_columns(share, "party")
    assert len(revealed(answer)) == 1
    assert not answer.names
    for tree in np.unique(records.tree):
        own = records.tree == tree
        same = records.feature[own][:, None] == records.feature[own]
        numbers = answer.column[own]
        np.testing.assert_array_equal(numbers[:, None] == numbers, same)
        first = numbers[np.sort(np.unique(numbers, return_index=True)[1])]
        assert first.tolist() == list(range(len(first))), "a number depends on nothing but equality in its tree"
    # The same message comes from a share whose columns are in another order.
    order = np.random.default_rng(0).permutation(len(share.columns))
    other = replace(share, records=replace(records, feature=np.argsort(order)[records.feature].astype(np.int32)))
    np.testing.assert_array_equal(split_columns(other, "party").column, answer.column)


def test_pseudonyms_hold_for_the_model_and_names_come_only_with_their_level():
    share = trained(parties=2)["p1"]
    pseudonyms, named = split_columns(share, "columns"), split_columns(share, "names")
    assert pseudonyms.names == ()
    assert [len(revealed(each)) for each in (pseudonyms, named)] == [2, 3]
    np.testing.assert_array_equal(pseudonyms.column, named.column)
    assert [named.names[number] for number in named.column] == [
        share.columns[feature].name for feature in share.records.feature
    ]


@pytest.mark.parametrize("pairs", [1, 300, 1 << 16])
def test_assignments_do_not_depend_on_how_many_are_computed_at_once(monkeypatch, pairs):
    records = (part := trained(parties=2)["p1"]).records
    values = part.matrix(fresh(2)[1]["p1"].columns, ROWS)
    monkeypatch.setattr(share, "_PAIRS_AT_ONCE", pairs)
    rows = np.arange(ROWS, dtype=np.int32)
    one_by_one = [records.goes_left(values, np.full(ROWS, at, np.int32), rows) for at in range(records.count)]
    np.testing.assert_array_equal(records.all_left(values), np.packbits(np.stack(one_by_one), axis=1))
    assert records.all_left(values[:, :0]).shape == (records.count, 0)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_a_responder_refuses_other_rows_and_other_requests():
    shares = trained(parties=2)
    _, tables = fresh(2)
    responder = ExplanationResponder(shares["p1"], shares["p1"].matrix(tables["p1"].columns, ROWS), "party")
    for begin, end in ((-1, 5), (5, 5), (7, 5), (0, ROWS + 1)):
        with pytest.raises(MalformedMessage):
            responder.handle(AllSplitsOfRows(begin, end))
    with pytest.raises(MalformedMessage):
        responder.handle(BeginPrediction(ROWS - 1))
    with pytest.raises(UnexpectedMessage):
        responder.handle(RouteRequest(*(np.empty(0, np.int32),) * 5))
    assert isinstance(responder.handle(SplitColumnsRequest()), SplitColumns)


@pytest.mark.parametrize(
    ("kind", "field", "change"),
    [
        (SplitColumns, "column", lambda column: column[:-1]),
        (SplitColumns, "column", lambda column: column - 1),
        (SplitColumns, "column", lambda column: column + 10_000),
        (SplitColumns, "names", lambda names: names[:-1]),
        (SplitColumns, "names", lambda names: names[:1] * len(names)),
        (SplitColumns, "names", lambda names: ("", *names[1:])),
        (SplitColumns, "names", lambda names: ("\x1b[2J", *names[1:])),
        (AllSplits, "tree", lambda tree: tree + 1),
        (AllSplits, "node", lambda node: node[:-1]),
        (AllSplits, "left", lambda left: left[:, :-1]),
        (AllSplits, "left", lambda left: left[:-1]),
    ],
)
def test_wrong_answers_of_a_passive_party_are_refused(kind, field, change):
    shares = trained(parties=2)
    _, tables = fresh(2)

    def changed(name, answer):
        return replace(answer, **{field: change(getattr(answer, field))}) if isinstance(answer, kind) else answer

    with pytest.raises(MalformedMessage, match="p1"):
        explain_joint(shares["p0"], tables["p0"].columns, ROWS, peers_of(shares, tables, {}, changed))


def test_only_the_active_party_with_all_others_can_explain():
    shares = trained()
    _, tables = fresh(3)
    for party in ("p0", "p1"):
        with pytest.raises(MissingShare):
            explain_joint(shares[party], tables[party].columns, ROWS, Peers({}))


def rename(shares, tables, party, names):
    """Give columns of a party, by position, other names."""
    for holder in (shares, tables):
        columns = enumerate(holder[party].columns)
        columns = tuple(replace(each, name=names.get(at, each.name)) for at, each in columns)
        holder[party] = replace(holder[party], columns=columns)


@pytest.mark.parametrize("others", [{}, {1: "p1.same"}])
def test_names_that_two_parties_use_are_told_apart(others):
    """Also if a column is named as another party's column is with the name of that party."""
    shares = trained(parties=2)
    _, tables = fresh(2)
    rename(shares, tables, "p0", {0: "same"} | others)
    rename(shares, tables, "p1", {int(shares["p1"].records.feature[0]): "same"})
    found = explained(shares, tables)
    assert {"p0.same", "p1.same"} < set(found.feature_names)
    assert len(set(found.feature_names)) == len(found.feature_names)


def test_names_that_cannot_be_told_apart_are_refused():
    found = {"a.b": _Slots(*np.zeros((2, 1), np.int32), ("c",)), "a": _Slots(*np.zeros((2, 1), np.int32), ("b.c",))}
    assert _distinct(found) == ["c", "b.c"]
    found["d"] = _Slots(*np.zeros((2, 2), np.int32), ("c", "b.c"))
    with pytest.raises(MalformedMessage, match="same name"):
        _distinct(found)
