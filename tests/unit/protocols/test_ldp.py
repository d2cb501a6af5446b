"""`ldp`: what leaves the active party, what it is booked as, what model comes of it, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.errors import InvalidParameter, MalformedMessage, UnsupportedCombination, VeilBoostError
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.privacy.accountant import compose
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.event import Adjacency, Duchi, ExactRelease, Gaussian, Laplace, MemoryAccount
from veilboost.protocols.ldp.messages import LdpRequest, LdpRound, LdpScores
from veilboost.protocols.ldp.parameters import LdpOptions, ranges_of
from veilboost.protocols.ldp.spec import SPEC
from veilboost.protocols.registry import all_protocols
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.protocols.vertical.perturb import Ranges
from veilboost.types import Role
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast

ROWS = 150


def federation(objective="binary", parties=3, seed=21):
    columns = make_columns(seed, rows=ROWS, numeric=4, categorical=2, missing=0.1)
    return split_among(columns, make_labels(seed, columns, objective), parties)


def job(objective="binary", **settings):
    options = settings.pop("options", {})
    common = {"n_estimators": 3, "max_depth": 3, "max_bin": 8, "categories": "ordinal"}
    return TrainingConfig.from_dict(common | {"objective": objective} | settings | {"options": options})


@pytest.fixture
def keyed(monkeypatch):
    """Runs of `ldp` whose key and account the test holds."""

    def run(tables, config, key=b"k" * 32, **more):
        account = MemoryAccount()

        def active(context):
            return SPEC.roles["active"](dataclasses.replace(context, randomness=JobRandomness(key), account=account))

        monkeypatch.setitem(all_protocols(), "ldp", dataclasses.replace(SPEC, roles={**SPEC.roles, "active": active}))
        return simulate_training(tables, "p0", "ldp", config, **more), account.events

    return run


@pytest.fixture
def sent(monkeypatch):
    """Every message that left the active party, with its receiver's number."""
    seen = []
    channels = []

    class Listening(MemoryChannel):
        def send(self, message):
            if self not in channels:
                channels.append(self)
            seen.append((channels.index(self), message))
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    return seen


# --- releases ---------------------------------------------------------------------------------------------


def test_all_passive_parties_see_the_same_noise_and_none_sees_gradients(sent, keyed):
    keyed(federation(), job(options={"epsilon": 4.0}))
    rounds = {}
    for receiver, message in sent:
        if isinstance(message, LdpRound):
            rounds.setdefault(message.number, {})[receiver] = message.gradients
        if isinstance(message, LdpRequest):
            assert message.gradients.size == 0
            assert message.totals.size == 0
    assert sorted(rounds) == [0, 1, 2]
    for number, by_receiver in rounds.items():
        first, second = by_receiver.values()
        assert np.array_equal(first, second), "two noises could be averaged"
        assert first.shape == (1, ROWS, 2)
        if number == 0:  # the true ones have two values of g and one of h
            assert len(np.unique(first[..., 0])) > 100
            assert len(np.unique(first[..., 1])) > 100
    assert not np.array_equal(*[next(iter(rounds[number].values())) for number in (0, 1)])


def test_rows_that_are_not_summed_are_not_released(sent, keyed):
    held_out = np.arange(ROWS) >= 120
    keyed(federation(), job(subsample=0.5), held_out=held_out)
    for _, message in sent:
        if isinstance(message, LdpRound):
            sampled = np.unpackbits(message.fit, count=ROWS).astype(bool)
            assert not message.gradients[:, ~sampled].any()
            assert message.gradients[:, sampled].any(axis=2).all()


def test_hessians_are_sent_only_where_they_are_needed(sent, keyed):
    for config, channels in [
        (job(), 2),
        (job(order="first"), 1),
        (job(options={"score": "first"}), 1),
        (job("regression", options={"clip": 100.0}), 1),
        (job("poisson", options={"clip": 5.0, "clip_hessian": 5.0}), 2),
    ]:
        sent.clear()
        keyed(federation(config.objective), config)
        assert {m.gradients.shape[2] for _, m in sent if isinstance(m, LdpRound)} == {channels}


