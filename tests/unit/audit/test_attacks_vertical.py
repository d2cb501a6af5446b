"""The attacks on what vertical protocols share: where they work, and where they must not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support import make_columns, make_labels, split_among
from veilboost.audit.attacks import (
    active_order,
    all_attacks,
    attack,
    audit,
    combined,
    feature_order,
    gradient_signs,
    histogram_bins,
    instance_clusters,
    noisy_gradients,
    own_cuts,
    reported_buckets,
)
from veilboost.audit.replay import foreign_assignments
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.view import POOLED, Truth, View
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_training

CONFIG = TrainingConfig(
    objective="binary", n_estimators=12, max_depth=3, max_bin=8, learning_rate=0.3, categories="onehot"
)


def audited(protocol: str, rows: int = 240, seed: int = 1, **changes: object) -> tuple[dict[str, View], Truth]:
    columns = make_columns(seed, rows, 6)
    tables = split_among(columns, make_labels(seed, columns), 2)
    config = dataclasses.replace(CONFIG, **changes)  # type: ignore[arg-type]
    # Whether an attack succeeds has no computed probability: the noise is the same in every run.
    run = simulate_training(tables, "p0", protocol, config, record="payload", unsafe_noise_seed=0)
    return views_of_simulation(run, tables)


def found(how: object, protocol: str, by: str, on: str, **changes: object):
    views, truth = audited(protocol, **changes)  # type: ignore[arg-type]
    return attack(how, views[by], truth, on, np.random.default_rng(0))  # type: ignore[arg-type]


def test_names_are_unique_and_roles_are_known() -> None:
    attacks = all_attacks().values()
    assert len({how.name for how in attacks}) == len(attacks)
    roles = {"active", "passive", "server", "participant", "comparer", "authority", "csp", "user", POOLED}
    assert {how.adversary for how in attacks} | {how.victim for how in attacks} <= roles


def test_exact_sums_give_the_bins_and_noisy_ones_do_not() -> None:
    exact = found(histogram_bins, "sealed", "p0", "p1")
    noisy = found(histogram_bins, "sealed", "p0", "p1", options={"eps_features": 8.0})
    assert exact.outcome.value > 0.9
    # No better than the sides of winning cuts, which are told in any case.
    assert noisy.outcome.value < noisy.outcome.baseline + 0.1
    assert not noisy.succeeded


def test_more_trees_give_more_bins() -> None:
    few, many = (found(histogram_bins, "lattice", "p0", "p1", n_estimators=trees) for trees in (2, 12))
    assert few.outcome.value < many.outcome.value


def test_noise_averages_out_over_trees() -> None:
    one = found(gradient_signs, "ldp", "p1", "p0", options={"epsilon": 4.0}, rows=1000)
    summed = found(noisy_gradients, "ldp", "p1", "p0", options={"epsilon": 4.0}, rows=1000)
    assert one.outcome.value < 0.62
    assert summed.outcome.value > one.outcome.value + 0.05
    clear = found(noisy_gradients, "ldp", "p1", "p0", options={"mechanism": "none"})
    assert clear.outcome.value == 1.0


def test_fresh_noise_at_every_level_tells_more() -> None:
    once, often = (
        found(noisy_gradients, "ldp", "p1", "p0", options={"epsilon": 2.0, "per_node": each}, rows=1000)
        for each in (False, True)
    )
    assert often.outcome.value > once.outcome.value + 0.05


def test_winning_cuts_order_a_column() -> None:
    ordered = found(feature_order, "plain", "p0", "p1")
    assert ordered.outcome.value > 0.7
    assert ordered.succeeded


def test_the_active_partys_own_cuts_order_its_columns() -> None:
    ordered = found(active_order, "lattice", "p1", "p0")
    assert ordered.outcome.value > 0.7
    assert ordered.succeeded


def test_a_tree_of_one_level_tells_no_side_of_the_active_party() -> None:
    assert found(active_order, "plain", "p1", "p0", max_depth=1) is None


def test_sides_of_others_are_those_of_their_records() -> None:
    views, truth = audited("plain")
    part = views["p0"].share
    assert part is not None
    values = part.matrix(truth.tables["p0"].columns, views["p0"].rows)
    told = {frozenset(left.tolist()) for left, _ in foreign_assignments(views["p1"], "p0")}
    at_root = part.records.node == 0
    assert at_root.any()
    for record in np.flatnonzero(at_root):
        every = np.arange(views["p0"].rows, dtype=np.int32)
        left = part.records.goes_left(values, np.full(len(every), record, dtype=np.int32), every)
        assert frozenset(every[left].tolist()) in told


def test_own_cuts_that_won_tell_little_beside_the_columns_themselves() -> None:
    told = found(own_cuts, "federboost", "p1", "p0", rows=600)
    assert told is not None
    assert not told.succeeded


def test_rows_that_share_a_node_reveal_labels() -> None:
    told = found(instance_clusters, "lattice", "p1", "p0", rows=1200, max_depth=5)
    assert told.above_chance
    assert told.outcome.value > 0.6


def test_reported_buckets_follow_their_epsilon() -> None:
    shares = [
        found(reported_buckets, "federboost", "p0", "p1", rows=800, options={"epsilon": epsilon}).outcome.value
        for epsilon in (1.0, 4.0)
    ]
    # k-ary randomized response over 8 buckets tells the truth with e^eps / (e^eps + 7).
    assert shares == pytest.approx([np.e / (np.e + 7), np.exp(4) / (np.exp(4) + 7)], abs=0.03)


def test_an_audit_runs_what_applies_and_combines_seeds() -> None:
    runs = []
    for seed in (1, 2):
        views, truth = audited("plain", seed=seed, n_estimators=3)
        runs.append(audit(views, truth, seed))
    applying = (instance_clusters, histogram_bins, feature_order, active_order)
    assert {finding.attack for finding in runs[0]} == {how.name for how in applying}
    together = combined(runs)
    assert [finding.runs for finding in together] == [2, 2, 2, 2]


def test_a_view_without_anything_to_use_is_left_alone() -> None:
    views, truth = audited("federboost")
    for how in (instance_clusters, histogram_bins, feature_order):
        for view, victim in ((views["p0"], "p1"), (views["p1"], "p0")):
            if view.role == how.adversary:
                assert attack(how, view, truth, victim, np.random.default_rng(0)) is None
