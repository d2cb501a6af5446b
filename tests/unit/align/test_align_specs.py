"""Requirements of every alignment method: it finds the common rows, and sends and reveals only what it declares."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from veilboost.align.api import alignment_named, all_alignments
from veilboost.align.memory import MemoryFederation, align_in_memory
from veilboost.data.table import PartyTable
from veilboost.errors import EmptyIntersection, InvalidParameter, VeilBoostError
from veilboost.privacy.statement import Status
from veilboost.types import Column
from veilboost.wire.message import Done, Message

SPECS = list(all_alignments().values())
pytestmark = pytest.mark.fast
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


def scene(spec, parties=3, rows=40):
    """Ids of each party; `prealigned` needs the same rows everywhere."""
    rng = np.random.default_rng(parties)
    known = np.array([f"c{k:03d}" for k in range(rows)])
    if spec.name == "prealigned":
        return dict.fromkeys((f"p{k}" for k in range(parties)), rng.permutation(known))
    return {f"p{k}": rng.permutation(known)[: rows * 4 // 5] for k in range(parties)}


def test_three_ways_are_known():
    assert list(all_alignments()) == ["prealigned", "ecdh", "hmac_csp"]
    with pytest.raises(InvalidParameter, match="use one of prealigned, ecdh, hmac_csp"):
        alignment_named("psi")


@every_spec
@pytest.mark.parametrize("parties", [2, 3, 4, 5])
def test_the_same_people_stand_in_the_same_place(spec, parties):
    ids = scene(spec, parties)
    for active in (next(iter(ids)), list(ids)[-1]):
        done = align_in_memory(spec.name, ids, active)
        assert set(done.alignments) == set(ids)
        found = [ids[party][alignment.positions].tolist() for party, alignment in done.alignments.items()]
        assert set(found[0]) == set.intersection(*(set(each.tolist()) for each in ids.values()))
        assert all(each == found[0] for each in found)
        assert len(set(found[0])) == len(found[0])


@every_spec
def test_an_alignment_takes_the_rows_of_a_table(spec):
    ids = scene(spec)
    done = align_in_memory(spec.name, ids, "p0")
    tables = {
        name: PartyTable(each, (Column("x", np.arange(len(each), dtype=np.float32)),)) for name, each in ids.items()
    }
    aligned = {name: done.alignments[name].apply(table) for name, table in tables.items()}
    assert aligned["p0"].rows == done.alignments["p0"].rows
    assert aligned["p0"].ids.tolist() == aligned["p1"].ids.tolist() == aligned["p2"].ids.tolist()


@every_spec
def test_secrets_are_fresh_in_every_run(spec):
    ids = scene(spec)
    first, second = (align_in_memory(spec.name, ids, "p0").alignments["p1"].positions for _ in range(2))
    assert sorted(first.tolist()) == sorted(second.tolist())
    if spec.name != "prealigned":
        assert len(first) >= 10  # two orders of ten or more rows agree with probability at most 1 / 10! < 3e-7
        assert first.tolist() != second.tolist(), "the common order depends on fresh secrets"


@every_spec
def test_only_declared_messages_travel_and_all_declared_ones_do(spec):
    done = align_in_memory(spec.name, scene(spec), "p0")
    sent = {entry.message for transcript in done.transcripts.values() for entry in transcript.entries}
    assert sent == {message.type_name() for message in spec.messages}


@every_spec
def test_who_talks_to_whom(spec):
    done = align_in_memory(spec.name, scene(spec), "p0")
    helpers = set(spec.helpers)
    for owner, transcript in done.transcripts.items():
        peers = {entry.peer for entry in transcript.entries}
        if owner == "p0":
            assert peers == {"p1", "p2"} | helpers
        elif owner in helpers:
            assert peers == {"p0", "p1", "p2"}
        else:
            assert peers == {"p0"} | helpers, "passive parties never talk directly"


@every_spec
def test_the_leakage_page_repeats_what_messages_and_statement_say(spec):
    page = Path(inspect.getfile(spec.passive)).parent / "LEAKAGE.md"
    prose = " ".join(page.read_text(encoding="utf-8").split())
    for message in spec.messages:
        assert "reveals" in vars(message), f"{message.type_name()} must set reveals itself"
        assert f"`{message.type_name()}`" in prose
        for item in message.reveals:
            assert item.to in spec.roles
            assert f'"{item.what}"' in prose, f"LEAKAGE.md does not state: {item.what}"
    for item in spec.outcome:
        assert item.to in spec.roles
        assert f'"{item.what}"' in prose
    for protection in spec.statement.protections:
        assert f"**{protection.status}**" in prose
        assert protection.why in prose


@every_spec
def test_the_statement_covers_both_sides(spec):
    for victim in ("active", "passive"):
        assert spec.statement.worst_for(victim) in set(Status)
        assert spec.learned_by(victim)
    for role in spec.helpers:
        assert spec.learned_by(role)


@every_spec
def test_no_message_is_a_surprise_to_any_handler(spec):
    """Messages out of turn or of another alignment are refused with a code, and the run goes on unharmed."""
    strangers: list[Message] = [message() for other in SPECS for message in other.messages if not fields_of(message)]
    refused = []

    def around(who, handler):
        def pestered(message):
            for stranger in strangers:
                if isinstance(stranger, Done) or stranger.type_name() not in {m.type_name() for m in spec.messages}:
                    with pytest.raises(VeilBoostError) as caught:
                        handler(stranger)
                    refused.append(caught.value.code)
            return handler(message)

        return pestered

    federation = MemoryFederation(spec.name, scene(spec), "p0", around=around)
    federation.result(federation.driver.align())
    assert set(refused) == {"VB-1403"}


def fields_of(message):
    return inspect.signature(message).parameters


@pytest.mark.parametrize("name", ["ecdh", "hmac_csp"])
def test_an_empty_intersection_is_said_at_every_party(name):
    federation = MemoryFederation(name, {"a": np.array([1, 2, 3]), "b": np.array([3, 4]), "c": np.array([5, 1])}, "a")
    with pytest.raises(EmptyIntersection, match="VB-1201"):
        federation.driver.align()
    for passive in federation.passives.values():
        with pytest.raises(EmptyIntersection):
            passive.alignment()


@every_spec
def test_a_result_is_not_there_before_its_time(spec):
    federation = MemoryFederation(spec.name, scene(spec), "p0")
    for passive in federation.passives.values():
        with pytest.raises(VeilBoostError):
            passive.alignment()


def test_an_alignment_needs_two_parties():
    with pytest.raises(InvalidParameter):
        align_in_memory("ecdh", {"a": np.array([1])}, "a")
    with pytest.raises(InvalidParameter):
        align_in_memory("ecdh", {"a": np.array([1]), "b": np.array([1])}, "c")
