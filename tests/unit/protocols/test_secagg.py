"""secagg: bit-identical to pooled rows, sums that tell nothing alone, exact sums, searches, refusals, losses."""

import math
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support import make_columns, make_labels
from veilboost.boost.bins import CountsDecrease, cuts_by_counting, propose_cuts
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import (
    EmptyTable,
    InvalidParameter,
    LabelOutOfRange,
    MalformedMessage,
    PeerUnreachable,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.fixedpoint import from_ordered, to_ordered
from veilboost.model.joined import join
from veilboost.party.simulation import SERVER, HorizontalFederation, simulate_training
from veilboost.privacy.ledger import worst_epsilon
from veilboost.protocols.horizontal.roles import Trusting
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.secagg.messages import (
    CountsRequest,
    CutsFound,
    MaskedCounts,
    MaskedSums,
    MaskedTotals,
    ScaleRequest,
    SecaggGroup,
    SumsRequest,
)
from veilboost.protocols.secagg.server import SecaggServer
from veilboost.protocols.secagg.shared import (
    MOST_STEPS,
    SUM_BYTES,
    as_float,
    exact_sum,
    from_residue,
    most_values,
)
from veilboost.protocols.secagg.spec import SPEC
from veilboost.protocols.validation import settle
from veilboost.types import Column, Role

pytestmark = pytest.mark.fast

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def whole(name="binary", rows=300, seed=21):
    columns = make_columns(seed, rows=rows, numeric=4, categorical=2, missing=0.1)
    return PartyTable(np.arange(rows), tuple(columns), make_labels(seed, columns, name))


def dealt(table, sizes):
    edges = np.concatenate(([0], np.cumsum(sizes)))
    return {f"p{at}": table.take(np.arange(edges[at], edges[at + 1])) for at in range(len(sizes))}


def config_of(**changes):
    return TrainingConfig.from_dict({"objective": "binary", "n_estimators": 4, "max_depth": 3, "max_bin": 8} | changes)


def pooled(table, config):
    return join(simulate_training({"a": table}, "a", "plain", config).shares).sha256()


@pytest.mark.parametrize("binning", ["width", "quantile"])
@pytest.mark.parametrize("categories", ["sets", "onehot", "ordinal"])
@pytest.mark.parametrize("name", ["binary", "multiclass", "regression", "poisson"])
def test_the_model_is_that_of_pooled_rows(name, categories, binning):
    table = whole(name)
    config = config_of(objective=name, categories=categories, binning=binning, colsample_bytree=0.8)
    run = simulate_training(dealt(table, [100, 100, 100]), SERVER, "secagg", config)
    assert run.model.sha256() == pooled(table, config)
    assert all(join({"model": part}).sha256() == run.model.sha256() for part in run.shares.values())


@pytest.mark.parametrize(
    "changes",
    [
        {"max_depth": 6, "n_estimators": 8, "min_child_weight": 0.0},
        {"gamma": 3.0},
        {"reg_alpha": 2.0, "max_delta_step": 0.3},
        {"order": "first"},
        {"base_score": 0.3},
    ],
)
def test_other_parameters_too(changes):
    table = whole()
    config = config_of(**changes)
    run = simulate_training(dealt(table, [290, 7, 3]), SERVER, "secagg", config)
    assert run.model.sha256() == pooled(table, config)


def test_messages_survive_the_wire():
    table = whole()
    run = HorizontalFederation("secagg", dealt(table, [150, 150]), config_of(), coded=True).train()
    assert run.model.sha256() == pooled(table, config_of())


def test_one_answer_alone_looks_like_noise():
    """Twenty rows' sums are small numbers; the masked ones are spread over all of 64 bits."""
    federation = HorizontalFederation("secagg", dealt(whole(), [20, 280]), config_of(n_estimators=1))
    handle, seen = federation.participants["p0"].handle, []

    def watched(message):
        seen.append(handle(message))
        return seen[-1]

    federation.participants["p0"].handle = watched
    federation.train()
    words = np.concatenate([each.sums.reshape(-1) for each in seen if isinstance(each, MaskedSums)])
    assert len(words) > 100
    assert 0.4 < (words >> np.uint64(63)).mean() < 0.6
    assert len(np.unique(words)) == len(words)


def test_a_request_asked_again_gets_the_stored_answer():
    federation = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of())
    handle = federation.participants["p0"].handle

    def twice(message):
        first, second = handle(message), handle(message)
        assert second is first
        return second

    federation.participants["p0"].handle = twice
    assert federation.train().model.sha256() == pooled(whole(), config_of())


