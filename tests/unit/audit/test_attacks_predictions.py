"""What scores give away, and what passive parties learn that put their views together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support import split_among
from veilboost.audit.attack import Attack, Finding
from veilboost.audit.attacks import (
    _applicable,
    attack,
    explained_order,
    membership,
    membership_horizontal,
    path_restriction,
    pooled_clusters,
    predictions,
)
from veilboost.audit.sources import views_of_simulation
from veilboost.audit.view import Truth, View
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.share import SplitRecords
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.sealed import active as sealed_active
from veilboost.types import AnyArray, Column, Float64Array

CONFIG = TrainingConfig(objective="binary", n_estimators=5, max_depth=4, max_bin=32)
OVERFITTED = dataclasses.replace(CONFIG, n_estimators=25, max_depth=10, reg_lambda=0.0, min_child_weight=0.0)
COEFFICIENTS = np.array([1.0, 0.7, 0.3, 0.6, 0.2, 0.2, 0.5, 0.2, 0.1])


def people(rows: int, parties: int, noise: float = 0.5) -> dict[str, PartyTable]:
    """Nine columns, and labels that follow from all of them but for noise; under infinite noise they are coins."""
    rng = np.random.default_rng(7)
    values = rng.normal(size=(9, rows)).astype(np.float32)
    label = COEFFICIENTS @ values / noise + rng.logistic(size=rows) > 0
    return split_among([Column(f"n{k}", each) for k, each in enumerate(values)], label.astype(np.float64), parties)


def cut(tables: dict[str, PartyTable], at: int) -> tuple[dict[str, PartyTable], dict[str, PartyTable]]:
    rows = tables["p0"].rows
    return tuple({name: table.take(part) for name, table in tables.items()} for part in np.split(np.arange(rows), [at]))  # type: ignore[return-value]


def found_by(how: Attack, views: dict[str, View], truth: Truth) -> list[Finding]:
    """What one attack finds in an audit."""
    chances = [(view, victim) for each, view, victim in _applicable(views, truth) if each is how]
    found = [attack(how, view, truth, victim, np.random.default_rng(0)) for view, victim in chances]
    return [finding for finding in found if finding is not None]


def audited(
    how: Attack,
    tables: dict[str, PartyTable],
    config: TrainingConfig,
    protocol: str = "plain",
    fresh: dict[str, PartyTable] | None = None,
) -> list[Finding]:
    # Whether an attack succeeds has no computed probability: the noise is the same in every run, so nothing is random.
    run = simulate_training(tables, "p0", protocol, config, record="payload", unsafe_noise_seed=0)
    return found_by(how, *views_of_simulation(run, tables, fresh=fresh))


# --- passive parties that pool their views ------------------------------------------------------------------------


def test_passive_parties_that_pool_their_views_find_labels() -> None:
    (found,) = audited(pooled_clusters, people(1000, 3), CONFIG, "lattice")
    assert (found.adversary, found.victim) == ("p1 and p2", "p0")
    assert found.succeeded
    assert found.outcome.value > 0.7
    assert "compared with the best single party" in found.outcome.sentence


def test_one_passive_party_has_nobody_to_pool_with() -> None:
    assert not audited(pooled_clusters, people(300, 2), CONFIG)


@pytest.mark.parametrize("quiet", [True, False], ids=["selection without noise", "sealed"])
def test_pooled_views_of_sealed_give_no_more_than_epsilon_allows(monkeypatch: pytest.MonkeyPatch, quiet: bool) -> None:
    """Labels are coins: columns say nothing of them, so that all that is found comes from labels by way of nodes."""
    if quiet:

        def best(generator: object, utility: Float64Array, epsilon: float, *, sensitivity: float) -> AnyArray:
            return utility.argmax(axis=1)

        monkeypatch.setattr(sealed_active, "exponential", best)
    config = dataclasses.replace(CONFIG, n_estimators=10, max_depth=8, gradient_bits=20)
    (found,) = audited(pooled_clusters, people(200, 3, noise=np.inf), config, "sealed")
    assert found.above_chance == quiet
    if quiet:
        assert found.outcome.value > 0.57
    else:
        assert found.outcome.value < 0.55
        # What (1, 1e-5)-differential privacy allows at most is far above.
        assert found.outcome.high < np.e / (1 + np.e)


def test_pooled_views_of_sealed_stay_within_the_odds_that_epsilon_allows() -> None:
    """Where columns tell of labels, the odds of a right guess may grow by exp(epsilon) beside the columns alone."""
    (found,) = audited(pooled_clusters, people(1000, 3), CONFIG, "sealed")
    odds = np.e * found.outcome.baseline / (1 - found.outcome.baseline)
    assert found.outcome.value < odds / (1 + odds)
    assert not found.succeeded


# --- membership ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "protocol", "least", "most"),
    [
        (OVERFITTED, "plain", 0.8, 1.0),
        (dataclasses.replace(CONFIG, max_depth=2), "plain", 0.4, 0.6),
        (dataclasses.replace(CONFIG, n_estimators=40, max_depth=6), "sealed", 0.4, 0.6),
    ],
    ids=["overfitted", "shallow", "sealed"],
)
def test_scores_tell_who_was_trained_on_where_a_model_is_overfitted(
    config: TrainingConfig, protocol: str, least: float, most: float
) -> None:
    inside, outside = cut(people(1000, 2, noise=2.0), 500)
    (found,) = audited(membership, inside, config, protocol, outside)
    assert (found.adversary, found.adversary_role, found.victim) == ("a user", "user", "p0")
    assert least <= found.outcome.value <= most
    assert found.succeeded == (least > 0.5)


def test_rows_held_out_for_validation_count_as_untrained() -> None:
    tables = people(1000, 2, noise=2.0)
    held_out = np.arange(1000) >= 500
    run = simulate_training(tables, "p0", "plain", OVERFITTED, record="payload", held_out=held_out)
    views, truth = views_of_simulation(run, tables, held_out)
    (found,) = found_by(membership, views, truth)
    assert "500 training rows from 500 others" in found.outcome.sentence
    assert found.outcome.value > 0.8


@pytest.mark.parametrize("objective", ["multiclass", "regression"])
def test_losses_of_other_objectives_tell_members_too(objective: str) -> None:
    tables = people(800, 2)
    label = np.round(tables["p0"].columns[0].values).clip(-1, 1) + 1.0 if objective == "multiclass" else None
    rng = np.random.default_rng(3)
    own = rng.normal(size=800) if label is None else np.where(rng.random(800) < 0.3, rng.integers(3, size=800), label)
    tables["p0"] = dataclasses.replace(tables["p0"], label=own.astype(np.float64))
    inside, outside = cut(tables, 400)
    (found,) = audited(membership, inside, dataclasses.replace(OVERFITTED, objective=objective), fresh=outside)
    assert found.succeeded


def test_a_participants_rows_are_told_from_others_by_an_overfitted_model() -> None:
    tables, (inside, outside) = {}, cut(people(900, 1, noise=2.0), 450)
    for k, rows in enumerate(np.array_split(np.arange(450), 3)):
        tables[f"h{k}"] = inside["p0"].take(rows)
    run = simulate_training(tables, SERVER, "secagg", OVERFITTED, record="payload")
    found = found_by(membership_horizontal, *views_of_simulation(run, tables, fresh={"test": outside["p0"]}))
    assert [finding.victim for finding in found] == ["h0", "h1", "h2"]
    assert all(finding.succeeded for finding in found)


def test_without_untrained_rows_or_without_all_shares_there_is_no_finding() -> None:
    tables, fresh = cut(people(600, 2), 300)
    run = simulate_training(tables, "p0", "plain", CONFIG, record="payload")
    views, truth = views_of_simulation(run, tables, fresh=fresh)
    for how in (membership, path_restriction, explained_order):
        assert found_by(how, views, truth)
        for less in ({"fresh": {}}, {"fresh": {"p0": fresh["p0"]}}, {"shares": {"p0": truth.shares["p0"]}}):
            assert not found_by(how, views, dataclasses.replace(truth, **less))  # type: ignore[arg-type]


# --- path restriction ---------------------------------------------------------------------------------------------


def test_scores_of_few_trees_give_the_sides_of_every_cut_on_the_way() -> None:
    inside, outside = cut(people(1000, 3), 700)
    found = audited(path_restriction, inside, CONFIG, "lattice", outside)
    assert [finding.victim for finding in found] == ["p1", "p2"]
    for finding in found:
        assert finding.succeeded
        assert finding.outcome.value > 0.97
        assert finding.outcome.baseline < 0.85


def test_scores_of_many_trees_give_few_sides() -> None:
    inside, outside = cut(people(1000, 2), 700)
    (found,) = audited(path_restriction, inside, dataclasses.replace(CONFIG, n_estimators=60), fresh=outside)
    assert not found.succeeded
    assert found.outcome.value < found.outcome.baseline + 0.15


def test_scores_of_other_rows_give_no_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is the score that tells, not the own columns or the shape of the trees."""
    from_scores = predictions._sums_from_scores
    monkeypatch.setattr(predictions, "_sums_from_scores", lambda *given: np.roll(from_scores(*given), 1))
    inside, outside = cut(people(1000, 2), 700)
    (found,) = audited(path_restriction, inside, CONFIG, fresh=outside)
    assert not found.above_chance


