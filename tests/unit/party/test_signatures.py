"""Signatures by a party's certificate: believed from a third party's mouth, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from veilboost.errors import ForeignCertificate, MalformedMessage, NotACertificate, UnknownPeer, VeilBoostError
from veilboost.party.certs import init_authority, issue
from veilboost.party.horizontal import CertificateSigner
from veilboost.party.identity import load_identity
from veilboost.party.policy import Policy

pytestmark = pytest.mark.fast
SESSION, CONTENT = bytes(16), b"a public key"


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    found = {}
    for town in ("here", "elsewhere"):
        folder = tmp_path_factory.mktemp(town)
        init_authority(folder, town)
        for name in ("north", "south"):
            issue(folder, name, ["localhost"])
            found[town, name] = load_identity(folder / f"{name}.crt", folder / f"{name}.key", folder / "ca.crt")
    return found


def voucher(identity, peers=("north", "south"), session=SESSION, revoked=frozenset(), pinned="any"):
    return CertificateSigner(identity, Policy(peers=dict.fromkeys(peers, (pinned,))), revoked, session)


def test_a_peer_believes_what_was_signed(identities):
    evidence = voucher(identities["here", "north"]).sign(CONTENT)
    voucher(identities["here", "south"]).check("north", CONTENT, evidence)


def test_nothing_else_is_believed(identities):
    north, south = identities["here", "north"], identities["here", "south"]
    evidence = voucher(north).sign(CONTENT)
    fingerprint = north.fingerprint
    for reader, party, content, error in [
        (voucher(south), "north", b"another key", MalformedMessage),
        (voucher(south), "south", CONTENT, MalformedMessage),  # signed, but by somebody else
        (voucher(south, session=bytes(15) + b"1"), "north", CONTENT, MalformedMessage),  # of another session
        (voucher(south, peers=("south",)), "north", CONTENT, UnknownPeer),
        (voucher(south, pinned="0" * 64), "north", CONTENT, UnknownPeer),
        (voucher(identities["elsewhere", "south"]), "north", CONTENT, ForeignCertificate),
    ]:
        with pytest.raises(error):
            reader.check(party, content, evidence)
    voucher(south, pinned=fingerprint).check("north", CONTENT, evidence)


@pytest.mark.parametrize("evidence", ["", "[]", "{}", '{"certificate": "x", "signature": "zz"}'])
def test_garbage_is_refused(identities, evidence):
    with pytest.raises(MalformedMessage):
        voucher(identities["here", "south"]).check("north", CONTENT, evidence)


def test_a_certificate_is_checked_as_on_connection(identities):
    good = json.loads(voucher(identities["here", "north"]).sign(CONTENT))
    with pytest.raises(NotACertificate):
        voucher(identities["here", "south"]).check("north", CONTENT, json.dumps(good | {"certificate": "none"}))
    stranger = replace(identities["here", "south"], ca=identities["elsewhere", "south"].ca)
    with pytest.raises(VeilBoostError):
        voucher(stranger).check("north", CONTENT, json.dumps(good))