# --- weights and validation rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["binary", "multiclass", "regression", "poisson"])
def test_weighted_rows_give_the_model_of_pooled_weighted_rows(name):
    """Very different weights at one participant, none at another."""
    weight = np.exp(np.random.default_rng(1).normal(size=300) * 2)
    weight[200:] = 1.0
    table = replace(whole(name), weight=weight)
    parts = dealt(table, [100, 100, 100])
    parts["p2"] = replace(parts["p2"], weight=None)
    config = config_of(objective=name, min_child_weight=0.1)
    run = simulate_training(parts, SERVER, "secagg", config)
    assert run.model.sha256() == pooled(table, config)
    assert run.model.sha256() != pooled(replace(table, weight=None), config)


def test_weights_of_a_class():
    config = config_of(scale_pos_weight=7.0)
    run = simulate_training(dealt(whole(), [150, 150]), SERVER, "secagg", config)
    assert run.model.sha256() == pooled(whole(), config)


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("binary", "logloss"),
        ("binary", "error"),
        ("multiclass", "mlogloss"),
        ("multiclass", "merror"),
        ("regression", "rmse"),
        ("poisson", "mae"),
    ],
)
def test_validation_is_that_of_pooled_rows(name, metric):
    table = replace(whole(name), weight=np.random.default_rng(2).random(300) + 0.5)
    held_out = np.random.default_rng(3).random(300) < 0.3
    config = config_of(objective=name, eval_metric=metric)
    masks = {"p0": held_out[:150], "p1": held_out[150:]}
    federation = HorizontalFederation("secagg", dealt(table, [150, 150]), config, held_out=masks, coded=True)
    run = federation.train()
    plain = simulate_training({"a": table}, "a", "plain", config, held_out=held_out)
    assert run.model.sha256() == join(plain.shares).sha256()
    expected = [result.validation for result in plain.history]
    assert [result.validation for result in run.outcome.history] == pytest.approx(expected, rel=1e-12)


def test_training_stops_when_validation_says_so():
    table, held_out = whole(), np.arange(300) % 3 == 0
    config = config_of(n_estimators=60, learning_rate=0.9, eval_metric="logloss", early_stopping_rounds=3)
    masks = {"p0": held_out[:200], "p1": None}
    run = simulate_training(dealt(table, [200, 100]), SERVER, "secagg", config, held_out=masks)
    assert len(run.model.trees) < len(run.outcome.history) < 60
    only_first = np.concatenate((held_out[:200], np.zeros(100, dtype=bool)))
    plain = simulate_training({"a": table}, "a", "plain", config, held_out=only_first)
    assert run.model.sha256() == join(plain.shares).sha256()
    with pytest.raises(InvalidParameter, match="validation rows"):
        simulate_training(dealt(table, [200, 100]), SERVER, "secagg", config)
    with pytest.raises(EmptyTable):
        simulate_training(
            dealt(table, [200, 100]), SERVER, "secagg", config, held_out={"p0": np.ones(200, dtype=bool), "p1": None}
        )


# --- arithmetic -----------------------------------------------------------------------------------------------


@given(st.lists(FINITE, max_size=30))
def test_sums_of_floats_are_exact(values):
    total = exact_sum(np.array(values, dtype=np.float64))
    assert Fraction(total, 1 << 1074) == sum(map(Fraction, values), Fraction(0))
    assert from_residue(total % (1 << 8 * SUM_BYTES)) == total
    try:
        expected = math.fsum(values)
    except OverflowError:
        return
    assert as_float(total) == expected


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_float32_keeps_its_order_and_comes_back(values):
    array = np.array(values, dtype=np.float32)
    ordered = to_ordered(array)
    assert np.array_equal(np.argsort(ordered, kind="stable"), np.argsort(array + np.float32(0), kind="stable"))
    assert np.array_equal(from_ordered(ordered), array)


