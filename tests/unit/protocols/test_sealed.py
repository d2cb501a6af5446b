"""`sealed`: what is paid for is what is released, and nothing else depends on labels."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veilboost.party.simulation as simulation_module
from support import make_columns, make_labels, sha, split_among, train
from veilboost.audit.replay import rounds
from veilboost.audit.sources import views_of_simulation
from veilboost.boost.bins import BinLayout
from veilboost.boost.split import left_sums
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.errors import UnsupportedCombination
from veilboost.model.explain import IMPORTANCE_KINDS, importance
from veilboost.model.joined import join
from veilboost.privacy.accountant import compose
from veilboost.privacy.event import Adjacency, ExactRelease, Exponential, Gaussian, MemoryAccount
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.sealed.active import _left_counts
from veilboost.protocols.sealed.parameters import SealedOptions, completed, label_noise, plan
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.protocols.vertical.messages import ResumeTraining, SplitAnswer, SplitRequest
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.types import ColumnKind, Role
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast

SPEC = protocol_named("sealed")


def config(**changes):
    values = {"objective": "binary", "n_estimators": 4, "max_depth": 3, "max_bin": 16, "categories": "ordinal"}
    return TrainingConfig.from_dict(values | changes)


def tables(rows=600, seed=5):
    columns = make_columns(seed, rows=rows, numeric=6, categorical=0, missing=0.05)
    return split_among(columns, make_labels(seed, columns), 2)


@pytest.mark.parametrize("eps", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_noise_for_a_budget_costs_that_budget_and_hardly_less(eps, classes):
    options = SealedOptions(eps=eps, delta=1e-5)
    noise = label_noise(options, trees=20, depth=4, classes=classes)
    times = 1 if classes == 2 else 2
    common = {"what": "", "adjacency": Adjacency.LABEL, "adversary": "", "protocol": "", "release": ""}
    events = [
        Exponential(noise.selection, count=20 * 4 * times, **common),
        Gaussian(1 / noise.leaf_sigma, count=20 * times, **common),
    ]
    spent = compose(events, 1e-5, convolve=False).noised
    assert 0.98 * eps < spent <= eps


def test_what_the_active_party_spends_is_what_it_planned():
    run = train(tables(), config(options={"eps": 2.0, "least_rows": 5}), "sealed")
    planned = plan(config(options={"eps": 2.0, "least_rows": 5}), 600, Role.ACTIVE)
    spent = [event for event in run.accounts["p0"].events if not isinstance(event, ExactRelease)]
    assert [dataclasses.replace(event, content="") for event in sorted(spent, key=str)] == sorted(planned, key=str)


def test_what_a_passive_party_spends_is_noise_and_the_sides_of_its_cuts():
    noisy = config(options={"eps": 2.0, "eps_features": 3.0, "least_rows": 5})
    run = train(tables(), noisy, "sealed")
    spent = run.accounts["p1"].events
    noised = [dataclasses.replace(event, content="") for event in spent if isinstance(event, Gaussian)]
    planned = [event for event in plan(noisy, 600, Role.PASSIVE, columns=3) if isinstance(event, Gaussian)]
    assert {event.release for event in noised} >= {"round 0 level 0 cells", "cuts of column 0"}
    assert set(noised) <= set(planned), "a tree may end before its last level"
    assert 2.97 < compose(planned, 1e-5).epsilon <= 3.0
    exact = [event for event in spent if not isinstance(event, Gaussian)]
    assert {event.what for event in exact} == {SplitAnswer.reveals[0].what}
    assert sum(event.count for event in exact) == noisy.n_estimators
    assert all(event.counted for event in exact), "limits on epsilon refuse such a job, as its plan says"


def test_with_one_label_flipped_nothing_but_paid_releases_differ(monkeypatch):
    """Gains follow from the leaves, ties are not named, and the start does not come from the labels."""
    named = []

    class Listening(MemoryChannel):
        def send(self, message):
            if isinstance(message, SplitRequest):
                named.append(len(message.handles) == len(message.node))
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    run = train(tables(), config(options={"eps": 2.0, "least_rows": 5}), "sealed")
    skeleton = run.shares["p0"].skeleton
    assert named
    assert all(named)
    assert (skeleton.base_margin == 0).all()
    for tree in skeleton.trees:  # from nothing but the leaves, the covers and public parameters
        np.testing.assert_allclose(tree.gain, gains_of_leaves(tree, run.shares["p0"].skeleton.config)[0], rtol=1e-9)
    assert any((tree.gain > 0).any() for tree in skeleton.trees)


def gains_of_leaves(tree, config):
    """The gain of each node from the released leaves below it, and the gradient sum of the root."""

    def sums(node):
        if tree.left[node] < 0:
            return -float(tree.weight[node]) / config.learning_rate * (tree.cover[node] + config.reg_lambda)
        return sums(tree.left[node]) + sums(tree.left[node] + 1)

    def score(node):
        return sums(node) ** 2 / (tree.cover[node] + config.reg_lambda)

    gain = [
        0.0 if left < 0 else max(score(left) + score(left + 1) - score(node), 0.0)
        for node, left in enumerate(tree.left)
    ]
    return gain, sums(0)


def test_importances_come_from_noisy_leaf_sums():
    options = {"eps": 1000.0, "least_rows": 5}
    data = tables()
    run = train(data, config(options=options), "sealed")
    skeleton = run.shares["p0"].skeleton
    noise = label_noise(SealedOptions(**options), trees=4, depth=3, classes=2)
    true = float(np.sum(0.5 - data["p0"].label))  # at the first round all scores are one half
    # Eight standard deviations of the noise of all leaves: exceeded with probability 1e-15.
    off = 8 * noise.leaf_sigma * np.sqrt((skeleton.trees[0].left < 0).sum())
    assert gains_of_leaves(skeleton.trees[0], skeleton.config)[1] == pytest.approx(true, abs=off + 1e-3)
    for kind in IMPORTANCE_KINDS:
        assert sum(item.value for item in importance(join(run.shares), kind)) == pytest.approx(1.0)


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_rows_that_candidates_send_left_are_counted_as_they_are_split(seed, nodes):
    rng = np.random.default_rng(seed)
    kinds = [ColumnKind.NUMERIC, ColumnKind.ONEHOT, ColumnKind.NUMERIC]
    layout = BinLayout.of(rng.integers(1, 6, 3).tolist(), rng.integers(0, 2, 3).astype(bool).tolist(), kinds)
    sums = rng.integers(0, 50, (nodes, layout.slots, 2))
    handles = np.arange(2 * layout.slots, dtype=np.int32)
    found = _left_counts(sums[..., 1], layout)
    for node in range(nodes):
        expected, _ = left_sums(sums, layout, np.full(len(handles), node), handles)
        assert np.array_equal(found[node], expected[:, 1])


@pytest.mark.parametrize("least_rows", [5, 60])
def test_a_child_has_its_least_rows_and_a_twentieth_of_its_node(least_rows):
    """By these the sensitivity of the selection is bounded."""
    run = train(tables(rows=900), config(options={"eps": 0.5, "least_rows": least_rows}), "sealed", record="payload")
    views, _ = views_of_simulation(run, tables(rows=900))
    splits = [
        (len(left), len(right))
        for each in rounds(views["p0"], "p1")
        for level in each.levels
        for _, _, left, right in level.assignments()
    ]
    assert len(splits) > 3
    assert all(min(pair) >= max(least_rows, sum(pair) / 20) for pair in splits)


def test_the_active_party_may_train_alone():
    columns = make_columns(5, rows=300, numeric=4)
    run = train(split_among(columns, make_labels(5, columns), 1), config(options={"eps": 2.0}), "sealed")
    assert len(run.shares["p0"].skeleton.trees) == 4


def test_noise_that_does_not_fit_is_refused_and_the_hint_works():
    job = config(n_estimators=1, max_depth=1, gradient_bits=30, options={"eps": 2.0, "eps_features": 1e-3})
    with pytest.raises(UnsupportedCombination, match="does not fit") as refused:
        train(tables(), job, "sealed")
    bits = int(refused.value.remedy.split("gradient_bits to ")[1].split(",")[0])
    train(tables(), dataclasses.replace(job, gradient_bits=bits), "sealed")


def test_leaves_carry_noise_of_the_stated_size():
    """Of one stump on constant columns the leaf sum is known: what is off is the noise."""
    weights = []
    stump = config(n_estimators=1, max_depth=1, learning_rate=1.0, options={"eps": 1.0, "least_rows": 200})
    for _ in range(60):
        run = train(tables(rows=300, seed=7), stump, "sealed")
        (tree,) = run.shares["p0"].skeleton.trees
        assert len(tree.weight) == 1, "no child may be so small: the root is a leaf"
        weights.append(float(tree.weight[0]))
    hessian = 300 * 0.25 + 1.0
    sigma = label_noise(SealedOptions(eps=1.0), 1, 1).leaf_sigma
    # Of 60 normal values the deviation is half as large or half as large again with probability 1.4e-7.
    assert np.std(weights, ddof=1) * hessian == pytest.approx(sigma, rel=0.5)


def test_the_same_keys_meet_the_same_noise_and_fresh_ones_other():
    """Two models agree by chance only if some thirty leaves draw the same noise, each with probability below 0.1."""
    noisy = config(options={"eps": 2.0, "eps_features": 8.0, "least_rows": 5})
    one, same = (train(tables(), noisy, "sealed", unsafe_noise_seed=0) for _ in range(2))
    assert sha(one) == sha(same)
    assert one.accounts["p1"].events == same.accounts["p1"].events
    fresh, other = (train(tables(), noisy, "sealed") for _ in range(2))
    assert len({sha(run) for run in (one, fresh, other)}) == 3


def test_other_answers_of_a_peer_meet_other_label_noise_and_are_booked_again():
    """As when a peer forces a resume and answers differently: the job's key is the same."""
    budget = config(options={"eps": 2.0, "least_rows": 5})
    one, same = (train(tables(), budget, "sealed", unsafe_noise_seed=0) for _ in range(2))
    assert sha(one) == sha(same)
    assert one.accounts["p0"].events == same.accounts["p0"].events
    moved = tables()
    moved["p1"] = dataclasses.replace(
        moved["p1"], columns=[dataclasses.replace(c, values=c.values[::-1].copy()) for c in moved["p1"].columns]
    )
    other = train(moved, budget, "sealed", unsafe_noise_seed=0)
    booked = set(other.accounts["p0"].events) & set(one.accounts["p0"].events)
    assert not booked, "what a person's label is in was released anew"


