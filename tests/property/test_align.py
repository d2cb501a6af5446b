"""Alignment equals the intersection of sets, whatever the ids look like."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.align.ids import canonical_ids
from veilboost.align.memory import align_in_memory
from veilboost.errors import DuplicateIds, EmptyIntersection, MissingId, MixedTypes

pytestmark = pytest.mark.fast

NUMBER = re.compile(r"0|-?[1-9][0-9]*")

# Few letters make ids meet: leading zeros, a letter and an accent that join in NFC, a space, another script.
SMALL = st.text(alphabet=["0", "1", "7", "e", "\u0301", "é", " ", "Ж", "-"], min_size=1, max_size=3)


def rule(value: int | str) -> str:
    """The rule once more, in the simplest way."""
    return str(value) if isinstance(value, int) else unicodedata.normalize("NFC", value).strip()


def unique_by_rule(values: list) -> list:
    return list({rule(value): value for value in values if rule(value)}.values())


def as_array(values: list) -> np.ndarray:
    return np.array(values, dtype=object)


@st.composite
def federations(draw):
    """Two to five parties who know some of the same people and write them in their own ways."""
    people = draw(st.lists(st.one_of(SMALL, st.integers(-20, 20).map(str)), min_size=1, max_size=25))
    columns = {}
    for k in range(draw(st.integers(2, 5))):
        chosen = unique_by_rule(draw(st.lists(st.sampled_from(people), max_size=25)))
        if draw(st.booleans()):
            columns[f"p{k}"] = [int(text) for text in chosen if NUMBER.fullmatch(text)]
        else:
            form, pad = draw(st.sampled_from(["NFC", "NFD"])), draw(st.sampled_from(["", " ", "\u3000"]))
            columns[f"p{k}"] = [pad + unicodedata.normalize(form, text) for text in chosen]
    return columns


def check(name: str, columns: dict, **options) -> None:
    ids = {party: as_array(values) for party, values in columns.items()}
    expected = set.intersection(*({rule(value) for value in values} for values in columns.values()))
    if not expected:
        with pytest.raises(EmptyIntersection):
            align_in_memory(name, ids, "p0", **options)
        return
    done = align_in_memory(name, ids, "p0", **options)
    found = [[rule(columns[p][k]) for k in done.alignments[p].positions] for p in columns]
    assert set(found[0]) == expected
    assert len(found[0]) == len(expected)
    assert all(each == found[0] for each in found)


@settings(max_examples=60, deadline=None)
@given(federations(), st.sampled_from(["blake2b", "hmac-sha512"]))
def test_hmac_csp_is_set_intersection(columns, chosen):
    check("hmac_csp", columns, hash=chosen)


@settings(max_examples=20, deadline=None)
@given(federations())
def test_ecdh_is_set_intersection(columns):
    check("ecdh", columns)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(SMALL, st.integers(-5, 5), st.text(max_size=4)), max_size=8))
def test_ids_come_out_by_the_rule_or_are_refused(values):
    expected = [rule(value) for value in values]
    kinds = {type(value) for value in values}
    array = as_array(values)
    if len(kinds) > 1:
        with pytest.raises(MixedTypes):
            canonical_ids(array)
    elif "" in expected:
        with pytest.raises(MissingId):
            canonical_ids(array)
    elif len(set(expected)) < len(expected):
        with pytest.raises(DuplicateIds):
            canonical_ids(array)
    else:
        found = canonical_ids(array)
        assert [text.decode() for text in found] == expected
        again = canonical_ids(as_array([text.decode() for text in found]))
        assert again == found, "the rule changes nothing the second time"