HEAVY = st.lists(st.tuples(st.floats(-1e6, 1e6, width=32), st.integers(1, 70)), min_size=1, max_size=40).map(
    lambda pairs: [value for value, times in pairs for _ in range(times)]
)
LIGHT = st.lists(st.floats(-1e6, 1e6, width=32) | st.integers(-4, 4).map(float), min_size=1, max_size=200)


def counting(column, asked_of):
    ordered = np.sort(to_ordered(column[~np.isnan(column)]))

    def count(asked):
        asked_of.append(max(len(keys) for keys in asked))
        return [ordered.searchsorted(keys, side="right") for keys in asked]

    return count


@settings(max_examples=300, deadline=None)
@given(LIGHT | HEAVY, st.integers(2, 40), st.sampled_from(["width", "quantile"]))
def test_cuts_are_those_of_pooled_values_ties_or_not(values, max_bin, binning):
    column = np.array(values, dtype=np.float32)
    asked = []
    (found,) = cuts_by_counting(1, max_bin, binning, most_values(max_bin), counting(column, asked))
    assert found.tobytes() == propose_cuts(column, None, max_bin, binning).tobytes()
    assert max(asked) <= most_values(max_bin)
    assert len(asked) <= MOST_STEPS


@pytest.mark.parametrize("max_bin", [2, 3, 8, 32, 256])
@pytest.mark.parametrize("base", [1.05, 1.3, 2.0])
def test_the_search_ends_in_time_where_frequencies_fall_from_value_to_value(max_bin, base):
    """The more often a share is made anew, the more steps: here nearly each value is heavy once those before are."""
    times = np.floor(base ** np.arange(0, np.log(1e5) / np.log(base))).astype(int)
    column = np.arange(len(times), dtype=np.float32).repeat(times) / 7
    asked = []
    (found,) = cuts_by_counting(1, max_bin, "quantile", most_values(max_bin), counting(column, asked))
    assert found.tobytes() == propose_cuts(column, None, max_bin, "quantile").tobytes()
    assert len(asked) <= MOST_STEPS // 2


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 12), st.sampled_from(["sets", "onehot", "ordinal"]), st.booleans())
def test_rows_with_ties_missing_values_and_weights_train_the_model_of_pooled_rows(seed, max_bin, categories, weighted):
    rng = np.random.default_rng(seed)
    table = whole(rows=120, seed=seed)
    columns = tuple(
        column if column.categories else replace(column, values=np.round(column.values * rng.choice([0.5, 1, 4])))
        for column in table.columns
    )
    weight = rng.choice([0.25, 1.0, 3.0], size=120) if weighted else None
    table = replace(table, columns=columns, weight=weight)
    config = config_of(max_bin=max_bin, categories=categories, n_estimators=2)
    first, second = np.sort(rng.choice(np.arange(1, 120), 2, replace=False)).tolist()
    run = simulate_training(dealt(table, [first, second - first, 120 - second]), SERVER, "secagg", config)
    assert run.model.sha256() == pooled(table, config)


def test_a_column_without_values_has_no_cuts():
    def none(asked):
        return [np.zeros(len(keys), dtype=np.int64) for keys in asked]

    assert [len(cuts) for cuts in cuts_by_counting(2, 8, "quantile", 30, none)] == [0, 0]
    assert [len(cuts) for cuts in cuts_by_counting(2, 8, "width", 30, none)] == [0, 0]
    assert cuts_by_counting(0, 8, "width", 30, none) == []


def test_counts_of_no_table_end_the_search():
    def falling(asked):
        return [np.arange(len(keys), dtype=np.int64)[::-1] for keys in asked]

    with pytest.raises(CountsDecrease):
        cuts_by_counting(1, 8, "quantile", 30, falling)