def test_per_node_draws_fresh_noise_at_every_level_for_the_rows_that_may_split(sent, keyed):
    _, events = keyed(federation(parties=2), job(options={"per_node": True}))
    requests = [m for _, m in sent if isinstance(m, LdpRequest)]
    assert all(m.gradients.size == 0 for _, m in sent if isinstance(m, LdpRound))
    assert len({m.gradients.tobytes() for m in requests}) == len(requests) == len(events) > 3
    assert len({event.release for event in events}) == len(events)


def test_paper_form_sends_exact_sums_and_books_them_as_such(sent, keyed):
    config = job(options={"paper_form": True, "mechanism": "duchi", "epsilon": 1.0})
    tables = federation(parties=2)
    _, events = keyed(tables, config)
    root = next(m for _, m in sent if isinstance(m, LdpRequest))
    mean = tables["p0"].label.mean()
    assert abs(root.totals[0, 0]) < ROWS, "the true gradients of the first round sum to nothing but rounding"
    scale = next(m for _, m in sent if isinstance(m, LdpRound)).h_exponent
    assert math.ldexp(root.totals[0, 1], -scale) == pytest.approx(ROWS * mean * (1 - mean), rel=1e-4)
    exact = [event for event in events if isinstance(event, ExactRelease)]
    assert len(exact) == sum(isinstance(m, LdpRequest) for _, m in sent)
    assert compose(events, 1e-5).epsilon == math.inf


# --- the book ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "duchi", "piecewise", "hybrid", "none"])
def test_one_event_a_round_says_what_was_drawn(keyed, mechanism):
    config = job(options={"mechanism": mechanism, "epsilon": 2.0})
    _, events = keyed(federation(), config)
    assert [event.release for event in events] == [f"round {k} gradients" for k in range(3)]
    for event in events:
        assert event.kind == ("exact" if mechanism == "none" else mechanism)
        assert event.adjacency is Adjacency.LABEL
        assert event.adversary == "passive parties"
    planned = SPEC.plan(config, ROWS, Role.ACTIVE)
    assert compose(planned, 1e-5).epsilon == compose(events, 1e-5).epsilon
    assert not SPEC.plan(config, ROWS, Role.PASSIVE)
    if mechanism in ("laplace", "duchi", "piecewise", "hybrid"):
        assert compose(events, 1e-5).basic == pytest.approx(3 * 2.0), "gradient and hessian share the epsilon"
    if isinstance(events[0], Gaussian):
        assert compose(events[:1], 1e-3).epsilon == pytest.approx(2.0, rel=1e-6)


def test_classes_are_counted_each(keyed):
    _, events = keyed(federation("multiclass"), job("multiclass", options={"mechanism": "laplace", "epsilon": 1.0}))
    assert all(isinstance(event, Laplace) and event.count == 6 for event in events)
    assert compose(events, 1e-5).basic == pytest.approx(3 * 3 * 1.0)


def test_the_same_key_draws_the_same_noise_and_another_another(keyed, sent):
    tables, config = federation(), job(options={"epsilon": 1.0})
    runs = [keyed(tables, config, key) for key in (b"a" * 32, b"a" * 32, b"b" * 32)]
    models = [sha(run) for run, _ in runs]
    assert models[0] == models[1] != models[2]
    assert runs[0][1] == runs[1][1]
    drawn = {m.gradients.tobytes() for _, m in sent if isinstance(m, LdpRound) and m.number == 0}
    assert len(drawn) == 2


