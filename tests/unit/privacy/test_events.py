"""Events are facts: they go to JSON and back, refuse nonsense, and the same fact told twice counts once."""

from __future__ import annotations

import json
import math

import pytest

from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.errors import InvalidParameter
from veilboost.privacy.event import (
    Adjacency,
    Duchi,
    ExactRelease,
    Exponential,
    Gaussian,
    Hybrid,
    Laplace,
    MemoryAccount,
    Piecewise,
    RandomizedResponse,
    event_from_dict,
)

pytestmark = pytest.mark.fast

ABOUT = {
    "what": "gradients",
    "adjacency": Adjacency.LABEL,
    "adversary": "passive parties",
    "protocol": "test",
    "release": "round 3",
}
EVERY = [
    Gaussian(0.2, **ABOUT, count=3, paper_epsilon=1.0, paper_delta=1e-3),
    Laplace(2.0, **ABOUT),
    Duchi(1.0, **ABOUT),
    Piecewise(1.0, **ABOUT),
    Hybrid(1.0, **ABOUT),
    RandomizedResponse(1.0, 4, **ABOUT),
    Exponential(0.5, **ABOUT),
    ExactRelease(**ABOUT),
]


@pytest.mark.parametrize("event", EVERY, ids=lambda event: event.kind)
def test_an_event_survives_json(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert event_from_dict(json.loads(event.canonical())) == event


def test_every_kind_is_another_fact():
    assert len({event.canonical() for event in EVERY}) == len(EVERY)
    assert Duchi(1.0, **ABOUT) != Piecewise(1.0, **ABOUT)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(-1.0, **ABOUT),
        lambda: Gaussian(math.nan, **ABOUT),
        lambda: Gaussian(math.inf, **ABOUT),
        lambda: Laplace(0.0, **ABOUT),
        lambda: Duchi(0.0, **ABOUT),
        lambda: Exponential(math.inf, **ABOUT),
        lambda: RandomizedResponse(1.0, 1, **ABOUT),
        lambda: Gaussian(1.0, **ABOUT, count=0),
        lambda: Gaussian(1.0, **ABOUT, paper_epsilon=math.nan),
        lambda: Gaussian(1.0, **ABOUT, paper_delta=-1.0),
        lambda: event_from_dict({}),
        lambda: event_from_dict({"kind": "gaussian", "mahalanobis": 1.0}),
        lambda: event_from_dict(Gaussian(1.0, **ABOUT).to_dict() | {"adjacency": "nobody"}),
        lambda: event_from_dict(Gaussian(1.0, **ABOUT).to_dict() | {"more": 1}),
    ],
)
def test_what_is_no_event_is_refused(make):
    with pytest.raises(InvalidParameter):
        make()


def test_a_retry_is_booked_once_and_other_content_again():
    account = MemoryAccount()
    once = Gaussian(0.2, **ABOUT, content="aa")
    for event in (once, once, Gaussian(0.2, **ABOUT, content="bb"), once):
        account.spend(event)
    assert [event.content for event in account.events] == ["aa", "bb"]


def test_the_randomness_of_a_request_is_a_function_of_key_and_request():
    key = bytes(range(32))
    one, same, other = JobRandomness(key), JobRandomness(key), JobRandomness(bytes(32))
    drawn = one.for_request("round", 3, b"digest").bytes(64)
    assert same.for_request("round", 3, b"digest").bytes(64) == drawn
    # Neither another key, nor parts that only look alike when they are put end to end.
    for different in (
        other.for_request("round", 3, b"digest"),
        one.for_request("round", "3", b"digest"),
        one.for_request("round3", b"digest"),
        one.for_request("round", 3, "digest"),
        one.for_request("round", 3, b"diges", b"t"),
    ):
        assert different.bytes(64) != drawn
    assert JobRandomness().key != JobRandomness().key
    assert "key" not in repr(one)
    assert key.hex() not in repr(one)
    with pytest.raises(ValueError, match="32"):
        JobRandomness(b"short")


@pytest.mark.parametrize("count", [0, 1, 4096, 4097, (1 << 20) - 1, (1 << 20) + 1, 3 << 20])
def test_long_draws_have_the_length_asked_for_and_do_not_repeat_themselves(count):
    for generator in (Csprng(), Csprng(b"seed")):
        drawn = generator.bytes(count)
        assert len(drawn) == count
        blocks = {drawn[at : at + 32] for at in range(0, count - 31, 32)}
        assert len(blocks) == count // 32