@pytest.mark.parametrize(
    ("message", "field", "change"),
    [
        (MaskedCounts, "counts", lambda sums: sums + np.uint64(1 << 40)),
        (MaskedTotals, "labels", lambda sums: np.hstack((sums[:, :-2], sums[:, -2:] ^ np.uint8(1 << 6)))),
    ],
)
def test_sums_of_no_table_are_refused(message, field, change, monkeypatch):
    """One participant adds to its masked sums, as a malicious one could."""
    asked = SecaggServer._ask

    def lie(self, request, kind):
        answers = dict(asked(self, request, kind))
        if kind is message:
            name = next(iter(answers))
            answers[name] = replace(answers[name], **{field: change(getattr(answers[name], field))})
        return answers

    monkeypatch.setattr(SecaggServer, "_ask", lie)
    with pytest.raises(MalformedMessage, match="not those of any table"):
        simulate_training(dealt(whole(), [100, 100, 100]), SERVER, "secagg", config_of(n_estimators=1))


def test_sums_of_another_number_of_classes_are_refused(monkeypatch):
    asked = SecaggServer._ask

    def lie(self, request, kind):
        answers = dict(asked(self, request, kind))
        if kind is MaskedTotals:
            name = next(iter(answers))
            answers[name] = replace(answers[name], labels=np.repeat(answers[name].labels, 2, axis=0))
        return answers

    monkeypatch.setattr(SecaggServer, "_ask", lie)
    with pytest.raises(MalformedMessage, match="another number of classes"):
        simulate_training(dealt(whole(), [100, 100, 100]), SERVER, "secagg", config_of(n_estimators=1))


# --- refusals and losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"weighted_bins": True}, {"sampling": "goss"}, {"min_node_rows": 2}])
def test_what_it_cannot_do_is_refused_on_input(changes):
    with pytest.raises(UnsupportedCombination):
        simulate_training(dealt(whole(), [150, 150]), SERVER, "secagg", config_of(**changes))


def test_rows_of_a_node_are_not_counted_so_their_least_number_is_refused():
    with pytest.raises(UnsupportedCombination, match="the number of rows of a node") as refused:
        settle(SPEC, config_of(min_node_rows=2))
    assert "set min_node_rows to 1" in str(refused.value)
    settle(SPEC, config_of(min_node_rows=1))


def test_one_participant_has_nobody_to_hide_among():
    with pytest.raises(InvalidParameter, match="two participants"):
        simulate_training({"p0": whole()}, SERVER, "secagg", config_of())


def test_labels_that_the_loss_is_not_defined_for():
    parts = dealt(whole(), [150, 150])
    bad = replace(parts["p1"], label=parts["p1"].label + 0.5)
    with pytest.raises(LabelOutOfRange):
        simulate_training({**parts, "p1": bad}, SERVER, "secagg", config_of())


@pytest.mark.parametrize("after", [0, 1, 2, 3, 12, 20], ids=lambda after: f"after {after} answers")
def test_a_lost_participant_ends_the_job_with_a_clear_error(after):
    federation = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of())
    handle, calls = federation.participants["p1"].handle, []

    def mortal(message):
        calls.append(message)
        if len(calls) > after:
            raise PeerUnreachable("p1 is gone")
        return handle(message)

    federation.participants["p1"].handle = mortal
    with pytest.raises(PeerUnreachable, match="p1 was lost") as lost:
        federation.train()
    assert "do not cancel" in str(lost.value)


def test_requests_out_of_turn_or_shape_are_refused():
    federation = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of())
    side, seen = federation.participants["p0"], []
    handle = side.handle

    def watched(message):
        seen.append(message)
        return handle(message)

    side.handle = watched
    federation.train()
    level = next(message for message in seen if isinstance(message, SumsRequest) and message.depth == 1)
    group = next(message for message in seen if isinstance(message, SecaggGroup))
    cuts = next(message for message in seen if isinstance(message, CutsFound))
    counts = CountsRequest(99, np.zeros((1, 1), dtype=np.uint32))
    none = np.empty(0, dtype=np.int32)
    fresh = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of()).participants["p0"]
    with pytest.raises(UnexpectedMessage):
        fresh.handle(counts)
    for message, error in [
        (group, UnexpectedMessage),
        (counts, UnexpectedMessage),
        (cuts, UnexpectedMessage),
        (replace(level, number=9, depth=0), UnexpectedMessage),
        (level, UnexpectedMessage),
        (ScaleRequest(none, none, none, none, none, none, none, 7), UnexpectedMessage),
        (MaskedSums(np.empty((0, 0, 2), dtype=np.uint64)), UnexpectedMessage),
    ]:
        with pytest.raises(error):
            handle(message)