def test_the_same_ciphertexts_for_other_rows_meet_other_noise_and_are_booked_again(monkeypatch):
    """Else a driver that rewinds takes the noise away by subtracting two answers."""
    sent = []

    class Listening(MemoryChannel):
        def send(self, message):
            sent.append(message)
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    options = {"eps": 2.0, "eps_features": 8.0, "layout": "runs"}
    train(tables(), config(n_estimators=1, max_depth=1, subsample=0.5, options=options), "sealed")
    account = MemoryAccount()
    side = SPEC.roles["passive"](
        PassiveContext("p1", tables()["p1"].columns, 600, 1, None, JobRandomness(bytes(32)), account)
    )
    begin, opening, request = sent[:3]

    def cells():
        return [event for event in account.events if "cells" in event.release]

    for message in (begin, opening, request):
        side.handle(message)
    assert len(cells()) == 1
    for message in (ResumeTraining(0), opening, request):
        side.handle(message)
    assert len(cells()) == 1, "the same request again is the same release"
    side.cipher.receives_samples = False  # other rows are refused already; the noise must not rely on it
    rows = np.unpackbits(opening.fit, count=600)
    moved = np.packbits(np.roll(rows, 1))  # as many rows, but others
    for message in (ResumeTraining(0), dataclasses.replace(opening, fit=moved), request):
        side.handle(message)
    assert len({event.content for event in cells()}) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "regression"},
        {"categories": "sets"},
        {"early_stopping_rounds": 3},
        {"gamma": 0.1},
        {"scale_pos_weight": 2.0},
        {"sampling": "goss"},
        {"base_score": 0.3},
        {"reg_lambda": 0.1},
        {"reg_alpha": 1.0},
    ],
)
def test_what_would_let_labels_out_is_refused(changes):
    with pytest.raises(UnsupportedCombination):
        validate(ResolvedJob(SPEC, config(**changes)))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"early_stopping_rounds": 3, "gamma": 0.1, "reg_alpha": 1.0}, "early stopping"),
        ({"gamma": 0.1, "reg_lambda": 0.1}, "gamma"),
        ({"proposal": "local", "binning": "width", "options": {"eps_features": 1.0}}, "proposal"),
        ({"gamma": 0.1, "binning": "width", "options": {"eps_features": 1.0}}, "gamma"),
    ],
)
def test_of_several_problems_the_first_is_named(changes, named):
    with pytest.raises(UnsupportedCombination, match=f"^VB-1004: sealed: .*{named}"):
        validate(ResolvedJob(SPEC, config(**changes)))


