"""Proposals that wait for a person: what is held, what a decision allows, and what is not accepted as one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from parties import CONFIG, Town, make_certificates
from veilboost.crypto.csprng import Csprng
from veilboost.errors import CertificateExpired, InvalidParameter, UnknownProposal, VeilBoostError, printable
from veilboost.party import approvals, identity
from veilboost.party.approvals import (
    APPROVALS,
    DECISION,
    LONGEST,
    PROPOSAL,
    PURPOSE,
    Decision,
    Proposal,
    decide,
    find_proposal,
    list_proposals,
    require_approval,
    use_approval,
    verify,
)
from veilboost.party.certs import issue, revoke
from veilboost.party.daemon import PartyHost
from veilboost.party.hub import own_identity
from veilboost.party.identity import PeerIdentity, peer_identity, sign
from veilboost.party.messages import BeginAlignment, Propose
from veilboost.party.proposals import Subject
from veilboost.party.retention import apply_retention
from veilboost.party.settings import CertificateSettings, PartySettings, load_party
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.privacy.ledger import Ledger
from veilboost.wire.message import Message, encode
from veilboost.wire.rpc import Kind, Packet

pytestmark = pytest.mark.fast
HOUR = 3600.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Town:
    town = Town(tmp_path, certificates, rows=200)
    town.settle("shop", {"approval": "ask"}, {"max_proposals": 3})
    return town


@pytest.fixture
def shop(town: Town) -> PartySettings:
    return load_party(town.folder / "shop.toml")


@pytest.fixture
def bank(certificates: Path) -> PeerIdentity:
    return peer_identity((certificates / "bank.crt").read_bytes())


class Clock:
    """The time of decisions."""

    def __init__(self) -> None:
        self.now = approvals.time.time()

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(approvals, "time", clock)
    return clock


def propose(
    town: Town,
    peer: PeerIdentity,
    dry_run: bool = False,
    resume: bool = False,
    address: str = "127.0.0.1:1",
    **job: Any,
) -> str:
    """Propose a job to the shop, in a session of its own; returns the code of its answer, or none."""
    text = town.write_job({"shop": address}, **job).read_text()
    host = PartyHost(load_party(town.folder / "shop.toml"), lambda name, seconds: pytest.fail("nobody is asked"))
    try:
        body = encode(Propose(text, dry_run=dry_run, resume=resume))
        answer = host.handle(peer, Packet(Kind.REQUEST, Csprng().bytes(16), 1, body))
        return answer.body.decode() if answer.kind is Kind.FAILURE else ""
    finally:
        host.close()


SUBJECT = Subject(
    kind="training", role="passive", job="credit", protocol="plain", settings={}, table="t", columns=("a",), rows=5
)


def ask(settings: PartySettings, peer: PeerIdentity, digest: str = "d") -> Proposal:
    found = require_approval(settings, peer, digest, lambda: SUBJECT)
    assert found is not None
    return found


def code(act: Callable[[], object]) -> str:
    with pytest.raises(VeilBoostError) as refused:
        act()
    return refused.value.code


# --- what is held -----------------------------------------------------------------------------------------


def test_a_permitted_job_is_held_once_and_a_changed_one_is_another(
    town: Town, shop: PartySettings, bank: PeerIdentity
) -> None:
    first = propose(town, bank)
    assert first.split("\n")[0] == "VB-1415"
    assert "shop" in first
    assert not (shop.runs / "credit").exists(), "nothing of the job is begun"
    assert propose(town, bank) == first
    (held,) = list_proposals(shop)
    assert (held.state, held.asked_by, held.fingerprint) == ("pending", "bank", bank.fingerprint)
    assert (held.table, held.columns, held.rows) == ("main", ("n2", "n3", "shade"), 180)
    assert held.settings["parties"] == "bank (active), shop (passive)"
    assert held.settings["n_estimators"] == "8"
    assert {each["to"] for each in held.reveals} == {"active", "passive"}
    assert any(each["status"] == "unprotected" and each["attack"] for each in held.statements)
    assert (held.assignments, held.assignments_left) == (8 * CONFIG.max_depth, None)
    propose(town, bank, config=replace(CONFIG, n_estimators=9))
    assert [each.settings["n_estimators"] for each in list_proposals(shop)] == ["9", "8"]
    propose(town, replace(bank, fingerprint="ab" * 32))
    assert len(list_proposals(shop)) == 3, "another certificate is another proposal"


def test_a_proposal_states_what_would_be_left_of_the_limit_on_assignments(town: Town, bank: PeerIdentity) -> None:
    town.settle("shop", {"approval": "ask", "assignments_total": 100})
    shop = load_party(town.folder / "shop.toml")
    release = ExactRelease(
        what="x", adjacency=Adjacency.PASSIVE_RECORD, adversary="bank", protocol="plain", release="y", assignments=7
    )
    Ledger(shop.ledger_file).append("earlier/0", release)
    propose(town, bank)
    (held,) = list_proposals(shop)
    assert held.assignments_left == 100 - 7 - 8 * CONFIG.max_depth


def test_what_the_policy_forbids_or_only_checks_is_not_held(
    town: Town, shop: PartySettings, bank: PeerIdentity
) -> None:
    assert propose(town, bank, protocol="lattice").startswith("VB-1612")
    assert propose(town, bank, dry_run=True) == ""
    assert propose(town, bank, resume=True).startswith("VB-1703"), "and a resume begins nothing"
    assert list_proposals(shop) == []
    town.settle("shop", {"approval": "ask", "min_rows": 1000})
    assert propose(town, bank, alignment="prealigned").startswith("VB-1612")
    assert list_proposals(shop) == []


def test_an_approved_job_is_accepted_until_it_begins(town: Town, shop: PartySettings, bank: PeerIdentity) -> None:
    propose(town, bank)
    decide(shop, list_proposals(shop)[0].id, True, by="anna", reason="contract")
    assert propose(town, bank) == ""
    assert propose(town, bank) == "", "another party may not have accepted: the job has not begun"
    assert propose(town, bank, config=replace(CONFIG, n_estimators=9)).startswith("VB-1415")
    assert propose(town, replace(bank, fingerprint="ab" * 32)).startswith("VB-1415")
    use_approval(shop, list_proposals(shop)[-1])
    assert propose(town, bank).startswith("VB-1415"), "a second start needs a second approval"


def test_new_addresses_are_the_same_job_and_another_recording_is_not(
    town: Town, shop: PartySettings, bank: PeerIdentity
) -> None:
    propose(town, bank)
    assert propose(town, bank, address="shop.example:7400").startswith("VB-1415")
    assert len(list_proposals(shop)) == 1
    propose(town, bank, record="payload")
    assert len(list_proposals(shop)) == 2


def test_a_job_whose_approval_was_used_elsewhere_does_not_begin_however_often_it_is_tried(
    town: Town, shop: PartySettings, bank: PeerIdentity
) -> None:
    propose(town, bank)
    decide(shop, list_proposals(shop)[0].id, True, by="anna", reason="")
    job = (town.folder / "credit.toml").read_text()
    host, session = PartyHost(shop, lambda name, seconds: pytest.fail("nobody is asked")), Csprng().bytes(16)
    requests: list[Message] = [Propose(job, False, False), *3 * [BeginAlignment()]]
    bodies: list[str] = []
    for number, message in enumerate(requests, 1):
        answer = host.handle(bank, Packet(Kind.REQUEST, session, number, encode(message)))
        bodies.append(answer.body.decode() if answer.kind is Kind.FAILURE else "")
        if number == 1:
            use_approval(shop, list_proposals(shop)[0])
    host.close()
    assert bodies[0] == ""
    assert all(body.startswith("VB-1416") for body in bodies[1:])
    assert not (shop.runs / "credit" / "job.toml").exists()


# --- what a person decides --------------------------------------------------------------------------------


def test_a_refusal_is_a_code_without_the_reason_and_holds(
    town: Town, shop: PartySettings, bank: PeerIdentity, clock: Clock
) -> None:
    propose(town, bank)
    decide(shop, list_proposals(shop)[0].id, False, by="anna", reason="SECRET")
    said = propose(town, bank)
    assert said.startswith("VB-1416\nthe owner of shop has refused this proposal\n")
    assert "SECRET" not in said
    assert "anna" not in said
    clock.now += 25 * HOUR
    assert propose(town, bank).startswith("VB-1415"), "it can be proposed again"
    assert [each.state for each in list_proposals(shop)] == ["pending", "refused"]


@pytest.mark.parametrize("approved", [False, True], ids=["undecided", "approved and not used"])
def test_a_proposal_expires_and_can_be_proposed_again(
    shop: PartySettings, bank: PeerIdentity, clock: Clock, approved: bool
) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    clock.now += 23 * HOUR
    if approved:
        decide(shop, held.id, True, by="anna", reason="")
        assert ask(shop, bank).state == "approved"
        clock.now += 23 * HOUR
        assert ask(shop, bank).state == "approved"
    else:
        assert code(lambda: ask(shop, bank)) == "VB-1415"
    clock.now += 2 * HOUR
    assert find_proposal(shop, held.id).state == "expired"
    with pytest.raises(InvalidParameter, match="is expired"):
        decide(shop, held.id, True, by="anna", reason="")
    assert code(lambda: ask(shop, bank)) == "VB-1416"
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    assert [each.state for each in list_proposals(shop)] == ["pending", "expired"]


def test_only_the_first_decision_counts_and_an_approval_is_used_once(shop: PartySettings, bank: PeerIdentity) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    decide(shop, held.id[:6], False, by="anna", reason="")
    with pytest.raises(InvalidParameter, match="is refused"):
        decide(shop, held.id, True, by="bert", reason="")
    assert code(lambda: ask(shop, bank, "other")) == "VB-1415"
    other = list_proposals(shop)[0]
    decide(shop, other.id, True, by="bert", reason="")
    approval = ask(shop, bank, "other")
    assert use_approval(shop, approval).used_at is not None
    assert code(lambda: use_approval(shop, approval)) == "VB-1416"
    assert find_proposal(shop, other.id).state == "approved"


def test_two_persons_who_decide_at_once(
    shop: PartySettings, bank: PeerIdentity, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    decide(shop, held.id, True, by="anna", reason="")
    monkeypatch.setattr(approvals, "find_proposal", lambda *_: held)  # as bert has read it before
    with pytest.raises(InvalidParameter, match="somebody else has decided"):
        decide(shop, held.id, False, by="bert", reason="")
    assert ask(shop, bank).decision is not None


@pytest.mark.parametrize("id", ["", "abc", "../../bank", "*", "ffffffffffffffff-1"])
def test_an_unknown_id(shop: PartySettings, bank: PeerIdentity, id: str) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    with pytest.raises(UnknownProposal):
        decide(shop, id, True, by="anna", reason="")


# --- what is not accepted as a decision -------------------------------------------------------------------


def edited(shop: PartySettings, name: str, **changes: Any) -> None:
    (held,) = list_proposals(shop)
    file = shop.runs / APPROVALS / held.id / name
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


FORGERIES: dict[str, Callable[[PartySettings, Path], None]] = {
    "refused": lambda shop, certs: edited(shop, DECISION, approved=True),
    "by": lambda shop, certs: edited(shop, DECISION, approved=True, by="mallory"),
    "no signature": lambda shop, certs: edited(shop, DECISION, approved=True, signature=""),
    "epsilon": lambda shop, certs: edited(shop, PROPOSAL, epsilon=0.5),
    "digest": lambda shop, certs: edited(shop, PROPOSAL, digest="other"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_edited_decision_is_not_accepted(
    shop: PartySettings, bank: PeerIdentity, certificates: Path, forgery: str
) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    decide(shop, list_proposals(shop)[0].id, False, by="anna", reason="")
    assert verify(shop, list_proposals(shop)[0])
    FORGERIES[forgery](shop, certificates)
    assert not verify(shop, list_proposals(shop)[0])
    assert code(lambda: ask(shop, bank)) == "VB-1716"


def test_another_key_cannot_approve(town: Town, shop: PartySettings, bank: PeerIdentity) -> None:
    """Not that of another party of the same authority, and not this party's own signature for another purpose."""
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    plain = Decision(True, "anna", "", held.asked_at, held.asked_at + HOUR)
    content = approvals._signed(held, plain)
    other = own_identity(load_party(town.folder / "bank.toml"))
    for signature, valid in (
        (sign(other, PURPOSE, content), False),
        (sign(own_identity(shop), "word of a participant", content), False),
        (sign(own_identity(shop), PURPOSE, content), True),
    ):
        forged = json.dumps(vars(replace(plain, signature=signature)))
        (shop.runs / APPROVALS / held.id / DECISION).write_text(forged)
        assert verify(shop, list_proposals(shop)[0]) == valid
        if not valid:
            assert code(lambda: ask(shop, bank)) == "VB-1716"
    assert ask(shop, bank).state == "approved"


