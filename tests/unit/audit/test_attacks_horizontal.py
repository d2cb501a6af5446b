"""The attacks on `mal` and `secagg`: where they work, where the guard or the masks stop them, and controls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.audit.attacks import (
    attack,
    audit,
    mal_buckets,
    mal_ends,
    mal_extremes,
    mal_labels,
    mal_zero_masks,
    secagg_shares,
    secagg_values,
)
from veilboost.audit.attacks.horizontal import guess_from
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.ore.api import keygen, to_ordered
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.crypto.pairwise import PairwiseMasks
from veilboost.data.table import PartyTable
from veilboost.errors import UnsupportedCombination
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.mal.messages import MaskedRows
from veilboost.types import Column

KEYS = keygen(Csprng(b"keys"))


def dealt(rows: int, participants: int, columns: int = 8, classes: int = 2, seed: int = 5) -> dict[str, PartyTable]:
    """Tables of the shape of the Pima data: skewed, rounded and plain columns, labels that follow them loosely."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(columns, rows))
    values[0] = np.exp(0.6 * values[0])
    values[-1] = np.round(3 * values[-1])
    score = rng.normal(size=columns) @ values + rng.logistic(size=rows)
    label = np.searchsorted(np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1] ** 0.7), score)
    shares = np.array_split(np.arange(rows), participants)
    return {
        f"h{k}": PartyTable(
            at, tuple(Column(f"n{j}", each[at].astype(np.float32)) for j, each in enumerate(values)), label[at] * 1.0
        )
        for k, at in enumerate(shares)
    }


def played(protocol: str, tables: dict[str, PartyTable], options: dict | None = None, **parameters):
    defaults = {"objective": "binary", "n_estimators": 2, "max_bin": 16}
    config = TrainingConfig.from_dict(defaults | parameters | {"options": options or {}})
    # Whether an attack succeeds has no computed probability: the noise is the same in every run.
    run = simulate_training(tables, SERVER, protocol, config, record="payload", unsafe_noise_seed=0)
    return views_of_simulation(run, tables)


def finding(how, views, truth, victim: str = "h1"):
    return attack(how, views[how.adversary], truth, victim, np.random.default_rng(0))


# --- labels of mal ------------------------------------------------------------------------------------------


def test_at_diabetes_size_labels_stand_in_the_clear():
    """768 rows of 8 columns at ten participants, 16 buckets: the paper's own experiment."""
    views, truth = played("mal", dealt(768, 10), {"guard": "allow"})
    for how in (mal_zero_masks, mal_labels):
        found = finding(how, views, truth)
        assert found.outcome.value == 1.0
        assert found.succeeded
        assert found.outcome.baseline < 0.8
    assert finding(mal_zero_masks, views, truth).outcome.sentence.startswith("77 of 77")


def test_at_diabetes_size_the_guard_refuses_or_leaves_no_label_in_the_clear():
    tables = dealt(768, 10)
    with pytest.raises(UnsupportedCombination, match="masks cannot hide"):
        played("mal", tables, {"guard": "refuse"})
    views, truth = played("mal", tables)
    assert finding(mal_zero_masks, views, truth).outcome.sentence.startswith("0 of 77")
    guarded = finding(mal_labels, views, truth)
    assert guarded.outcome.value < 0.95
    assert "projected" in guarded.outcome.sentence


def test_linear_programming_finds_what_masks_hide_where_equations_are_many():
    """Twice as many rows as equations: nearly no mask is zero, and still one vector of labels fits."""
    views, truth = played("mal", dealt(1800, 10), {"guard": "allow"})
    assert not finding(mal_zero_masks, views, truth).succeeded
    assert finding(mal_labels, views, truth).outcome.value == 1.0


def test_several_classes_fall_as_well():
    views, truth = played("mal", dealt(600, 10, classes=3), {"guard": "allow"}, objective="multiclass")
    for how in (mal_zero_masks, mal_labels):
        assert finding(how, views, truth).outcome.value == 1.0


def test_sums_of_everything_tell_nothing_of_anyone():
    """A control: where the guard merges all buckets into few, the attack is no better than chance."""
    views, truth = played("mal", dealt(768, 10), {"max_leverage": 0.1})
    assert not finding(mal_labels, views, truth).above_chance


def test_labels_that_are_no_classes_and_rows_that_were_dropped_are_left_alone():
    views, truth = played("mal", dealt(600, 3), {"guard": "drop", "max_leverage": 0.5}, max_bin=8)
    sent = views["server"].received(MaskedRows, "h1")[0]
    assert len(sent.buckets) < len(truth.labels("h1"))
    assert finding(mal_labels, views, truth) is None
    tables = {name: replace(table, label=table.label + 0.5) for name, table in dealt(600, 3).items()}
    assert finding(mal_labels, *played("mal", tables, objective="regression")) is None