def test_weights_are_refused_before_anything_is_sent():
    weighted = tables()
    weighted["p0"] = dataclasses.replace(weighted["p0"], weight=np.linspace(0.5, 2.0, 600))
    with pytest.raises(UnsupportedCombination):
        train(weighted, config(options={"eps": 1.0}), "sealed")


def test_what_was_left_open_is_chosen_for_the_budget_and_the_rows():
    chosen = completed(TrainingConfig(objective="binary", options={"eps": 1.0}), 24_000)
    assert (chosen.n_estimators, chosen.max_depth, chosen.base_score) == (10, 3, 0.5)
    assert completed(TrainingConfig(options={"eps": 8.0}), 24_000).n_estimators == 40
    assert completed(TrainingConfig(options={"eps": 8.0, "eps_features": 8.0}), 24_000).n_estimators == 10
    of_classes = completed(TrainingConfig(objective="multiclass", options={"eps": 1.0}), 24_000)
    assert of_classes.base_score == 0.5  # shares of the classes would be another release
    for asked, trees in ((100, 100), (7, 7), ("auto", 10), ("default", 10)):
        assert completed(TrainingConfig(n_estimators=asked, options={"eps": 1.0}), 24_000).n_estimators == trees
    by_hand = completed(TrainingConfig(n_estimators=7, max_depth=2, options={"eps": 8.0}), 24_000)
    assert (by_hand.n_estimators, by_hand.max_depth) == (7, 2)


def test_it_learns():
    from sklearn.metrics import roc_auc_score

    data = tables(rows=8000, seed=3)
    # How well it learns has no computed probability: the noise is the same in every run.
    run = train(data, config(n_estimators=10, options={"eps": 4.0}), "sealed", unsafe_noise_seed=0)
    from veilboost.party.simulation import simulate_prediction

    margin = simulate_prediction(run.shares, "p0", data)[0]
    assert roc_auc_score(data["p0"].label, margin) > 0.75
