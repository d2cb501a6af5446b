"""Rows found batch by batch are the rows that are found at once, in one order at every party."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_align import as_array, federations, rule

from veilboost.align.ids import BatchedIds, canonical_ids
from veilboost.align.memory import MemoryFederation
from veilboost.engine.pool import Pool
from veilboost.engine.shards import Shards
from veilboost.errors import EmptyIntersection, FalseIntersection

pytestmark = pytest.mark.fast

SALTS = st.binary(min_size=16, max_size=16)


def in_shards(ids, count):
    return Shards.of(Pool(), len(ids), count).place(ids) if len(ids) else ids


def by_batches(name, ids, batches, salt, dealers):
    """The rows of every party, batch after batch, each aligned by itself; parties that do not deal show all in each."""
    dealt = {party: BatchedIds(own, batches, salt, 0 if party in dealers else 99) for party, own in ids.items()}
    found = {party: [] for party in ids}
    for number in range(batches):
        here = {party: each.batch(number) for party, each in dealt.items()}
        federation = MemoryFederation(name, {party: batch.ids for party, batch in here.items()}, "p0")
        try:
            aligned = federation.result(federation.driver.align()).alignments
        except EmptyIntersection:
            continue
        for party, batch in here.items():
            found[party] += batch.rows_of(aligned[party].by_id(batch.ids).positions).tolist()
    return found


@pytest.mark.parametrize(("name", "examples"), [("hmac_csp", 40), ("ecdh", 15)])
def test_batches_find_what_is_common(name, examples):
    @settings(max_examples=examples, deadline=None)
    @given(federations(), st.integers(1, 7), SALTS, st.integers(1, 4), st.booleans())
    def check(columns, batches, salt, shards, all_deal):
        ids = {
            party: in_shards(as_array(values), shards if party == "p1" else 1) if party != "p0" else as_array(values)
            for party, values in columns.items()
        }
        found = by_batches(name, ids, batches, salt, set(columns) if all_deal else {"p1"})
        people = [[rule(columns[party][row]) for row in rows] for party, rows in found.items()]
        assert all(each == people[0] for each in people), "the order is the same at every party"
        assert len(people[0]) == len(set(people[0]))
        assert set(people[0]) == set.intersection(*({rule(v) for v in values} for values in columns.values()))

    check()


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(-10, 99), min_size=1), st.integers(1, 7), SALTS, st.integers(1, 5))
def test_every_id_is_in_one_lot_whatever_it_is_written_as_and_wherever_it_lies(numbers, batches, salt, count):
    ids = np.array(sorted(numbers))
    texts = in_shards(np.array([f" {number}" for number in ids[::-1]]), count)
    seen = []
    for number in range(batches):
        one, other = (BatchedIds(each, batches, salt, fewest=0).batch(number) for each in (ids, texts))
        assert sorted(canonical_ids(one.ids)) == sorted(canonical_ids(other.ids))
        np.testing.assert_array_equal(ids[one.rows], one.ids)
        np.testing.assert_array_equal(np.asarray(texts)[other.rows], other.ids)
        seen += one.rows.tolist()
    assert sorted(seen) == list(range(len(ids)))


def test_where_nobody_deals_nobody_is_found_twice():
    ids = {"p0": np.arange(9), "p1": np.arange(9)}
    with pytest.raises(FalseIntersection, match="VB-1203"):
        by_batches("hmac_csp", ids, 3, bytes(16), dealers=set())


def test_batches_are_about_as_large_and_depend_on_the_salt():
    ids = np.arange(20_000)
    sizes = [len(BatchedIds(ids, 8, salt).batch(0).ids) for salt in (b"a" * 16, b"b" * 16)]
    assert all(2300 < size < 2700 for size in sizes)
    assert BatchedIds(ids, 8, b"a" * 16).batch(0).ids.tolist() != BatchedIds(ids, 8, b"b" * 16).batch(0).ids.tolist()
