"""mal with sample weights, validation rows and early stopping: the model of pooled rows, and what a peer cannot do."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import make_columns, make_labels
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import (
    EmptyTable,
    InvalidParameter,
    MalformedMessage,
    PeerUnreachable,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, HorizontalFederation, simulate_training
from veilboost.protocols.mal.masks import BucketSpace, guard_rows
from veilboost.protocols.mal.messages import MaskedRows, MetricsRequest, RoundMetrics
from veilboost.protocols.mal.parameters import MOST_WEIGHTS

pytestmark = pytest.mark.fast

ROWS, EDGES = 600, [300, 500]
QUIET = {"epsilon": 0, "guard": "allow"}


def config_of(options=None, **changes):
    values = {"objective": "binary", "n_estimators": 12, "max_bin": 8} | changes
    return TrainingConfig.from_dict(values | {"options": QUIET if options is None else options})


def whole(name="binary", weights=None, seed=4):
    columns = make_columns(seed, rows=ROWS, numeric=4, categorical=1, missing=0.05)
    table = PartyTable(np.arange(ROWS), tuple(columns), make_labels(seed, columns, name))
    if weights is not None:
        table = replace(table, weight=np.random.default_rng(seed).choice(weights, size=ROWS))
    return table


def dealt(table):
    return {f"p{at}": table.take(rows) for at, rows in enumerate(np.split(np.arange(table.rows), EDGES))}


def masks_of(held_out):
    return None if held_out is None else dict(zip(("p0", "p1", "p2"), np.split(held_out, EDGES), strict=True))


def plain_of(table, config, held_out=None):
    plain = replace(config, max_depth=1, binning="width", options={})
    return simulate_training({"a": table}, "a", "plain", plain, held_out=held_out)


def validating():
    return np.arange(ROWS) % 4 == 0


def federation_of(table=None, held_out=None, **changes):
    return HorizontalFederation(
        "mal", dealt(whole() if table is None else table), config_of(**changes), held_out=masks_of(held_out), coded=True
    )


def bent(side, kind, change):
    """Change the answers of this kind, now or when their promise is called for."""
    handle = side.handle

    def changed(answer):
        return change(answer) if isinstance(answer, kind) else answer

    def handle_and_change(message):
        reply = handle(message)
        return (lambda: changed(reply())) if callable(reply) else changed(reply)

    side.handle = handle_and_change


# --- the model of pooled rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("held_out", [None, validating()], ids=["all rows", "some held out"])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0], [0.25, 1.0, 3.0], [0.0, 1.0]], ids=str)
@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_the_model_is_that_of_pooled_weighted_rows(name, weights, held_out):
    table, config = whole(name, weights), config_of(objective=name)
    run = simulate_training(dealt(table), SERVER, "mal", config, held_out=masks_of(held_out))
    assert run.model.sha256() == join(plain_of(table, config, held_out).shares).sha256()
    if weights is not None:
        assert run.model.sha256() != plain_of(replace(table, weight=None), config, held_out).model.sha256()


@pytest.mark.parametrize(
    ("name", "weights"), [("binary", [0.3, 0.7]), ("regression", [0.3, 0.7]), ("regression", [1, 2])]
)
def test_other_weights_and_numbers_give_the_same_trees_up_to_rounding(name, weights):
    table, config = whole(name, weights), config_of(objective=name, gradient_bits=20)
    run, plain = simulate_training(dealt(table), SERVER, "mal", config), plain_of(table, config)
    for tree, other in zip(run.model.trees, join(plain.shares).trees, strict=True):
        assert np.array_equal(tree.feature, other.feature)
        assert np.allclose(tree.weight, other.weight, rtol=1e-4, atol=1e-3)


def test_one_participant_may_have_weights_and_another_none():
    table = whole(weights=[1.0, 2.0])
    table.weight[300:] = 1.0
    parts = dealt(table)
    parts = {name: part if name == "p0" else replace(part, weight=None) for name, part in parts.items()}
    run = simulate_training(parts, SERVER, "mal", config_of())
    assert run.model.sha256() == join(plain_of(table, config_of()).shares).sha256()


@pytest.mark.parametrize(
    ("name", "metric"),
    [("binary", "logloss"), ("binary", "error"), ("multiclass", "merror"), ("regression", "rmse")],
)
def test_the_metric_is_that_of_pooled_validation_rows(name, metric):
    table, held_out = whole(name, [1.0, 2.0]), validating()
    config = config_of(objective=name, eval_metric=metric)
    run = simulate_training(dealt(table), SERVER, "mal", config, held_out=masks_of(held_out))
    plain = plain_of(table, config, held_out)
    expected = [result.validation for result in plain.history]
    tolerance = 1e-3 if name == "regression" else 1e-12  # numbers are summed before they meet the grid
    assert [result.validation for result in run.history] == pytest.approx(expected, rel=tolerance)
    assert run.outcome.metric == metric


def test_training_stops_when_validation_says_so():
    table, held_out = whole(), validating()
    config = config_of(n_estimators=80, learning_rate=1.0, eval_metric="error", early_stopping_rounds=2)
    run = simulate_training(dealt(table), SERVER, "mal", config, held_out=masks_of(held_out))
    plain = plain_of(table, config, held_out)
    assert run.model.sha256() == join(plain.shares).sha256()
    assert len(run.model.trees) < len(run.history) == len(plain.history) < 80
    assert all(join({"model": share}).sha256() == run.model.sha256() for share in run.shares.values())


def test_held_out_rows_do_not_leave_their_participant():
    """Neither as rows nor as extremes."""
    table, held_out = whole(), validating()
    wild = table.columns[0].values.copy()
    wild[held_out] = 1e6
    changed = replace(table, columns=(replace(table.columns[0], values=wild), *table.columns[1:]))
    changed = replace(changed, label=np.where(held_out, 1 - table.label, table.label))
    runs = [
        simulate_training(dealt(each), SERVER, "mal", config_of(), held_out=masks_of(held_out), record="payload")
        for each in (table, changed)
    ]
    assert runs[0].model.sha256() == runs[1].model.sha256()
    assert [report["rows"] for report in runs[0].outcome.reports.values()] == [225, 150, 75]


# --- masks and the guard --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.integers(10, 80), st.integers(1, 4), st.integers(2, 6), st.integers(1, 4))
def test_masks_cancel_in_every_bucket_among_rows_of_equal_weight(seed, rows, columns, width, classes):
    rng = np.random.default_rng(seed)
    buckets, of = (
        rng.integers(n, size=shape).astype(np.uint8) for n, shape in ((width, (rows, columns)), (classes, rows))
    )
    space = BucketSpace(buckets, np.full(columns, width), of)
    dense = np.stack(
        [
            ((buckets[:, f] == k) & (of == c)).astype(float)
            for f in range(columns)
            for k in range(width)
            for c in range(classes)
        ]
    )
    assert space.rank == np.linalg.matrix_rank(dense)
    projection = np.linalg.pinv(dense) @ dense
    np.testing.assert_allclose(space.leverage(), projection.diagonal(), atol=1e-7)
    mask = space.off(rng.normal(size=rows))
    np.testing.assert_allclose(dense @ mask, 0, atol=1e-9)


@pytest.mark.parametrize("policy", ["merge", "drop"])
def test_the_guard_counts_the_sums_of_each_weight(policy):
    rng = np.random.default_rng(0)
    buckets, widths = rng.integers(8, size=(400, 4)).astype(np.uint8), np.full(4, 8)
    of = (np.arange(400) % 3).astype(np.uint8)
    limit = float(np.quantile(BucketSpace(buckets, widths, of).leverage(), 0.99))
    assert not guard_rows(buckets, widths, "allow", limit).exposed  # without weights all rows stay as they are
    found = guard_rows(buckets, widths, policy, limit, of)
    assert found.merged_cells + (~found.kept).sum() > 0
    assert BucketSpace(found.buckets, widths, of[found.kept]).leverage().max() <= limit + 1e-9


# --- refusals -------------------------------------------------------------------------------------------------


def test_weights_that_are_too_many_or_tell_labels_are_refused():
    table = replace(whole(), weight=1.0 + np.arange(ROWS) % (MOST_WEIGHTS + 1))
    with pytest.raises(UnsupportedCombination, match="different sample weights"):
        simulate_training(dealt(table), SERVER, "mal", config_of())
    table = replace(whole(), weight=1.0 + whole().label)
    with pytest.raises(UnsupportedCombination, match="same label"):
        simulate_training(dealt(table), SERVER, "mal", config_of({"epsilon": 0}))
    assert simulate_training(dealt(table), SERVER, "mal", config_of()).model.trees  # the guard allows it


def test_validation_that_mal_cannot_do_is_refused():
    with pytest.raises(InvalidParameter, match="validation rows"):
        federation_of(early_stopping_rounds=2).train()
    with pytest.raises(UnsupportedCombination, match="auc is no mean"):
        federation_of(held_out=validating(), eval_metric="auc")
    with pytest.raises(EmptyTable, match="held out"):
        federation_of(held_out=np.arange(ROWS) < 300)
    assert federation_of(eval_metric="auc").train().metric == ""  # nothing is measured


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: replace(rows, weights=np.array([1.0, -1.0])),
        lambda rows: replace(rows, weights=np.array([1.0, np.nan])),
        lambda rows: replace(rows, weights=np.arange(MOST_WEIGHTS + 1.0)),
        lambda rows: replace(rows, weights=rows.weights[:1]),
        lambda rows: replace(rows, weights=rows.weights[:0]),
        lambda rows: replace(rows, weight_of=rows.weight_of[1:]),
        lambda rows: replace(rows, weight_of=rows.weight_of[:0]),
        lambda rows: replace(rows, weight_of=rows.weight_of[::-1].copy()),  # masks do not cancel among these rows
    ],
)
def test_weights_of_no_table_are_refused(change):
    federation = federation_of(whole(weights=np.array([1.0, 3.0])))
    bent(federation.participants["p1"], MaskedRows, change)
    with pytest.raises(MalformedMessage, match="p1"):
        federation.train()


@pytest.mark.parametrize(
    "change",
    [
        lambda found: replace(found, terms=found.terms[1:]),
        lambda found: replace(found, terms=found.terms * np.nan),
        lambda found: replace(found, weight=-1.0),
    ],
)
def test_metrics_that_are_no_metrics_are_refused(change):
    federation = federation_of(held_out=validating())
    bent(federation.participants["p1"], RoundMetrics, change)
    with pytest.raises(MalformedMessage, match="metrics"):
        federation.train()


def test_a_participant_measures_one_model_once():
    federation = federation_of(held_out=validating())
    side, seen = federation.participants["p0"], []
    handle = side.handle

    def watched(message):
        if not isinstance(message, MetricsRequest):
            return handle(message)
        booked = len(federation.accounts["p0"].events)
        first, again = handle(message), handle(message)
        assert again is first
        assert len(federation.accounts["p0"].events) == booked + 1
        assert federation.accounts["p0"].events[-1].count == 12
        with pytest.raises(UnexpectedMessage, match="second"):
            handle(replace(message, weight=message.weight * 2))
        seen.append(message)
        return first

    side.handle = watched
    federation.train()
    with pytest.raises(UnexpectedMessage, match="end of training"):
        handle(seen[0])
    fresh = federation_of(held_out=validating()).participants["p0"]
    with pytest.raises(UnexpectedMessage, match="before rows"):
        fresh.handle(seen[0])


def test_a_restarted_participant_books_the_metric_of_another_model():
    """A server that resumes a job could ask for the metrics of another model each time."""
    federation = federation_of(held_out=validating())
    side, seen = federation.participants["p0"], []
    handle = side.handle
    side.handle = lambda message: (seen.append(message), handle(message))[1]
    federation.train()
    requests = {type(message).__name__: message for message in seen}
    rows, measured = requests["RowsRequest"], requests["MetricsRequest"]
    for change, expected in ((lambda m: m, 1), (lambda m: replace(m, weight=m.weight * 2), 2)):
        again = type(side)(side._context)
        again._answered = rows, side._answered[1]
        again.handle(change(measured))
        found = [event for event in federation.accounts["p0"].events if event.release == "metric of validation rows"]
        assert len(found) == expected
    assert federation.accounts["p0"]._begun["metric of validation rows"] == 3


def other_trees(message, count):
    """The model with the first or no tree, or with all trees twice."""
    parts = ("sizes", "left", "weight", "gain", "cover", "feature", "threshold", "default_left", "set_of")
    return replace(message, **{name: np.tile(getattr(message, name), count) for name in parts})


def about(message, **changes):
    return replace(message, about=json.dumps(json.loads(message.about) | changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: other_trees(m, 0), "other trees"),
        (lambda m: other_trees(m, 2), "other trees"),  # more rounds would be more releases than are booked
        (lambda m: about(m, trees_per_round=2), "inconsistent"),
        (lambda m: about(m, objective="regression"), "another loss"),
        (lambda m: about(m, columns=json.loads(m.about)["columns"][::-1]), "other columns"),
        (lambda m: about(m, columns=[]), "inconsistent"),
        (lambda m: replace(m, left=m.left * 0), "inconsistent"),
    ],
)
def test_a_model_that_is_not_of_the_job_is_not_measured(change, reason):
    federation = federation_of(held_out=validating())
    side = federation.participants["p0"]
    handle = side.handle
    side.handle = lambda message: handle(change(message) if isinstance(message, MetricsRequest) else message)
    with pytest.raises(MalformedMessage, match=reason):
        federation.train()


def test_a_participant_that_is_lost_before_it_measured_is_left_out():
    federation = federation_of(held_out=validating())
    side = federation.participants["p1"]
    handle = side.handle

    def gone(message):
        if isinstance(message, MetricsRequest):
            raise PeerUnreachable("p1 is gone")
        return handle(message)

    side.handle = gone
    run = federation.train()
    assert set(run.outcome.dropped) == {"p1"}
    assert {"p0", "p2"} <= set(run.shares)
    assert all(np.isfinite(result.validation) for result in run.history)