def test_a_round_tried_again_sends_and_books_the_same(keyed, sent, monkeypatch):
    """The last level of a round fails once; the round is grown again from its start."""
    from veilboost.boost import booster

    original, failed = booster.grow, []

    def twice(finder, start, config, margin):
        if not failed:
            failed.append(start.number)
            original(finder, start, config, margin.copy())
            finder.resume(finder.records(), 0)
        return original(finder, start, config, margin)

    monkeypatch.setattr(booster, "grow", twice)
    _, events = keyed(federation(), job(options={"epsilon": 1.0}))
    first = [m.gradients.tobytes() for _, m in sent if isinstance(m, LdpRound) and m.number == 0]
    assert len(first) == 4
    assert len(set(first)) == 1
    assert len(events) == 3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per_node": True},
        {"private_leaves": True},
        {"mechanism": "laplace", "score": "first"},
        {"mechanism": "hybrid", "per_node": True},
    ],
)
def test_calibrated_options_keep_to_the_budget(options):
    asked = CalibrationRequest(1000, 5, 32, 60, 6, epsilon_active=4.0, delta_active=1e-5, options=options)
    found = SPEC.calibrate(asked)
    config = job(n_estimators=60, max_depth=6, min_child_weight=0.0, base_score=0.5, options=found["options"])
    validate(ResolvedJob(SPEC, config))
    spent = compose(SPEC.plan(config, 1000, Role.ACTIVE), 1e-5).epsilon
    assert 3.5 < spent <= 4.0 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        ({"epsilon_passive": 1.0}, "active"),
        ({"epsilon_active": 1.0, "delta_active": 1e-5, "options": {"paper_form": True}}, "exact"),
        ({"epsilon_active": 1.0, "delta_active": 1e-5, "options": {"mechanism": "none"}}, "exact"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(request_, hint):
    with pytest.raises(InvalidParameter, match=hint):
        SPEC.calibrate(CalibrationRequest(1000, 5, 32, 60, 6, **request_))


# --- models -----------------------------------------------------------------------------------------------


def test_less_noise_learns_more():
    columns = make_columns(5, rows=3000, numeric=6)
    tables = split_among(columns, make_labels(5, columns), 2)

    def area(epsilon):
        from sklearn.metrics import roc_auc_score

        config = TrainingConfig(
            objective="binary", n_estimators=10, max_depth=3, categories="ordinal", options={"epsilon": epsilon}
        )
        run = train(tables, config, "ldp")
        return roc_auc_score(tables["p0"].label, simulate_prediction(run.shares, "p0", tables)[0])

    assert area(50.0) > area(0.05) + 0.02


@pytest.mark.parametrize("objective", ["binary", "multiclass"])
def test_private_leaves_without_noise_are_those_of_plain(objective):
    start = {"min_child_weight": 0.0, "base_score": 0.5 if objective == "binary" else 0.0}
    tables, config = federation(objective), job(objective, subsample=0.7, **start)
    quiet = dataclasses.replace(config, options={"mechanism": "none", "private_leaves": True})
    assert sha(train(tables, quiet, "ldp")) == sha(train(tables, config))


def test_private_leaves_come_from_the_noisy_gradients(keyed):
    config = job(min_child_weight=0.0, base_score=0.5, n_estimators=1, options={"private_leaves": True, "epsilon": 0.5})
    run, _ = keyed(federation(), config)
    true = dataclasses.replace(config, options={"epsilon": 0.5})
    again, _ = keyed(federation(), true)
    ours, theirs = (r.shares["p0"].skeleton.trees[0] for r in (run, again))
    assert np.array_equal(ours.owner, theirs.owner), "the same key, the same noise, the same splits"
    leaves = ours.owner < 0
    assert not np.isclose(ours.weight[leaves], theirs.weight[leaves]).any()


# --- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"categories": "sets"},
        {"sampling": "goss"},
        {"reg_lambda": 0.0, "options": {"score": "first"}},
        {"options": {"noise_multiplier": 1.0, "mechanism": "laplace"}},
        {"options": {"private_leaves": True}},
        {"min_child_weight": 0.0, "base_score": 0.5, "options": {"private_leaves": True, "per_node": True}},
    ],
)
def test_combinations_that_do_not_fit_are_refused_on_input(settings):
    with pytest.raises(UnsupportedCombination):
        train(federation(), job(**({"options": {"epsilon": 1.0}} | settings)), "ldp")


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": 2.0},
        {"mechanism": "cauchy"},
        {"score": "third"},
        {"sigma": 1.0},
        {"clip": -1.0},
    ],
)
def test_impossible_options_are_refused_on_input(options, sent):
    with pytest.raises(InvalidParameter):
        train(federation(), job(options=options), "ldp")
    assert not sent


@pytest.mark.parametrize(("objective", "options"), [("regression", {}), ("poisson", {"clip": 1.0})])
def test_a_loss_without_bounds_needs_a_clip(objective, options, sent):
    with pytest.raises(InvalidParameter, match="clip"):
        train(federation(objective), job(objective, options={"epsilon": 1.0, **options}), "ldp")
    assert not sent


