"""Ids hashed before an alignment: used if they are valid, hashed again if not, and never read where damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilboost.align.api import HelperContext
from veilboost.align.hmac_csp import Authority, KeyRequest
from veilboost.align.ids import Hashing, PreparedHashing, PreparedIds
from veilboost.errors import DuplicateIds, MalformedMessage, MissingId

pytestmark = pytest.mark.fast

KEY, OTHER = bytes(range(32)), bytes(32)
IDS = np.array(["c3", "c1", "zoë", "c2"])
texts = st.lists(st.text("aé7 0Z", min_size=1), max_size=12)
numbers = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12)


def made(ids=IDS, key=KEY, name="blake2b"):
    return PreparedIds.make(ids, Hashing().begin(ids), key, name)


def same(found, wanted):
    return np.array_equal(found.digests, wanted.digests) and np.array_equal(found.rows, wanted.rows)


@given(texts | numbers)
def test_what_is_kept_comes_back_and_is_what_hashing_gives(values):
    ids = np.array(values) if values else np.array([], dtype=np.int64)
    try:
        wanted = Hashing().begin(ids)(KEY, "hmac-sha512")
    except (DuplicateIds, MissingId):
        return
    kept = PreparedIds.from_bytes(made(ids, name="hmac-sha512").to_bytes())
    assert same(kept.sorted, wanted)
    assert (kept.key, kept.hash) == (KEY, "hmac-sha512")
    assert kept.are_of(ids)
    assert kept.sorted.rows.dtype == np.int64


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_damage_anywhere_is_found(place, change):
    content = bytearray(made().to_bytes())
    content[place % len(content)] ^= change
    with pytest.raises(MalformedMessage, match="prepare the job again"):
        PreparedIds.from_bytes(bytes(content))


def test_what_is_cut_short_or_no_such_file_is_refused():
    content = made().to_bytes()
    for wrong in (b"", b"x", content[:-1], content[:40], content[:-56], content + b"\0"):
        with pytest.raises(MalformedMessage):
            PreparedIds.from_bytes(wrong)


def test_other_ids_another_order_or_another_kind_are_not_the_same():
    kept = made(np.array([1, 2, 3]))
    assert kept.are_of(np.array([1, 2, 3]))
    for other in ([1, 3, 2], [1, 2], [1, 2, 4], [1, 2, 3, 4], ["1", "2", "3"]):
        assert not kept.are_of(np.array(other))
    assert made().are_of(IDS.copy())
    assert not made().are_of(np.array(["c3", "c1", "zoe", "c2"]))


class Watched:
    """A prepared hashing that counts how often ids are really hashed."""

    def __init__(self, monkeypatch, ready):
        self.reported, self.hashed, hashed = [], 0, Hashing.begin
        monkeypatch.setattr(Hashing, "begin", lambda this, ids: self._count(hashed(this, ids)))
        self.hashing = PreparedHashing(ready, self.reported.append)

    def _count(self, really):
        def counted(key, name):
            self.hashed += 1
            return really(key, name)

        return counted


@pytest.mark.parametrize(
    ("ids", "key", "name", "expected"),
    [
        (IDS, KEY, "blake2b", "hashed beforehand"),
        (IDS[::-1], KEY, "blake2b", "hashed again: they differ"),
        (IDS[:3], KEY, "blake2b", "hashed again: they differ"),
        (IDS, OTHER, "blake2b", "hashed again: the authority has given another key"),
        (IDS, KEY, "hmac-sha512", "hashed again: the job hashes with hmac-sha512"),
    ],
)
def test_prepared_digests_are_used_if_they_are_valid(monkeypatch, ids, key, name, expected):
    wanted = Hashing().begin(ids)(key, name)
    watched = Watched(monkeypatch, made())
    assert same(watched.hashing.begin(ids)(key, name), wanted)
    assert len(watched.reported) == 1
    assert watched.reported[0].startswith(expected)
    assert watched.hashed == ("again" in expected)


def test_bad_ids_are_refused_before_a_key_is_there():
    with pytest.raises(DuplicateIds):
        PreparedHashing(made(), print).begin(np.array(["a", "a "]))


def test_the_authority_uses_a_key_that_it_gave_before_once_for_all():
    kept = [KEY]
    authority = Authority(HelperContext(("a", "b"), take_key=kept.pop))
    assert [authority.handle(party, KeyRequest()).key.tobytes() for party in "abab"] == [KEY] * 4
    fresh = Authority(HelperContext(("a", "b"))).handle("a", KeyRequest()).key.tobytes()
    assert fresh not in (KEY, bytes(32))
