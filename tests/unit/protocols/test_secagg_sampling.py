"""secagg: row sampling by ids, and metrics that rank rows from summed histograms of scores."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_rows import trained_on_drawn_rows
from support import make_columns, make_labels
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, HorizontalFederation, simulate_training
from veilboost.protocols.horizontal.sampling import RowSampler
from veilboost.protocols.secagg.messages import MaskedMetric, MaskedScores
from veilboost.protocols.secagg.shared import SCORE_BINS, ranking_metric, score_histogram

pytestmark = pytest.mark.fast


def whole(name="binary", rows=240, seed=3):
    columns = make_columns(seed, rows=rows, numeric=3, categorical=1, missing=0.1)
    return PartyTable(np.arange(1000, 1000 + rows), tuple(columns), make_labels(seed, columns, name))


def config_of(**changes):
    return TrainingConfig.from_dict({"objective": "binary", "n_estimators": 4, "max_depth": 3, "max_bin": 8} | changes)


def dealt(table, edges):
    places = np.split(np.arange(table.rows), edges)
    return {f"p{at}": table.take(rows) for at, rows in enumerate(places)}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    name=st.sampled_from(["binary", "multiclass", "regression", "poisson"]),
    subsample=st.sampled_from([0.2, 0.5, 0.9]),
    weighted=st.booleans(),
    validates=st.booleans(),
    edges=st.lists(st.integers(1, 239), min_size=1, max_size=5, unique=True).map(sorted),
    changes=st.fixed_dictionaries(
        {},
        optional={
            "colsample_bytree": st.just(0.6),
            "categories": st.sampled_from(["sets", "onehot", "ordinal"]),
            "binning": st.sampled_from(["width", "quantile"]),
            "reg_lambda": st.just(0.0),
            "order": st.just("first"),
            "max_delta_step": st.just(0.4),
            "random_state": st.integers(0, 2**53 - 1),
        },
    ),
)
def test_sampled_rows_train_the_model_of_pooled_rows(seed, name, subsample, weighted, validates, edges, changes):
    table, rng = whole(name, seed=seed), np.random.default_rng(seed)
    if weighted:
        table = replace(table, weight=rng.choice([0.25, 1.0, 3.0], size=table.rows))
    config = config_of(objective=name, subsample=subsample, n_estimators=3, **changes)
    held_out = rng.random(table.rows) < 0.2 if validates else None
    parts = dealt(table, edges)
    masks = None if held_out is None else dict(zip(parts, np.split(held_out, edges), strict=True))
    if masks is not None and any(mask.all() for mask in masks.values()):
        return
    run = simulate_training(parts, SERVER, "secagg", config, held_out=masks)
    plain = trained_on_drawn_rows(table, config, held_out)
    assert run.model.sha256() == join(plain.shares).sha256()
    assert run.model.sha256() != trained_on_drawn_rows(table, replace(config, subsample=1.0), held_out).model.sha256()


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50, unique=True), st.integers(0, 50), st.data())
def test_whether_a_row_is_drawn_depends_on_its_id_and_the_round_only(ids, number, data):
    config = config_of(subsample=0.5, random_state=7)
    every, some = np.array(ids), np.array(data.draw(st.permutations(ids)))[: max(1, len(ids) // 2)]
    drawn = dict(zip(ids, RowSampler(every, config).drawn(number).tolist(), strict=True))
    assert RowSampler(some, config).drawn(number).tolist() == [drawn[each] for each in some.tolist()]
    assert RowSampler(every.astype(str), config).drawn(number).tolist() == list(drawn.values())


def test_rows_are_drawn_at_the_rate_of_the_job_and_anew_in_each_round():
    """The generator is fixed, so nothing here is left to chance."""
    ids = np.arange(20_000)
    for share in (0.1, 0.5, 0.9):
        sampler = RowSampler(ids, config_of(subsample=share))
        drawn = np.stack([sampler.drawn(number) for number in range(20)])
        spread = np.sqrt(share * (1 - share) / len(ids))
        assert np.abs(drawn.mean(axis=1) - share).max() < 5 * spread
        both = np.mean(drawn[:-1] & drawn[1:])
        assert abs(both - share**2) < 5 * np.sqrt(share**2 / drawn[1:].size)
        assert not np.array_equal(drawn[0], RowSampler(ids, config_of(subsample=share, random_state=1)).drawn(0))


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0])
def test_a_round_without_any_row_adds_nothing(reg_lambda):
    table = whole(rows=4)
    config = config_of(subsample=1e-9, reg_lambda=reg_lambda)
    run = simulate_training(dealt(table, [2]), SERVER, "secagg", config)
    assert [tree.weight.tolist() for tree in run.model.trees] == [[0.0]] * 4


# --- metrics that rank rows -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["auc", "aucpr", "ks"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_ranking_metric_is_close_to_that_of_pooled_rows(metric, weighted):
    table, rng = whole(rows=600), np.random.default_rng(1)
    if weighted:
        table = replace(table, weight=rng.choice([0.3, 1.0, 5.0], size=600))
    held_out = rng.random(600) < 0.5
    config = config_of(eval_metric=metric, n_estimators=6)
    masks = dict(zip(("p0", "p1", "p2"), np.split(held_out, [200, 400]), strict=True))
    federation = HorizontalFederation("secagg", dealt(table, [200, 400]), config, held_out=masks, coded=True)
    run = federation.train()
    plain = simulate_training({"a": table}, "a", "plain", config, held_out=held_out)
    assert run.model.sha256() == join(plain.shares).sha256()
    assert run.metric == metric
    expected = [result.validation for result in plain.history]
    assert [result.validation for result in run.history] == pytest.approx(expected, abs=0.01)
    sent = {entry.message for entry in federation.transcripts["p0"].entries}
    assert MaskedScores.type_name() in sent
    assert MaskedMetric.type_name() not in sent
    booked = {event.release for event in federation.accounts["p0"].events}
    assert "the distribution of scores of validation rows, by class" in booked
    assert "the metric of validation rows" not in booked


@given(
    st.lists(
        st.tuples(st.integers(-SCORE_BINS, SCORE_BINS), st.booleans(), st.sampled_from([0.25, 1.0, 4.0])), min_size=1
    )
)
def test_scores_in_different_intervals_are_ranked_exactly(rows):
    """Scores in the middle of intervals within the range: no two different ones are in the same interval."""
    places, positive, weight = (np.array(each) for each in zip(*rows, strict=True))
    margin = (np.clip(places, -SCORE_BINS // 2, SCORE_BINS // 2 - 1) + 0.5) / 128
    label = positive.astype(np.float64)
    half = len(rows) // 2
    parts = [
        score_histogram(margin[part], label[part], weight[part], 4.0) for part in (slice(None, half), slice(half, None))
    ]
    total = (parts[0] + parts[1]).view(np.int64)
    for name in ("auc", "aucpr", "ks"):
        metric = metric_named(name)
        assert ranking_metric(metric, total, 4.0) == pytest.approx(metric.function(label, margin, weight), nan_ok=True)


def test_scores_beyond_the_range_are_tied():
    margin = np.array([-1e9, -17.0, 17.0, 1e9])
    found = score_histogram(margin, np.array([0.0, 0, 1, 1]), np.ones(4), 1.0).view(np.int64)
    assert found[0, 0] == found[1, -1] == 2 << 30
    assert found.sum() == 4 << 30


def test_early_stopping_by_a_ranking_metric():
    table, held_out = whole(rows=400), np.arange(400) % 3 == 0
    config = config_of(n_estimators=40, learning_rate=0.9, eval_metric="auc", early_stopping_rounds=2)
    masks = {"p0": held_out[:200], "p1": held_out[200:]}
    run = simulate_training(dealt(table, [200]), SERVER, "secagg", config, held_out=masks)
    values = [result.validation for result in run.history]
    assert len(run.model.trees) == int(np.argmax(values)) + 1 < len(values) < 40


def test_sums_that_are_not_a_histogram_are_refused():
    table, held_out = whole(), np.arange(240) % 3 == 0
    masks = {"p0": held_out[:120], "p1": held_out[120:]}
    config = config_of(eval_metric="auc")
    for wrong in (lambda sums: sums - np.uint64(1 << 40), lambda sums: sums[:, 1:]):
        federation = HorizontalFederation("secagg", dealt(table, [120]), config, held_out=masks)
        for role in federation.participants.values():

            def lie(message, handle=role.handle, wrong=wrong):
                answer = handle(message)
                return replace(answer, weights=wrong(answer.weights)) if isinstance(answer, MaskedScores) else answer

            role.handle = lie
        with pytest.raises(MalformedMessage):
            federation.train()


@pytest.mark.parametrize(("name", "metric"), [("regression", "auc"), ("multiclass", "ks"), ("multiclass", "rmse")])
def test_a_metric_that_does_not_fit_the_loss_is_refused(name, metric):
    with pytest.raises(UnsupportedCombination, match="does not fit"):
        simulate_training(dealt(whole(name), [100]), SERVER, "secagg", config_of(objective=name, eval_metric=metric))
