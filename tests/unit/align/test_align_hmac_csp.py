"""`hmac_csp`: the CSP and the authority refuse what is wrong, a false CSP is found out, a curious pair is not."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest

from veilboost.align.api import AlignContext, HelperContext
from veilboost.align.hmac_csp import (
    AlignmentKey,
    Authority,
    CommonConfirmed,
    CommonHashes,
    CommonRequest,
    ConfirmCommon,
    Csp,
    HashedRows,
    HmacPassive,
    KeyRequest,
    PrepareHashes,
    SubmitHashes,
)
from veilboost.align.memory import MemoryFederation, align_in_memory
from veilboost.errors import (
    DuplicateIds,
    FalseIntersection,
    MalformedMessage,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.wire.message import Done

pytestmark = pytest.mark.fast

IDS = {"bank": np.array(["7", "12", "x", "y"]), "shop": np.array([12, 7, 99]), "phone": np.array(["99", "7", "12"])}


def digests(*texts, key=bytes(32)):
    made = sorted(hashlib.blake2b(t.encode(), key=key, digest_size=16).digest() for t in texts)
    return np.frombuffer(b"".join(made), np.uint8).reshape(-1, 16)


@pytest.mark.parametrize("name", ["blake2b", "hmac-sha512"])
def test_both_hashes_find_the_same_people(name):
    done = align_in_memory("hmac_csp", IDS, "bank", hash=name)
    found = {
        party: IDS[party][alignment.positions].astype(str).tolist() for party, alignment in done.alignments.items()
    }
    assert sorted(found["bank"]) == ["12", "7"]
    assert found["bank"] == found["shop"] == found["phone"]


def test_the_common_order_is_that_of_the_papers_hash():
    seen = {}

    def around(who, handler):
        def watching(message):
            answer = handler(message)
            if isinstance(answer, AlignmentKey):
                seen["key"] = answer.key.tobytes()
            return answer

        return watching

    federation = MemoryFederation("hmac_csp", IDS, "bank", hash="hmac-sha512", around=around)
    own = federation.driver.align()
    by_hash = sorted(["7", "12"], key=lambda text: hmac.digest(seen["key"], text.encode(), "sha512"))
    assert IDS["bank"][own.positions].tolist() == by_hash


def test_the_csp_takes_one_sorted_list_of_each_party():
    csp = Csp(HelperContext(("a", "b"), most_rows=3))
    good = digests("1", "2", "3")
    wrong = [
        good[:, :15],
        np.concatenate((good, good), axis=1),
        good[::-1],
        np.repeat(good[:1], 2, axis=0),
        digests("1", "2", "3", "4"),
    ]
    for bad in wrong:
        with pytest.raises(MalformedMessage):
            csp.handle("a", HashedRows(bad))
    with pytest.raises(UnexpectedMessage, match="only the parties"):
        csp.handle("c", HashedRows(good))
    assert csp.handle("a", HashedRows(good)) == Done()
    with pytest.raises(UnexpectedMessage, match="already"):
        csp.handle("a", HashedRows(good))
    with pytest.raises(UnexpectedMessage, match="1 of 2 parties"):
        csp.handle("a", CommonRequest())
    csp.handle("b", HashedRows(digests("2", "3", "9")))
    for party in ("a", "b"):
        answer = csp.handle(party, CommonRequest())
        assert isinstance(answer, CommonHashes)
        np.testing.assert_array_equal(answer.digests, digests("2", "3"))
    with pytest.raises(UnexpectedMessage):
        csp.handle("c", CommonRequest())


def test_the_authority_gives_one_key_to_those_who_take_part():
    authority = Authority(HelperContext(("a", "b")))
    first, second = authority.handle("a", KeyRequest()), authority.handle("b", KeyRequest())
    assert isinstance(first, AlignmentKey)
    assert isinstance(second, AlignmentKey)
    assert first.key.tobytes() == second.key.tobytes() != bytes(32)
    assert len(first.key) == 32
    with pytest.raises(UnexpectedMessage):
        authority.handle("csp", KeyRequest())
    other = Authority(HelperContext(("a", "b"))).handle("a", KeyRequest())
    assert isinstance(other, AlignmentKey)
    assert other.key.tobytes() != first.key.tobytes()


def meddle(change, whom):
    """A federation whose CSP answers the request for common digests wrongly to some parties."""
    asked = []

    def around(who, handler):
        def lying(message):
            answer = handler(message)
            if isinstance(answer, CommonHashes):
                asked.append(who)
                if len(asked) in whom:
                    return CommonHashes(change(answer.digests))
            return answer

        return lying

    return MemoryFederation("hmac_csp", IDS, "bank", around=around)


def test_digests_that_were_never_sent_are_found_out():
    for turn in (1, 3):  # a passive party's answer, the active party's answer
        federation = meddle(lambda _: digests("never sent"), {turn})
        with pytest.raises(FalseIntersection, match=r"VB-1203: the CSP returned 1 digests"):
            federation.driver.align()


def test_a_csp_that_tells_parties_different_things_is_found_out():
    for turn in (1, 2, 3):
        with pytest.raises(FalseIntersection, match="other common rows"):
            meddle(lambda common: common[:1], {turn}).driver.align()


@pytest.mark.parametrize("change", [lambda d: d[:, :8], lambda d: d[::-1], lambda d: np.repeat(d[:1], 2, axis=0)])
def test_an_answer_of_the_wrong_form_is_refused(change):
    with pytest.raises(MalformedMessage):
        meddle(change, {1, 2, 3}).driver.align()


def test_a_passive_party_keeps_the_order_of_steps_and_survives_wrong_ones():
    federation = MemoryFederation("hmac_csp", IDS, "bank")
    passive = federation.passives["shop"]
    for message in (SubmitHashes(), ConfirmCommon(), KeyRequest(), CommonRequest()):
        with pytest.raises(UnexpectedMessage):
            passive.handle(message)
    for name in ("md5", "hmac-sha512"):  # the job says blake2b
        with pytest.raises(UnexpectedMessage, match="blake2b"):
            passive.handle(PrepareHashes(name))
    own = federation.driver.align()
    assert own.rows == passive.alignment().rows == 2
    for message in (PrepareHashes("blake2b"), SubmitHashes(), ConfirmCommon()):
        with pytest.raises(UnexpectedMessage):
            passive.handle(message)


def test_a_passive_party_that_claims_other_rows_is_found_out():
    def around(who, handler):
        def lying(message):
            answer = handler(message)
            return CommonConfirmed(answer.rows, answer.check[:5]) if isinstance(answer, CommonConfirmed) else answer

        return lying

    with pytest.raises(FalseIntersection):
        MemoryFederation("hmac_csp", IDS, "bank", around=around).driver.align()


def test_a_short_key_is_refused():
    def around(who, handler):
        def weak(message):
            answer = handler(message)
            return AlignmentKey(answer.key[:8]) if isinstance(answer, AlignmentKey) else answer

        return weak

    with pytest.raises(MalformedMessage, match="32 bytes"):
        MemoryFederation("hmac_csp", IDS, "bank", around=around).driver.prepare()


def test_third_parties_must_be_there():
    passive = HmacPassive(AlignContext("shop", ("bank", "shop"), IDS["shop"]))
    with pytest.raises(UnsupportedCombination, match="authority and csp"):
        passive.handle(PrepareHashes("blake2b"))


def test_bad_ids_are_refused_before_anything_is_sent():
    federation = MemoryFederation("hmac_csp", {"a": np.array([1, 2]), "b": np.array(["x", "x "])}, "a")
    with pytest.raises(DuplicateIds):
        federation.driver.prepare()
    assert not federation.transcripts["csp"].entries
    assert federation.transcripts["b"].messages_sent() == 0


def test_a_csp_with_the_key_of_one_party_finds_every_id_that_can_be_guessed():
    """The attack behind the status `broken`: one key for all, and ids come from a small space (EL erratum 13)."""
    rng = np.random.default_rng(5)
    ids = {name: rng.choice(5_000, 400, replace=False) for name in ("a", "b")}
    seen = {}

    def around(who, handler):
        def listening(message):
            answer = handler(message)
            if isinstance(message, HashedRows):
                seen.setdefault("lists", []).append(message.digests)
            if isinstance(answer, AlignmentKey):
                seen["key"] = answer.key.tobytes()
            return answer

        return listening

    MemoryFederation("hmac_csp", ids, "a", around=around).driver.align()
    dictionary = {
        hashlib.blake2b(b"%d" % k, key=seen["key"], digest_size=16, person=b"veilboost align").digest(): k
        for k in range(5_000)
    }
    recovered = [{dictionary[row.tobytes()] for row in each} for each in seen["lists"]]
    assert {frozenset(each) for each in recovered} == {frozenset(each.tolist()) for each in ids.values()}