# --- features of mal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_buckets_follow_their_epsilon(epsilon):
    views, truth = played("mal", dealt(3000, 3), {"epsilon": epsilon, "guard": "allow"})
    share = np.exp(epsilon) / (np.exp(epsilon) + 15)
    assert finding(mal_buckets, views, truth).outcome.value == pytest.approx(share, abs=0.02)


def test_without_noise_all_buckets_are_true():
    views, truth = played("mal", dealt(300, 3), {"epsilon": 0.0, "guard": "allow"})
    assert finding(mal_buckets, views, truth).outcome.value == 1.0


def test_the_ends_of_columns_are_somebodys_values():
    views, truth = played("mal", dealt(600, 3))
    found = [finding(mal_ends, views, truth, name) for name in truth.tables]
    owned = [each.outcome.sentence.split()[0] for each in found if each is not None]
    assert sum(map(int, owned)) >= 16  # of eight columns; a rounded one may have several owners
    assert all(each.outcome.value == 1.0 for each in found if each is not None)


# --- extremes at the comparer -------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 63))
def test_schemes_tell_where_values_differ(first, second, shared):
    other = first ^ (second >> shared)
    place = 64 - (first ^ other).bit_length()  # of the first bit that differs; 64 where none does
    for name, width in (("clww", 1), ("lewi_wu", 8)):
        scheme = scheme_named(name)
        told = scheme.first_difference(
            KEYS.comparison, *(scheme.encrypt(KEYS, value, Csprng()) for value in (first, other))
        )
        assert (place in told and len(told) == width) if first != other else len(told) == 0
    assert list(scheme_named("pore", 16).first_difference(KEYS.comparison, b"", b"")) == list(range(16))


@settings(max_examples=200)
@given(st.floats(1.0, 1e6), st.floats(0.6, 1.6), st.booleans())
def test_a_guess_lies_where_the_difference_says(size, ratio, negative):
    anchor, value = (-size, -size * ratio) if negative else (size, size * ratio)
    one, other = to_ordered(anchor), to_ordered(value)
    order = (other > one) - (other < one)
    place = 64 - (one ^ other).bit_length()
    guess = guess_from(anchor, order, range(place, place + 1), 64)
    assert guess_from(anchor, 0, range(64, 64), 64) == anchor
    if guess != anchor:
        assert 64 - (to_ordered(guess) ^ other).bit_length() > place  # agrees in the bit that the anchor differs in
    else:
        assert order == 0 or place <= 12  # sign and exponent: too wide to say more than the anchor does


def test_the_place_of_a_bit_tells_more_than_that_of_a_byte():
    tables = dealt(900, 3)
    known = {}
    for scheme in ("clww", "lewi_wu"):
        views, truth = played("mal", tables, {"ore": scheme})
        known[scheme] = finding(mal_extremes, views, truth)
    assert known["lewi_wu"].verdict == "resisted"
    assert known["clww"].outcome.value > known["lewi_wu"].outcome.value + 0.1
    assert known["clww"].outcome.baseline == known["lewi_wu"].outcome.baseline


def test_no_place_at_all_tells_no_more_than_the_side():
    views, truth = played("mal", dealt(120, 2, columns=1), {"ore": "pore", "ore_bits": 16}, max_bin=4)
    found = finding(mal_extremes, views, truth)
    assert "0.0 of 16 bits" in found.outcome.sentence
    assert found.outcome.value == found.outcome.baseline


# --- secagg -------------------------------------------------------------------------------------------------


def test_one_share_is_a_coin_toss_and_without_masks_it_is_not(monkeypatch):
    hidden = finding(secagg_shares, *played("secagg", dealt(300, 3), max_depth=2))
    assert abs(hidden.outcome.value - 0.5) < 0.02
    assert not hidden.succeeded
    monkeypatch.setattr(PairwiseMasks, "hide", lambda self, values, *_: values)
    assert finding(secagg_shares, *played("secagg", dealt(300, 3), max_depth=2)).outcome.value == 1.0


def test_few_rows_are_all_found_by_the_search_for_cuts():
    few, many = (finding(secagg_values, *played("secagg", dealt(rows, 3), max_bin=64)) for rows in (90, 1200))
    assert few.outcome.value > 0.95
    assert few.succeeded
    assert many.outcome.value < 0.5


def test_an_audit_of_a_horizontal_run_names_its_roles():
    views, truth = played("mal", dealt(300, 3))
    found = audit(views, truth)
    assert {each.adversary_role for each in found} == {"server", "comparer"}
    assert {each.victim for each in found} == {"h0", "h1", "h2"}
    assert {each.attack for each in audit(*played("secagg", dealt(90, 3)))} == {secagg_shares.name, secagg_values.name}