def test_a_forged_approval_begins_nothing(town: Town, shop: PartySettings, bank: PeerIdentity) -> None:
    propose(town, bank)
    decide(shop, list_proposals(shop)[0].id, False, by="anna", reason="")
    edited(shop, DECISION, approved=True)
    assert propose(town, bank) == "VB-1716\nthe party cannot verify a decision about a proposal\n"
    assert not (shop.runs / "credit").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"approved": 1}', "\x00"])
def test_a_damaged_decision_is_a_coded_error(shop: PartySettings, bank: PeerIdentity, content: str) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    (shop.runs / APPROVALS / held.id / DECISION).write_text(content)
    assert code(lambda: ask(shop, bank)) == "VB-1711"
    assert list_proposals(shop) == []


def test_a_signature_outlasts_its_certificate_unless_that_is_revoked(
    tmp_path: Path, shop: PartySettings, bank: PeerIdentity, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "certs"
    shutil.copytree(certificates, folder)
    issue(folder, "shop", ["localhost"], days=2, force=True)
    files = CertificateSettings(folder / "shop.crt", folder / "shop.key", folder / "ca.crt")
    shop = replace(shop, certificates=files)
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    decide(shop, held.id, True, by="anna", reason="")
    (held,) = list_proposals(shop)

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(days=3)

    monkeypatch.setattr(identity, "datetime", Later)
    with pytest.raises(CertificateExpired):
        own_identity(shop)
    assert verify(shop, held)
    revoke(folder, "shop", now=datetime.now(UTC))
    assert not verify(replace(shop, certificates=replace(files, revoked=folder / "revoked.crl")), held)


def test_an_old_decision_stays_valid_if_a_release_adds_a_field(shop: PartySettings, bank: PeerIdentity) -> None:
    assert code(lambda: ask(shop, bank)) == "VB-1415"
    (held,) = list_proposals(shop)
    assert "epsilon_left" not in json.loads((shop.runs / APPROVALS / held.id / PROPOSAL).read_text())
    decide(shop, held.id, True, by="anna", reason="")
    assert verify(shop, find_proposal(shop, held.id))


def test_proposals_are_kept_as_long_as_runs(shop: PartySettings, bank: PeerIdentity) -> None:
    for digest in ("pending", "approved", "refused", "used"):
        assert code(lambda name=digest: ask(replace(shop, limits=replace(shop.limits, max_proposals=9)), bank, name))
    found = {each.digest: each.id for each in list_proposals(shop)}
    for digest in ("approved", "refused", "used"):
        decide(shop, found[digest], digest != "refused", by="anna", reason="")
    use_approval(shop, ask(shop, bank, "used"))
    shop = replace(shop, retention=replace(shop.retention, runs_days=0.0))
    deleted = {each.path.name for each in apply_retention(shop)}
    assert deleted == {found["used"]}, "a refusal still answers for a day"
    assert {each.digest for each in list_proposals(shop)} == {"pending", "approved", "refused"}


# --- what a malicious peer tries --------------------------------------------------------------------------


def test_a_peer_cannot_fill_the_disk(
    town: Town, shop: PartySettings, bank: PeerIdentity, certificates: Path, clock: Clock
) -> None:
    for number in range(5):
        assert code(lambda n=number: ask(shop, bank, f"{n}")) == ("VB-1415" if number < 3 else "VB-1412")
    other = peer_identity((certificates / "telecom.crt").read_bytes())
    assert code(lambda: ask(shop, other)) == "VB-1415", "other peers are not affected"
    for day in range(1, 4):
        clock.now += 25 * HOUR
        for number in range(5):
            assert code(lambda n=number, d=day: ask(shop, bank, f"{d} {n}")) in ("VB-1415", "VB-1412")
    assert len([each for each in list_proposals(shop) if each.asked_by == "bank"]) <= 2 * 3
    assert code(lambda: ask(load_party(town.folder / "shop.toml"), other, "x")) == "VB-1415"


def test_proposals_that_come_at_once_do_not_exceed_the_limit(shop: PartySettings, bank: PeerIdentity) -> None:
    described, together = list[str](), Barrier(8)

    def propose(digest: str) -> str:
        def describe() -> Subject:
            described.append(digest)
            return SUBJECT

        together.wait()
        return code(lambda: require_approval(shop, bank, digest, describe))

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(propose, "aabbccdd"))
    assert len(list_proposals(shop)) == len({each.digest for each in list_proposals(shop)}) == 3
    assert sorted(described) == sorted(set(described)), "the table is not read for a proposal that is held already"
    assert len(described) == 3, "nor for one beyond the limit"
    assert (codes.count("VB-1415"), codes.count("VB-1412")) == (6, 2)


def test_a_long_proposal_is_refused(shop: PartySettings, bank: PeerIdentity) -> None:
    long = replace(SUBJECT, settings={"classes": "x" * LONGEST})
    assert code(lambda: require_approval(shop, bank, "d", lambda: long)) == "VB-1412"
    assert list_proposals(shop) == []


def test_texts_of_a_peer_are_printable() -> None:
    assert printable("a\u202egnp.exe\x1b[2J\r\n\u2066\ud800é") == "a\\u202egnp.exe\\x1b[2J\\r\\n\\u2066\\ud800é"
