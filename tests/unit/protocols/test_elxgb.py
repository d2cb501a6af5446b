"""`elxgb`: an exact first tree, noisy later ones, what they are booked as, late parties, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import threading
import warnings

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import SHORT_KEY, make_columns, make_labels, sha, split_among, train
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, MalformedMessage, UnexpectedMessage, UnsupportedCombination
from veilboost.model.joined import join
from veilboost.privacy.accountant import compose
from veilboost.privacy.calibrate import CalibrationRequest
from veilboost.privacy.event import ExactRelease, Gaussian
from veilboost.protocols.elxgb.active import LateParties
from veilboost.protocols.elxgb.messages import LocalGains, NoisyRound
from veilboost.protocols.elxgb.parameters import guess_probability, plan
from veilboost.protocols.elxgb.spec import SPEC
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.protocols.vertical.messages import SplitRequest, StatisticsRequest
from veilboost.types import Role
from veilboost.wire.channel import MemoryChannel

pytestmark = pytest.mark.fast
ROWS = 200
PRIVATE = {"private_leaves": True}


def federation(objective="binary", parties=3, seed=5, rows=ROWS):
    columns = make_columns(seed, rows=rows, numeric=5, categorical=1, missing=0.1)
    return split_among(columns, make_labels(seed, columns, objective), parties)


def job(objective="binary", **settings):
    options = {"backend": "lattice"} | settings.pop("options", {})
    common = {"n_estimators": 4, "max_depth": 3, "max_bin": 8, "categories": "onehot"}
    return TrainingConfig.from_dict(common | {"objective": objective} | settings | {"options": options})


def plainly(config):
    return dataclasses.replace(config, options={})


@pytest.fixture
def overheard(monkeypatch):
    """Every message to and from the passive parties."""
    heard = []

    class Listening(MemoryChannel):
        def send(self, message):
            pending = super().send(message)
            heard.extend((message, pending()))
            return pending

    monkeypatch.setattr(simulation_module, "MemoryChannel", Listening)
    return heard


@pytest.mark.parametrize("objective", ["binary", "multiclass", "regression"])
@pytest.mark.parametrize("backend", ["lattice", "paillier"])
def test_without_noise_the_model_is_that_of_plain_by_either_encryption(objective, backend):
    key = SHORT_KEY if backend == "paillier" else {}
    config = job(objective, options={"backend": backend, "mechanism": "none", **key})
    tables = federation(objective)
    assert sha(train(tables, config, "elxgb")) == sha(train(tables, plainly(config)))


def test_columns_that_look_alike_change_places_and_the_owner_still_splits_by_its_best():
    columns = make_columns(9, rows=ROWS, numeric=8)
    tables = split_among(columns, make_labels(9, columns), 2)
    config = job(options={"mechanism": "none"}, n_estimators=6)
    assert sha(train(tables, config, "elxgb")) == sha(train(tables, plainly(config)))


def test_noise_never_makes_the_hessians_of_a_leaf_negative(monkeypatch):
    import veilboost.protocols.elxgb.active as active_module

    monkeypatch.setattr(active_module, "discrete_gaussian", lambda _generator, _sigma, count: np.full(count, -(2**40)))
    quiet = {"min_child_weight": 0.0, "base_score": 0.5, "n_estimators": 1}
    run = train(federation(), job(options=PRIVATE, **quiet), "elxgb")
    tree = join(run.shares).trees[0]
    assert (tree.weight[tree.left < 0] > 0).all()  # sums of gradients far below 0, and lambda alone below the line


def test_with_noise_the_first_tree_is_that_of_plain_and_later_ones_are_not():
    tables = federation()
    noisy = train(tables, job(options={"epsilon": 1.0}), "elxgb")
    exact = train(tables, plainly(job()))
    ours, plain = (join(run.shares).trees for run in (noisy, exact))
    assert repr(ours[0]) == repr(plain[0])
    assert any(repr(a) != repr(b) for a, b in zip(ours[1:], plain[1:], strict=True))


def test_noise_is_as_wide_as_algorithm_3_says_and_gradients_are_clipped(overheard):
    tables = federation(rows=3000)
    train(tables, job(options={"noise_multiplier": 2.0, "clip": 0.25}, base_score=0.5), "elxgb")
    rounds = [message for message in overheard if isinstance(message, NoisyRound)]
    assert len(rounds) == 2 * 3  # two passive parties, three later trees, the same noise for both
    assert np.array_equal(rounds[0].gradients, rounds[1].gradients)
    first = rounds[0]
    g = first.gradients[0, :, 0] * 2.0**-first.g_exponent
    h = first.gradients[0, :, 1] * 2.0**-first.h_exponent
    signal = np.sign(0.5 - tables["p0"].label) * 0.25  # after one tree all gradients lie beyond the clipping
    # The deviation of 3000 normal values is known within 1.3 %: 8 % is 6.2 of these, with probability 6e-10 each.
    assert np.std(g - signal) == pytest.approx(2.0 * 0.25 * 2.0, rel=0.08)
    assert np.std(h) == pytest.approx(0.25 * 2.0, rel=0.08)


def test_every_later_tree_is_booked_before_it_leaves_and_as_planned():
    tables = federation()
    config = job(options={"epsilon": 2.0, "delta": 1e-4})
    run = train(tables, config, "elxgb")
    events = [event for event in run.accounts["p0"].events if not isinstance(event, ExactRelease)]
    assert [type(event) for event in events] == [Gaussian] * 3
    assert [event.paper_epsilon for event in events] == [2.0] * 3
    planned = plan(config, ROWS, Role.ACTIVE)
    assert compose(events, 1e-4).noised == pytest.approx(compose(planned, 1e-4).noised)
    assert all(isinstance(event, ExactRelease) for event in run.accounts["p1"].events)
    assert plan(config, ROWS, Role.PASSIVE) == ()
    assert plan(job(n_estimators=1), ROWS, Role.ACTIVE) == ()


def test_the_published_epsilon_of_ten_is_forty_five_over_four_trees():
    planned = plan(
        job(n_estimators=5, options={"noise_multiplier": math.sqrt(2 * math.log(1.25e4)) / 10}), 1, Role.ACTIVE
    )
    assert compose(planned, 1e-4).noised == pytest.approx(44.6, abs=0.1)


def test_without_noise_releases_are_booked_as_exact():
    run = train(federation(), job(options={"mechanism": "none"}), "elxgb")
    assert {type(event) for event in run.accounts["p0"].events} == {ExactRelease}


def test_private_leaves_are_noisy_and_booked():
    tables = federation()
    quiet = {"min_child_weight": 0.0, "base_score": 0.5}
    run = train(tables, job(options={"noise_multiplier": 0.5, **PRIVATE}, **quiet), "elxgb")
    clean = train(tables, job(options={"noise_multiplier": 0.5}, **quiet), "elxgb")
    leaves = [event for event in run.accounts["p0"].events if "leaves" in event.release]
    assert len(leaves) == 4
    first, other = (join(each.shares).trees[0] for each in (run, clean))
    assert np.array_equal(first.left, other.left)  # the shape comes from exact sums
    assert not np.array_equal(first.weight, other.weight)


def test_the_same_key_draws_the_same_noise_and_fresh_ones_other():
    """Two models agree by chance only if all noise of three trees does: far less likely than 1e-6."""
    tables = federation()
    config = job(options={"epsilon": 1.0})
    one, same = (train(tables, config, "elxgb", unsafe_noise_seed=0) for _ in range(2))
    assert sha(one) == sha(same)
    fresh, other = (train(tables, config, "elxgb") for _ in range(2))
    assert len({sha(run) for run in (one, fresh, other)}) == 3


def test_at_the_published_noise_signs_added_over_trees_tell_labels(overheard):
    """The verdict `broken` of the statement: the simplest attacker, who adds up what it got."""
    tables = federation(rows=2000)
    train(tables, job(n_estimators=5), "elxgb", unsafe_noise_seed=0)  # an attack's success has no computed probability
    rounds = [message for message in overheard if isinstance(message, NoisyRound)][::2]
    added = sum(message.gradients[0, :, 0].astype(np.int64) for message in rounds)
    assert np.mean((added < 0) == (tables["p0"].label == 1)) > 0.9


def test_table_5s_first_row_is_what_the_formula_gives():
    for epsilon, published in ((2, 0.6001), (4, 0.6823), (6, 0.7560), (8, 0.8229), (10, 0.8773)):
        by_paper = math.sqrt(2 * math.log(1.25 / 1e-4)) / epsilon  # C = 0.5, delta = 1e-4
        assert guess_probability(by_paper) == pytest.approx(published, abs=0.01)


def test_calibration_by_a_guess_and_by_a_budget():
    size = {"rows": 1000, "features": 4, "bins": 32, "trees": 5, "depth": 3}
    found = SPEC.calibrate(CalibrationRequest(**size, guess=0.55))
    assert guess_probability(found["options"]["noise_multiplier"]) == pytest.approx(0.55)
    assert found["guess_by_all_trees"] > 0.55
    by_budget = SPEC.calibrate(CalibrationRequest(**size, epsilon_active=4.0, delta_active=1e-4))
    planned = plan(job(n_estimators=5, options=by_budget["options"]), 1000, Role.ACTIVE)
    assert compose(planned, 1e-4).noised == pytest.approx(4.0, rel=1e-3)
    with pytest.raises(InvalidParameter):
        SPEC.calibrate(CalibrationRequest(**size, guess=0.4))
    with pytest.raises(InvalidParameter):
        SPEC.calibrate(CalibrationRequest(**size, epsilon_passive=1.0))


def test_a_party_that_is_late_is_left_out_of_a_level_named_and_comes_back(monkeypatch):
    """One party answers its first level only when the others were not waited for any longer."""
    tables = federation()
    noticed = threading.Event()
    told = []

    class Slow(MemoryChannel):
        def send(self, message):
            if self._there.owner == "p2" and isinstance(message, StatisticsRequest) and not told:
                assert noticed.wait(60)
            return super().send(message)

    def notice(message, *_args, **_more):
        told.append((message, _args[0]))
        noticed.set()

    monkeypatch.setattr(simulation_module, "MemoryChannel", Slow)
    monkeypatch.setattr(warnings, "warn", notice)
    run = train(tables, job(options={"mechanism": "none", "clock": 0.05}), "elxgb")
    assert told[0] == ("a level went on without p2", LateParties)
    root = join(run.shares).trees[0]
    assert run.shares["p0"].skeleton.trees[0].owner[0] != 2
    owners = np.concatenate([tree.owner for tree in run.shares["p0"].skeleton.trees])
    assert (owners == 2).any(), "it takes part again"
    assert root.left[0] > 0


def test_with_time_for_all_the_clock_changes_nothing():
    tables = federation()
    quiet = {"mechanism": "none"}
    waited = train(tables, job(options=quiet | {"clock": 60.0}), "elxgb")
    assert sha(waited) == sha(train(tables, job(options=quiet), "elxgb"))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"categories": "sets"}, UnsupportedCombination),
        ({"sampling": "goss"}, UnsupportedCombination),
        ({"options": {"delta": 1.0}}, InvalidParameter),
        ({"options": {"key_bits": 3072}}, UnsupportedCombination),
        ({"options": {"backend": "paillier", "key_bits": 512}}, InvalidParameter),
        ({"options": {"clip": 0.0}}, InvalidParameter),
        ({"objective": "poisson"}, InvalidParameter),
        ({"options": PRIVATE}, UnsupportedCombination),
        (
            {"objective": "regression", "options": PRIVATE, "min_child_weight": 0.0, "base_score": 0.0},
            UnsupportedCombination,
        ),
        ({"options": {"unknown": 1}}, InvalidParameter),
    ],
)
def test_what_does_not_fit_is_refused_on_input(settings, error):
    with pytest.raises(error):
        validate(ResolvedJob(SPEC, job(**settings)))


def test_a_split_of_a_later_tree_names_no_candidate(monkeypatch):
    tables = federation(parties=2)
    refused = set()

    class Meddling(MemoryChannel):
        later = False

        def send(self, message):
            type(self).later |= isinstance(message, NoisyRound)
            if self.later and isinstance(message, SplitRequest):
                for wrong in (
                    dataclasses.replace(message, handles=message.handles + np.int32(1)),
                    dataclasses.replace(message, position=message.position + np.int32(50)),
                    dataclasses.replace(message, handles=np.append(message.handles, np.int32(0))),
                ):
                    with pytest.raises(MalformedMessage):
                        self._handler(wrong)
                    refused.add("split")
            if isinstance(message, NoisyRound):
                with pytest.raises(UnexpectedMessage):
                    self._handler(dataclasses.replace(message, number=0))
                refused.add("round")
            return super().send(message)

    monkeypatch.setattr(simulation_module, "MemoryChannel", Meddling)
    train(tables, job(options={"epsilon": 1.0}), "elxgb")
    assert refused == {"split", "round"}


def test_a_gain_that_is_no_number_is_refused(monkeypatch):
    class Lying(MemoryChannel):
        def send(self, message):
            pending = super().send(message)
            answer = pending()
            if isinstance(answer, LocalGains):
                return lambda: LocalGains(answer.gain * np.nan)
            return pending

    monkeypatch.setattr(simulation_module, "MemoryChannel", Lying)
    with pytest.raises(MalformedMessage):
        train(federation(), job(), "elxgb")