@pytest.mark.parametrize("changes", [{}, {"colsample_bytree": 0.5}])
def test_lists_that_name_nodes_or_columns_otherwise_than_the_job_are_refused(changes):
    table, config = dealt(whole(), [150, 150]), config_of(n_estimators=1, max_depth=1, **changes)
    federation, seen = HorizontalFederation("secagg", table, config, unsafe_noise_seed=1), []
    handle = federation.participants["p0"].handle
    federation.participants["p0"].handle = lambda message: seen.append(message) or handle(message)
    federation.train()
    first = next(message for message in seen if isinstance(message, SumsRequest))
    for wrong in (
        {"build": np.zeros(400, dtype=np.int32)},
        {"build": np.array([1, 0], dtype=np.int32)},
        {"columns": np.array([0], dtype=np.int32)},
        {"columns": np.append(first.columns, first.columns[:1]) if changes else np.arange(2, dtype=np.int32)},
    ):
        side = HorizontalFederation("secagg", table, config, unsafe_noise_seed=1).participants["p0"]
        side.introduce()
        for message in seen[: seen.index(first)]:
            side.handle(message)
        with pytest.raises(MalformedMessage):
            side.handle(replace(first, **wrong))


def joined(federation):
    """The first participant, as it is when its group has been formed."""
    told = [federation.participants[name].introduce() for name in ("p0", "p1")]
    group = SecaggGroup(
        told[0].schema, ("p0", "p1"), np.stack([each.public for each in told]), tuple(each.evidence for each in told), 0
    )
    side = federation.participants["p0"]
    side.handle(group)
    return side


def test_counts_of_another_number_of_columns_are_refused():
    side = joined(HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of()))
    with pytest.raises(MalformedMessage):
        side.handle(CountsRequest(99, np.zeros((1, 1), dtype=np.uint32)))


def test_counts_are_asked_for_no_finer_and_no_more_often_than_the_search_needs():
    """Exact counts at every value would be the columns of all participants together."""
    side = joined(HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of()))
    columns, most = len(side._sorted), most_values(config_of().max_bin)
    side.handle(CountsRequest(1, np.zeros((columns, most), dtype=np.uint32)))
    with pytest.raises(MalformedMessage, match="more values"):
        side.handle(CountsRequest(2, np.zeros((columns, most + 1), dtype=np.uint32)))
    with pytest.raises(UnexpectedMessage, match="out of order"):
        side.handle(CountsRequest(3, np.zeros((columns, 1), dtype=np.uint32)))
    for step in range(2, MOST_STEPS + 1):
        side.handle(CountsRequest(step, np.zeros((columns, 1), dtype=np.uint32)))
    with pytest.raises(UnexpectedMessage, match="more often"):
        side.handle(CountsRequest(MOST_STEPS + 1, np.zeros((columns, 1), dtype=np.uint32)))


def test_no_mask_serves_two_contents():
    """A server that could tell other margins and ask the same again would subtract the answers: the masks are gone."""
    table, config = whole(), config_of()
    seen = []
    federation = HorizontalFederation("secagg", dealt(table, [150, 150]), config, unsafe_noise_seed=1)
    handle = federation.participants["p0"].handle
    federation.participants["p0"].handle = lambda message: seen.append(message) or handle(message)
    federation.train()
    cuts = next(message for message in seen if isinstance(message, CutsFound))
    first = next(message for message in seen if isinstance(message, SumsRequest))
    answers = []
    for margin in (cuts.base_margin, cuts.base_margin + 1):
        side = joined(HorizontalFederation("secagg", dealt(table, [150, 150]), config, unsafe_noise_seed=1))
        side.handle(replace(cuts, base_margin=margin))
        answers.append(side.handle(first).sums)
    difference = np.abs((answers[0] - answers[1]).view(np.int64).astype(np.float64))
    assert np.median(difference) > 2**55, "uniform, and not the difference of two histograms"


