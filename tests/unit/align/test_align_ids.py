"""The one rule by which ids become bytes."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from veilboost.align.ids import canonical_ids
from veilboost.errors import DuplicateIds, MissingId, MixedTypes

pytestmark = pytest.mark.fast


def test_numbers_are_their_decimal_digits():
    assert canonical_ids(np.array([7, -3, 0, 2**62])) == [b"7", b"-3", b"0", b"4611686018427387904"]
    assert canonical_ids(np.array([2**64 - 1], dtype=np.uint64)) == [b"18446744073709551615"]
    assert canonical_ids(np.array([7, 10**30], dtype=object)) == [b"7", b"1" + b"0" * 30]


def test_text_keeps_everything_but_space_around_it():
    found = canonical_ids(np.array(["007", "7", " A b\t", "a B", "+7", "\u00a0x\u3000"]))
    assert found == [b"007", b"7", b"A b", b"a B", b"+7", b"x"]


def test_numbers_and_text_of_equal_spelling_are_the_same_id():
    assert canonical_ids(np.array([7, 70])) == canonical_ids(np.array(["7", " 70 "]))
    assert canonical_ids(np.array([7])) != canonical_ids(np.array(["007"]))


def test_unicode_forms_of_one_text_are_the_same_id():
    composed, apart = "Zoë", unicodedata.normalize("NFD", "Zoë")
    assert composed != apart
    assert canonical_ids(np.array([composed])) == canonical_ids(np.array([apart])) == [composed.encode()]
    assert canonical_ids(np.array(["ﬁ"])) != canonical_ids(np.array(["fi"])), "compatible is not canonical"


@pytest.mark.parametrize(
    ("ids", "error", "says"),
    [
        (np.array(["a", 1, 2], dtype=object), MixedTypes, "of 3 ids 2 are whole numbers and 1 are text"),
        (np.array([1.0, 2.0]), MixedTypes, "0 are whole numbers"),
        (np.array([True, False]), MixedTypes, "0 are whole numbers"),
        (np.array(["a", None], dtype=object), MixedTypes, "1 are text"),
        (np.array(["secret", "", " "]), MissingId, "2 of 3 ids are empty"),
        (np.array(["secret", " secret", "b"]), DuplicateIds, "1 of 3 rows"),
        (np.array([5, 5, 5]), DuplicateIds, "2 of 3 rows"),
        (np.array(["secret\ud800"], dtype=object), MixedTypes, "not text"),
    ],
)
def test_what_is_refused_is_counted_and_never_shown(ids, error, says):
    with pytest.raises(error, match=says) as caught:
        canonical_ids(ids)
    assert "secret" not in str(caught.value)
