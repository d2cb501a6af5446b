"""Parties that deviate: the product refuses or resists, and each experiment catches a twin without the check.

A twin is the product with one check, or one step, put back to what a review found.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support import make_columns, make_labels, split_among
from veilboost.audit.deviations import chosen_winners, duplicated_nodes, multiplied_row, rounding_leak, spelled_rows
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.keys import PRIMES, EncryptedSums, PublicKey
from veilboost.protocols.lattice import messages as lattice_messages
from veilboost.protocols.vertical import passive
from veilboost.protocols.vertical.active import VerticalActive

pytestmark = pytest.mark.fast

CONFIG = TrainingConfig(objective="binary", n_estimators=1, max_depth=3, max_bin=8)
NOISED = replace(CONFIG, n_estimators=10, options={"eps": 1.0, "eps_features": 20.0})
ROWS = 600


def tables(rows=ROWS):
    columns = make_columns(2, rows, 8)
    return split_among(columns, make_labels(2, columns), 2)


# --- duplicated nodes ---------------------------------------------------------------------------------------
#
# The deviation is measured on k noises, 40 at least (four columns of five bins or more, two sums each); k times its
# square over the true one has a chi-square law: below a quarter of the mean, or above 16 times it, with less than 4e-7.


def test_a_node_is_summed_once_in_a_request():
    found = duplicated_nodes(tables(64)["p1"], NOISED)
    assert (found.verdict, found.refused, found.outcome) == ("refused", "VB-1401", None)
    once = duplicated_nodes(tables(64)["p1"], NOISED, copies=1)
    assert once.verdict == "resisted"
    assert once.outcome.value < 0.5


def test_copies_of_a_node_average_the_noise_away_where_they_are_taken(monkeypatch):
    monkeypatch.setattr(passive._native, "increasing_below", lambda values, limit: True)
    found = duplicated_nodes(tables(64)["p1"], NOISED)
    assert found.verdict == "succeeded"
    assert found.outcome.value > 0.5  # 1 - 1/8 is expected


# --- noise inside ciphertexts -------------------------------------------------------------------------------
#
# The slope has a standard error of 0.07: it is on the wrong side of 0.5 with a probability below 1e-9.


def test_added_noise_leaves_nothing_but_the_new_sum():
    found = rounding_leak()
    assert found.verdict == "resisted"
    assert abs(found.outcome.value) < 0.5


def test_noise_that_is_rounded_by_itself_is_seen_below_the_sums(monkeypatch):
    honest = PublicKey.sum

    def rounded(self, ciphertext, blocks, bins, matrix, starts, widths, sizes, threads, noise=None, added=None):
        """As in release 0.1.0: after the flood and the switch of the modulus, and to the nearest number."""
        answer = honest(self, ciphertext, blocks, bins, matrix, starts, widths, sizes, threads, noise)
        times, rest = divmod(1 << sizes.log_delta, PRIMES[1])
        excess = added * times + np.rint(added * (rest / PRIMES[1])).astype(np.int64)
        return EncryptedSums(((answer.sums.astype(np.int64) + excess) % PRIMES[0]).astype(np.uint64), answer.masks)

    monkeypatch.setattr(PublicKey, "sum", rounded)
    found = rounding_leak()
    assert 0.5 < found.outcome.value < 1.5


# --- blocks -------------------------------------------------------------------------------------------------


def test_blocks_finer_than_public_bounds_are_refused():
    found = spelled_rows(tables()["p1"], CONFIG)
    assert (found.verdict, found.refused, found.outcome) == ("refused", "VB-1401", None)


def test_one_block_spells_sixty_rows():
    """What stays possible, and is documented."""
    found = spelled_rows(tables()["p1"], CONFIG, block=None)
    assert found.verdict == "resisted"
    assert found.outcome.value == 60 / ROWS


def test_fine_blocks_spell_every_row_where_the_request_cuts_them(monkeypatch):
    def as_asked(build, rows, most):
        return np.zeros(ROWS // 60, dtype=np.int32), np.full(ROWS // 60, 60)

    monkeypatch.setattr(lattice_messages, "cut_into_blocks", as_asked)
    found = spelled_rows(tables()["p1"], CONFIG)
    assert found.verdict == "succeeded"
    assert found.outcome.value == 1.0


# --- a passive party that multiplies ------------------------------------------------------------------------
#
# In `sealed` another split than the favoured one is selected with a probability below 1e-9: its utility is behind by
# more than 80 in the exponent as long as predictions lie between 0.1 and 0.9, as they do at this epsilon.

MULTIPLY = pytest.mark.parametrize(("protocol", "options"), [("lattice", {}), ("sealed", {"eps": 20.0})])


@MULTIPLY
def test_a_passive_party_that_multiplies_reads_one_label_and_is_stopped(protocol, options):
    found = multiplied_row(tables(), "p0", protocol, replace(CONFIG, n_estimators=20, options=options))
    assert (found.verdict, found.refused) == ("refused", "VB-1411")
    assert found.outcome.value == 1 / 20


@MULTIPLY
def test_a_passive_party_that_multiplies_reads_every_label_where_sums_are_not_compared(protocol, options, monkeypatch):
    monkeypatch.setattr(VerticalActive, "check_split", lambda *_: None)
    found = multiplied_row(tables(), "p0", protocol, replace(CONFIG, n_estimators=20, options=options))
    assert found.verdict == "succeeded"
    assert found.outcome.value == 1.0


# --- chosen winners: nobody can see it, so the rate is measured -----------------------------------------------


@pytest.mark.parametrize(("trees", "depth", "share"), [(1, 3, 1.0), (1, 2, 0.5), (1, 1, 0.25), (4, 3, 1.0)])
def test_chosen_winners_tell_two_to_the_depth_bins_of_a_column_with_each_tree(trees, depth, share):
    found = chosen_winners(tables()["p1"], replace(CONFIG, n_estimators=trees, max_depth=depth))
    assert found.refused is None
    assert found.outcome.value == share
    assert found.outcome.sentence.endswith(f"of {trees * ROWS} bins")


def test_chosen_winners_of_columns_with_any_number_of_bins():
    found = chosen_winners(tables()["p1"], replace(CONFIG, n_estimators=4, max_depth=4, max_bin=11))
    assert (found.refused, found.outcome.value) == (None, 1.0)


def test_min_node_rows_bounds_what_chosen_winners_tell():
    """Nodes of 150 rows are not summed, so the third level is never reached."""
    found = chosen_winners(tables()["p1"], replace(CONFIG, min_node_rows=200))
    assert found.refused == "VB-1401"
    assert found.outcome.value == 0.5