def test_all_combinations_that_add_up_are_listed() -> None:
    weights = [np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0]), np.array([0.0, 4.0])]
    chances = [np.full(len(each), 1 / len(each)) for each in weights]
    for total, leaves in ((7.0, [[2], [1], [1]]), (2.0, [[1, 2], [0, 1], [0]])):  # 2 = 2 + 0 + 0 = 1 + 1 + 0
        likely = predictions._enumerated(weights, chances, total)
        assert likely is not None
        assert [np.flatnonzero(each).tolist() for each in likely] == leaves
    assert predictions._enumerated(weights, chances, 0.5) is None


# --- explanations -------------------------------------------------------------------------------------------------


def test_explanations_order_rows_by_columns_that_have_no_pseudonym():
    inside, outside = cut(people(1500, 3), 900)
    for found in audited(explained_order, inside, CONFIG, fresh=outside):
        assert found.succeeded
        assert found.outcome.value > found.outcome.baseline + 0.2, "paths alone reveal less"


def test_splits_are_linked_by_the_rows_that_go_left():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(3, 400)).astype(np.float32)
    feature = np.tile(np.arange(3, dtype=np.int32), 4)
    tree, node = np.repeat(np.arange(4, dtype=np.int32), 3), np.tile(np.arange(3, dtype=np.int32), 4)
    cuts = rng.uniform(-1, 1, size=12).astype(np.float32)
    none = np.full(12, -1, dtype=np.int32)
    records = SplitRecords(tree, node, feature, cuts, np.zeros(12, bool), none, np.zeros((0, 1), bool))
    linked = predictions._linked(values[feature] >= cuts[:, None], records)
    assert ((linked[:, None] == linked) == (feature[:, None] == feature)).all()
    # Independent rows link nothing across trees.
    noise = rng.random((12, 400)) < 0.5
    linked = predictions._linked(noise, records)
    assert len(np.unique(linked)) == 12