def test_a_finite_budget_is_refused_before_anything_is_read():
    planned = protocol_named("secagg", "horizontal").plan(config_of(), 100, Role.PARTICIPANT, 6)
    assert math.isinf(worst_epsilon(planned, 1e-5))
    held_out = {name: np.arange(150) >= 120 for name in ("p0", "p1")}
    federation = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of(), held_out=held_out)
    federation.train()
    spent = federation.accounts["p0"].events
    assert {event.rows for event in spent} == {150}
    assert {replace(event, rows=None, bins=None, content="") for event in spent} == set(planned)


def test_a_group_of_one_is_refused_by_the_participant_itself():
    federation = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of())
    side = federation.participants["p0"]
    begun = side.introduce()
    pair = np.stack([begun.public, begun.public])
    for group, publics, evidence in [
        (("p0",), begun.public[None], ("",)),
        (("p0", "p0"), pair, ("", "")),
        (("p0", "p1"), pair, ("", "")),
        (("p0", "p1"), pair, ("",)),
        (("p1", "p0"), np.stack([begun.public, begun.public ^ 1]), ("", "")),
        (("p1", "p2"), pair, ("", "")),
    ]:
        with pytest.raises(MalformedMessage):
            side.handle(SecaggGroup(begun.schema, group, publics, evidence, 0))


def test_a_server_cannot_leave_out_a_participant_that_the_job_names():
    """In a smaller group, those that collude with the server could open one participant."""
    federation = HorizontalFederation("secagg", dealt(whole(), [100, 100, 100]), config_of())
    told = {name: side.introduce() for name, side in federation.participants.items()}
    for group in (("p0", "p1"), ("p0", "p1", "p1"), ("p0", "p1", "p9"), ("p1", "p0", "p2")):
        publics = np.stack([told.get(name, told["p1"]).public for name in group])
        with pytest.raises(MalformedMessage, match="the job names"):
            federation.participants["p0"].handle(SecaggGroup(told["p0"].schema, group, publics, ("",) * len(group), 0))


def test_a_public_key_that_its_owner_did_not_sign_is_refused():
    """A server that puts its own key in another's place would read every answer."""

    class Strict(Trusting):
        def sign(self, content):
            return content.hex()

        def check(self, party, content, evidence):
            if evidence != content.hex():
                raise MalformedMessage("not signed")

    for forged in (True, False):
        federation = HorizontalFederation("secagg", dealt(whole(), [150, 150]), config_of())
        for side in federation.participants.values():
            side._context = replace(side._context, signer=Strict())
        told = {name: side.introduce() for name, side in federation.participants.items()}
        swapped = replace(told["p1"], public=told["p1"].public ^ np.uint8(1))
        introductions = {**told, "p1": swapped} if forged else told
        federation.server._context = replace(federation.server._context, introductions=introductions)
        with pytest.raises(MalformedMessage, match="not signed") if forged else nullcontext():
            federation.train()


def test_a_hundred_participants():
    """The masks of all 4950 pairs cancel, and the model is that of pooled rows. Categories need no search for cuts."""
    codes = np.random.default_rng(5).integers(0, 4, size=(2, 300)).astype(np.int32)
    columns = tuple(Column(f"x{at}", column, tuple("abcd")) for at, column in enumerate(codes))
    table = PartyTable(np.arange(300), columns, (codes[0] > codes[1]).astype(float))
    tables = {f"p{at}": table.take(rows) for at, rows in enumerate(np.array_split(np.arange(300), 100))}
    config = TrainingConfig(objective="binary", n_estimators=1, max_depth=2)
    run = simulate_training(tables, SERVER, "secagg", config)
    assert run.model.sha256() == join(simulate_training({"all": table}, "all", "plain", config).shares).sha256()
    assert len(run.shares) == 100
