"""Noise is drawn for its content: the same content meets the same noise and is booked once, other content neither."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

import veilboost.party.simulation as simulation_module
from support import SHORT_KEY, make_columns, make_labels, split_among, train
from veilboost.boost.grower import Round
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import JobRandomness
from veilboost.crypto.fingerprint import content_digest
from veilboost.fixedpoint import Scale
from veilboost.privacy.event import MemoryAccount
from veilboost.protocols.elxgb.active import NoisyLeaves
from veilboost.protocols.horizontal.roles import ParticipantContext
from veilboost.protocols.secagg.spec import SPEC as SECAGG
from veilboost.protocols.validation import settle
from veilboost.types import Column
from veilboost.wire.channel import Peers

pytestmark = pytest.mark.fast

KEY = b"k" * 32


def test_a_digest_names_values_shape_type_and_place_under_a_key():
    randomness = JobRandomness(KEY)
    values = np.arange(12, dtype=np.int32)
    variants = [
        (values,),
        (values.reshape(3, 4),),
        (values.view(np.uint32),),
        (values + 1,),
        (values[:6], values[6:]),
        (values, b""),
        ("a", values),
        (1, values),
    ]
    digests = [content_digest(randomness, *parts) for parts in variants]
    assert len(set(digests)) == len(variants)
    assert digests == [content_digest(JobRandomness(KEY), *parts) for parts in variants]
    assert content_digest(JobRandomness(b"o" * 32), values) != digests[0]
    assert content_digest(randomness, np.asfortranarray(values.reshape(3, 4))) == digests[1]


class Recording(JobRandomness):
    """Notes what each generator was asked for."""

    def __init__(self, key):
        super().__init__(key)
        self.asked = []

    def for_request(self, *parts):
        self.asked.append(parts)
        return super().for_request(*parts)

    def first(self, name):
        return next(parts for parts in self.asked if parts[0] == name)


ELXGB = {**SHORT_KEY, "epsilon": 4.0}
# Protocol, options, the party that draws, the name of its noise, what changes, and the release where one is booked.
# Until the noise is drawn for the first time, the other party sends the same as before.
CASES = {
    "ldp labels": ("ldp", {"epsilon": 1.0}, "p0", "ldp", "labels", "gradients"),
    "ldp law": ("ldp", {"epsilon": 1.0}, "p0", "ldp", {"epsilon": 2.0}, "gradients"),
    "ldp sums": ("ldp", {"epsilon": 1.0, "paper_form": True}, "p0", "ldp", "labels", "sums"),
    "elxgb labels": ("elxgb", ELXGB, "p0", "elxgb", "labels", "gradients"),
    "elxgb law": ("elxgb", ELXGB, "p0", "elxgb", {**ELXGB, "epsilon": 2.0}, "gradients"),
    "elxgb leaves": ("elxgb", {**ELXGB, "private_leaves": True}, "p0", "elxgb leaves", "labels", "leaves"),
    "federboost features": ("federboost", {"epsilon": 1.0}, "p1", "federboost", "features", "buckets"),
    "federboost law": ("federboost", {"epsilon": 1.0}, "p1", "federboost", {"epsilon": 2.0}, "buckets"),
    "masked labels": ("masked", {"eps_ap": 4.0}, "p0", "coefficients", "labels", "vectors"),
    "masked sums": ("masked", {"eps_ap": 4.0}, "p0", "coefficients", "labels", "sums"),
    "masked features": ("masked", {"eps_ap": 4.0}, "p1", "masks", "features", "masks"),
    "smm1 labels": ("smm1", {}, "p0", "kernel", "labels", None),
    "smm1 features": ("smm1", {}, "p1", "mask", "features", None),
    "smm2 labels": ("smm2", {}, "p0", "mask", "labels", None),
    "smm2 features": ("smm2", {}, "p1", "kernel", "features", None),
}


def drawn(protocol, options, party, changed):
    """What the party asked its generator for, and its book, in a job whose keys are always the same."""
    columns = make_columns(6, rows=200, numeric=4)
    tables = split_among(columns, make_labels(6, columns), 2)
    if changed == "labels":  # one person's
        label = tables["p0"].label.copy()
        label[11] = 1.0 - label[11]
        tables["p0"] = dataclasses.replace(tables["p0"], label=label)
    elif changed == "features":  # two people change places
        first, *rest = tables["p1"].columns
        values = first.values.copy()
        at = [int(values.argmin()), int(values.argmax())]
        values[at] = values[at[::-1]]
        tables["p1"] = dataclasses.replace(tables["p1"], columns=(Column(first.name, values), *rest))
    elif changed is not None:
        options = changed
    config = TrainingConfig(
        objective="binary", n_estimators=2, max_depth=2, max_bin=8, categories="ordinal", base_score=0.5,
        min_child_weight=0.0,
        options=options,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        keys = {name: Recording(name.encode().ljust(32, b".")) for name in tables}
        patch.setattr(simulation_module, "_randomness", lambda name, _: keys[name])
        run = train(tables, config, protocol)
    return keys[party], run.accounts[party].events


@pytest.mark.parametrize("case", CASES)
def test_other_content_meets_other_noise_and_is_booked_beside_the_first(case):
    protocol, options, party, name, changed, release = CASES[case]
    asked, events = drawn(protocol, options, party, None)
    again, same = drawn(protocol, options, party, None)
    other, more = drawn(protocol, options, party, changed)
    assert again.asked == asked.asked
    assert same == events
    assert other.first(name) != asked.first(name)
    if release is not None:
        first, second = ([e for e in each if release in e.release] for each in (events, more))
        assert first[0].release == second[0].release
        assert first[0].content != second[0].content
        assert len(first[0].content) == 32
        assert {e.content for e in first} & {e.content for e in second} == set()


def test_leaves_that_a_later_level_closes_otherwise_are_booked_again():
    """A passive party that forces a resume and answers differently at the last level sees other leaves."""
    account, randomness = MemoryAccount(), JobRandomness(KEY)
    config = TrainingConfig(objective="binary", options={**ELXGB, "private_leaves": True})
    totals = np.array([[900, 4000], [-700, 3000], [500, 2000], [-300, 1000]], dtype=np.int64)

    def round_of(*closings):
        context = SimpleNamespace(config=config, trees_per_round=1, randomness=randomness, account=account)
        leaves, nobody = NoisyLeaves(context), np.empty(0, dtype=np.int32)
        leaves.begin_round(Round(1, np.zeros((1, 40, 2), dtype=np.int32), Scale(20, 20), nobody, nobody, [None]))
        found = [
            leaves.weights(None, SimpleNamespace(totals=each), np.arange(len(each)), Scale(20, 20)) for each in closings
        ]
        leaves.end_round()
        return found

    first = round_of(totals[:1], totals[1:3])
    assert len(account.events) == 1, "the leaves of a round are disjoint: one release"
    again = round_of(totals[:1], totals[1:3])
    assert len(account.events) == 1
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    other = round_of(totals[:1], totals[1:4])
    assert np.array_equal(first[0], other[0])
    assert not np.array_equal(first[1], other[1][:2])
    assert len(account.events) == 2


def test_a_participant_with_another_table_has_another_key_for_its_masks():
    """Masks are named by requests, and these are the same when a job is taken up again."""
    columns = make_columns(2, rows=60, numeric=3)
    table = split_among(columns, make_labels(2, columns), 1)["p0"]
    label = table.label.copy()
    label[0] = 1.0 - label[0]

    def public(each, held_out=None):
        context = ParticipantContext(
            party="a",
            participants=("a",),
            table=each,
            helpers=Peers({}),
            config=settle(SECAGG, TrainingConfig(objective="binary")),
            threads=1,
            randomness=JobRandomness(KEY),
            account=MemoryAccount(),
            held_out=held_out,
        )
        return SECAGG.roles["participant"](context).introduce().public.tobytes()

    assert public(table) == public(table)
    others = [
        public(dataclasses.replace(table, label=label)),
        public(dataclasses.replace(table, columns=table.columns[:2])),
        public(table, np.arange(60) < 5),
    ]
    assert len({public(table), *others}) == 4