@pytest.mark.parametrize("objective", ["auto", "binary"])
def test_gradients_beyond_the_range_are_refused_before_anything_is_released(objective, keyed, sent):
    tables = federation("regression" if objective == "auto" else "binary")
    if objective == "binary":
        tables["p0"] = dataclasses.replace(tables["p0"], weight=np.full(ROWS, 3.0))
    with pytest.raises(InvalidParameter, match="clip"):
        keyed(tables, job(objective, options={"epsilon": 1.0}))
    assert not any(isinstance(message, LdpRound) for _, message in sent)
    options = {"epsilon": 1.0, "clip": 3.0, "clip_hessian": 3.0}
    keyed(tables, job(objective, options=options))


def test_ranges_follow_the_loss_and_never_the_data():
    assert ranges_of(job(), LdpOptions()) == Ranges(1.0, 0.25)
    assert ranges_of(job(scale_pos_weight=4.0), LdpOptions()) == Ranges(4.0, 1.0)
    assert ranges_of(job("multiclass"), LdpOptions()) == Ranges(1.0, 0.5)
    assert ranges_of(job("auto"), LdpOptions(), trees_per_round=3) == Ranges(1.0, 0.5)
    assert ranges_of(job("regression"), LdpOptions(clip=7.0)) == Ranges(7.0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"handle": np.array([10_000], dtype=np.int32)},
        {"handle": np.array([-1], dtype=np.int32)},
        {"handle": np.array([0, 0], dtype=np.int32)},
        {"gain": np.array([np.nan])},
        {"gain": np.empty(0)},
    ],
)
def test_an_answer_that_does_not_fit_is_refused(monkeypatch, wrong):
    class Lying(MemoryChannel):
        def __init__(self, handler, *rest):
            super().__init__(lambda message: self.bend(handler(message)), *rest)

        def bend(self, answer):
            return dataclasses.replace(answer, **wrong) if isinstance(answer, LdpScores) else answer

    monkeypatch.setattr(simulation_module, "MemoryChannel", Lying)
    with pytest.raises(MalformedMessage):
        train(federation(), job(options={"epsilon": 1.0}), "ldp")


@pytest.mark.parametrize("options", [{"per_node": True}, {"paper_form": True}, {"epsilon": 2.0}])
def test_damaged_requests_are_refused(monkeypatch, options):
    def bent(message):
        if isinstance(message, LdpRound | LdpRequest):
            for shape in ((2, ROWS, 2), (1, ROWS - 1, 2), (1, ROWS, 3), (0, 0, 0), (1, ROWS, 1)):
                if shape != message.gradients.shape and message.gradients.size + math.prod(shape):
                    yield dataclasses.replace(message, gradients=np.zeros(shape, dtype=np.int32))
        if isinstance(message, LdpRound):
            yield dataclasses.replace(message, g_exponent=5000)
            yield dataclasses.replace(message, gradients=np.full((1, ROWS, 2), -(2**31), dtype=np.int32))
        if isinstance(message, LdpRequest):
            yield dataclasses.replace(message, totals=np.zeros((7, 7), dtype=np.int64))

    class Meddling(MemoryChannel):
        def send(self, message):
            for wrong in bent(message):
                if isinstance(wrong, LdpRound) and wrong.gradients.shape == (1, ROWS, 1) and "per_node" not in options:
                    continue  # what a first-order job would send
                if isinstance(wrong, LdpRequest) and wrong.gradients.shape == (1, ROWS, 1) and "per_node" in options:
                    continue
                with pytest.raises(VeilBoostError):
                    self._handler(wrong)
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Meddling)
    train(federation(), job(options=options), "ldp")


def test_the_statement_does_not_claim_more_than_it_can():
    event = SPEC.plan(job(options={"mechanism": "duchi", "epsilon": 1.0}), ROWS, Role.ACTIVE)[0]
    assert isinstance(event, Duchi)
    assert SPEC.statement.worst_for("active", "labels") == "heuristic"
    assert SPEC.statement.worst_for("passive") == "unprotected"
