"""Certificates bind whoever listens and whoever dials, over real TLS, in every topology of the firewall page.

A party with a certificate that is revoked, expired, not the pinned one, or of another party, is refused before any
content: the other side sends it no request and answers none.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from veilboost.errors import (
    CertificateRevoked,
    MalformedMessage,
    PeerUnreachable,
    UnknownPeer,
    VeilBoostError,
    WireVersion,
)
from veilboost.party import hub, identity
from veilboost.party.certs import init_authority, issue, revoke
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.hub import LinkHub, prove_link, tls_files
from veilboost.party.identity import load_identity, server_name
from veilboost.party.job import read_job
from veilboost.party.settings import load_party
from veilboost.wire.grpc import HELLO_BYTES, Greeting, LinkLimits, LinkServer, dial

PARTIES = ("bank", "shop", "telecom")
FAULTS = ("revoked", "expired", "pinned", "named")
LIMITS = LinkLimits(1 << 20)
BANK = SimpleNamespace(party="bank")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Good certificates of all parties in one folder, and a folder of bad ones for each fault."""
    folder = tmp_path_factory.mktemp("certificates")
    now = datetime.now(UTC)
    init_authority(folder, now=now - timedelta(days=60))
    for fault in FAULTS:
        (folder / fault).mkdir()
        for party in PARTIES:
            if fault == "named":  # another party's certificate, whose DNS names pass TLS
                other = PARTIES[(PARTIES.index(party) + 1) % 3]
                issue(folder, other, [server_name(party)], force=True)
                source = other
            elif fault == "expired":
                issue(folder, party, [], days=1, now=now - timedelta(days=30), force=True)
                source = party
            else:
                issue(folder, party, [], force=True)
                source = party
                if fault == "revoked":
                    revoke(folder, party)
            for kind in ("crt", "key"):
                shutil.copy2(folder / f"{source}.{kind}", folder / fault / f"{party}.{kind}")
    rng = np.random.default_rng(0)
    for party in PARTIES:
        issue(folder, party, [], force=True)
        table = {"id": np.arange(200), f"x_{party}": rng.normal(size=200)}
        if party == "bank":
            table["label"] = rng.integers(0, 2, size=200)
        pq.write_table(pa.table(table), folder / f"{party}.parquet")
    return folder


def settings_of(place, party, certificates, dials=()):
    """`certificates`: the folder of this party's own certificate. All pin each other's good ones."""
    pins = {
        other: load_identity(place / f"{other}.crt", place / f"{other}.key", place / "ca.crt").fingerprint
        for other in PARTIES
        if other != party
    }
    file = place / f"{party}-{os.urandom(4).hex()}.toml"
    file.write_text(f"""
name = "{party}"
listen = "127.0.0.1:0"
runs = "runs-{party}"
[certificates]
cert = "{certificates / f"{party}.crt"}"
key = "{certificates / f"{party}.key"}"
ca = "ca.crt"
revoked = "revoked.crl"
[data]
path = "{party}.parquet"
id = "id"
{'label = "label"' if party == "bank" else ""}
[limits]
connect_seconds = 1
[policy]
protocols = ["plain"]
allow_unprotected = ["plain"]
[policy.peers]
{chr(10).join(f'{other} = ["{pin}"]' for other, pin in pins.items())}
{"".join(f'[peers.{name}]{chr(10)}address = "{address}"{chr(10)}connect = "out"{chr(10)}' for name, address in dials)}
""")
    return load_party(file)


def lenient(monkeypatch):
    """A party that does not mind its own certificate's age or name, as an intruder would not."""

    def careless(settings):
        files = settings.certificates
        found = load_identity(files.cert, files.key, files.ca)
        return replace(found, party=settings.name)

    monkeypatch.setattr(hub, "own_identity", careless)
    monkeypatch.setattr(identity, "check_age", lambda certificate, what, now=None: None)
    real = identity.check_signed

    def checked(*args):  # but what others show is checked
        with pytest.MonkeyPatch.context() as strict:
            strict.setattr(identity, "check_age", CHECK_AGE)
            return real(*args)

    monkeypatch.setattr(hub, "check_signed", checked)


CHECK_AGE = identity.check_age
TOPOLOGIES = {  # who dials the driver; the others are dialled
    "all dialled": (),
    "all dialling": ("shop", "telecom"),
    "mixed": ("telecom",),
}


class Federation:
    """Bank drives; shop and telecom run as daemons; `faulty` has the certificate of `folder`."""

    def __init__(self, place, stack, dialling, faulty=None, folder=None):
        def own(party):
            return folder if party == faulty else place

        port = free_port() if dialling else 0
        self.bank = replace(settings_of(place, "bank", own("bank")), listen=f"127.0.0.1:{port}")
        self.daemons, self.handled = {}, {}
        for party in ("shop", "telecom"):
            dials = [("bank", f"127.0.0.1:{port}")] if party in dialling else []
            daemon = Daemon(settings_of(place, party, own(party), dials))
            stack.callback(daemon.stop)
            self.daemons[party] = daemon
            self.handled[party] = []
            daemon.host.handle = counted(daemon.host.handle, self.handled[party])
        ways = {
            party: 'connect = "in"' if party in dialling else f'address = "127.0.0.1:{self.daemons[party].port}"'
            for party in self.daemons
        }
        self.job = read_job(f"""
name = "first"
protocol = "plain"
[parties.bank]
role = "active"
address = "127.0.0.1:{port or 1}"
{"".join(f"[parties.{party}]{chr(10)}{way}{chr(10)}" for party, way in ways.items())}
[training]
n_estimators = 1
""")

    def check(self):
        with coordinate(self.bank, self.job) as coordinator:
            answers = coordinator.check().errors
        assert answers.pop("bank") is None
        return answers


def counted(handle, seen):
    def call(peer, packet, link):
        seen.append(packet)
        return handle(peer, packet, link)

    return call


def free_port():
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_good_certificates_are_accepted(place, topology):
    with ExitStack() as stack:
        federation = Federation(place, stack, TOPOLOGIES[topology])
        assert federation.check() == {"shop": None, "telecom": None}
        assert all(federation.handled.values())


@pytest.mark.parametrize(
    ("topology", "fault", "faulty"), list(itertools.product(TOPOLOGIES, FAULTS, ("shop", "telecom", "bank")))
)
def test_a_bad_certificate_is_refused_before_any_content(place, monkeypatch, topology, fault, faulty):
    lenient(monkeypatch)
    with ExitStack() as stack:
        federation = Federation(place, stack, TOPOLOGIES[topology], faulty, place / fault)
        answers = federation.check()
        wrong = ("shop", "telecom") if faulty == "bank" else (faulty,)
        for party, answer in answers.items():
            assert (answer is not None) == (party in wrong), answers
            assert bool(federation.handled[party]) == (party not in wrong)


# --- the listening side alone, and an intruder in between ------------------------------------------------------------


def dialled(place, intruder, prove, settings):
    """What a party with these settings says of a listening side with the intruder's certificate."""
    files = tls_files(load_identity(intruder / "shop.crt", intruder / "shop.key", place / "ca.crt"))
    server = LinkServer("127.0.0.1:0", lambda: files, lambda certificate: BANK, prove, lambda *_: None, LIMITS)
    own = LinkHub(settings)
    try:
        link, _ = own.dial("shop", f"127.0.0.1:{server.port}", 5.0)
        link.close()
    finally:
        server.stop()


def test_an_intruder_cannot_pass_a_hello_on_to_the_real_party(place):
    """It has an old certificate of the shop, and one of its own that the shop admits (the telecom's)."""
    with ExitStack() as stack:
        shop = Daemon(settings_of(place, "shop", place))
        stack.callback(shop.stop)
        telecom = load_identity(place / "telecom.crt", place / "telecom.key", place / "ca.crt")
        passed_on = []

        def relayed(hello, peer):
            proofs = []
            greeting = Greeting("shop", hello, proofs.append, 5.0)
            dial(f"127.0.0.1:{shop.port}", tls_files(telecom), server_name("shop"), LIMITS, greeting).close()
            passed_on.extend(proofs)
            return proofs[0]

        with pytest.raises(MalformedMessage, match="was not signed by shop"):
            dialled(place, place / "revoked", relayed, settings_of(place, "bank", place))
        assert passed_on  # the shop did answer the intruder: for a link with the telecom


def test_a_proof_serves_one_hello(place):
    real = load_identity(place / "shop.crt", place / "shop.key", place / "ca.crt")
    bank = load_identity(place / "bank.crt", place / "bank.key", place / "ca.crt")

    def old(hello, peer):
        return prove_link(real, bytes(HELLO_BYTES) + hello[HELLO_BYTES:], "bank", bank.fingerprint)

    with pytest.raises(MalformedMessage, match="was not signed by shop"):
        dialled(place, place, old, settings_of(place, "bank", place))


@pytest.mark.parametrize("proof", [b"", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"certificate": 1, "signature": "zz"}'])
def test_nonsense_for_a_proof(place, proof):
    with pytest.raises(VeilBoostError):
        dialled(place, place, lambda hello, peer: proof, settings_of(place, "bank", place))


@pytest.mark.parametrize(("fault", "error"), [("revoked", CertificateRevoked), ("pinned", UnknownPeer)])
def test_the_dialling_side_says_why(place, fault, error):
    intruder = load_identity(place / fault / "shop.crt", place / fault / "shop.key", place / "ca.crt")
    bank = load_identity(place / "bank.crt", place / "bank.key", place / "ca.crt")

    def prove(hello, peer):
        return prove_link(intruder, hello, "bank", bank.fingerprint)

    with pytest.raises(error):
        dialled(place, place / fault, prove, settings_of(place, "bank", place))


# --- releases -------------------------------------------------------------------------------------------------------


@pytest.fixture
def release_of_all(monkeypatch):
    monkeypatch.setattr(hub, "__version__", "5.4.1")


def skewed(monkeypatch, place, release, signed=None):
    """The proof of a shop that runs another release."""
    real = load_identity(place / "shop.crt", place / "shop.key", place / "ca.crt")
    bank = load_identity(place / "bank.crt", place / "bank.key", place / "ca.crt")

    def prove(hello, peer):
        with monkeypatch.context() as patch:
            patch.setattr(hub, "__version__", signed or release)
            _, _, evidence = prove_link(real, hello, "bank", bank.fingerprint).partition(b"\n")
        return release.encode() + b"\n" + evidence

    dialled(place, place, prove, settings_of(place, "bank", place))


@pytest.mark.parametrize(("release", "older"), [("5.3.9", "shop"), ("5.5.0.dev1+g12", "bank"), ("10.0", "bank")])
@pytest.mark.usefixtures("release_of_all")
def test_the_dialling_side_refuses_another_release_and_says_who_must_upgrade(monkeypatch, place, release, older):
    with pytest.raises(
        WireVersion, match=rf"shop runs VeilBoost {re.escape(release)}, and bank runs 5\.4\.1"
    ) as refused:
        skewed(monkeypatch, place, release)
    newer = "5.4" if older == "shop" else re.match(r"\d+\.\d+", release)[0]
    assert refused.value.remedy.startswith(f"install VeilBoost {newer} at {older}:")


@pytest.mark.parametrize(("release", "older"), [("5.3.9", "bank"), ("5.5.0", "shop")])
@pytest.mark.usefixtures("release_of_all")
def test_the_listening_side_refuses_it_too(place, release, older):
    with ExitStack() as stack:
        shop = Daemon(settings_of(place, "shop", place))
        stack.callback(shop.stop)
        bank = load_identity(place / "bank.crt", place / "bank.key", place / "ca.crt")
        greeting = Greeting("shop", bytes(HELLO_BYTES) + release.encode(), lambda proof: None, 5.0)
        with pytest.raises(
            WireVersion, match=rf"shop: bank runs VeilBoost {release}, and shop runs 5\.4\.1"
        ) as refused:
            dial(f"127.0.0.1:{shop.port}", tls_files(bank), server_name("shop"), LIMITS, greeting)
        assert f"at {older}" in refused.value.remedy


@pytest.mark.usefixtures("release_of_all")
def test_patch_releases_work_together_and_are_signed(monkeypatch, place):
    skewed(monkeypatch, place, "5.4.99")
    with pytest.raises(MalformedMessage, match="was not signed by shop"):
        skewed(monkeypatch, place, "5.4.99", signed="5.4.98")
    for nonsense in ("", "two", "5.4\0", "5." + "4" * 100):
        with pytest.raises(MalformedMessage, match="which release"):
            skewed(monkeypatch, place, nonsense)


def test_a_policy_that_does_not_name_a_dialled_party_lets_it_be_dialled(place):
    with ExitStack() as stack:
        shop = Daemon(settings_of(place, "shop", place))
        stack.callback(shop.stop)
        bank = settings_of(place, "bank", place)
        unnamed = replace(bank, policy=replace(bank.policy, peers={}))
        link, peer = LinkHub(unnamed).dial("shop", f"127.0.0.1:{shop.port}", 5.0)
        link.close()
        assert peer.party == "shop"
        with pytest.raises(UnknownPeer):  # but not to be answered
            LinkHub(unnamed).dial("shop", f"127.0.0.1:{shop.port}", 5.0, answers=True)


def test_a_listening_side_that_shows_nothing_is_given_up(place):
    def never(hello, peer):
        time.sleep(3)
        return b""

    own = LinkHub(settings_of(place, "bank", place))
    files = tls_files(load_identity(place / "shop.crt", place / "shop.key", place / "ca.crt"))
    server = LinkServer("127.0.0.1:0", lambda: files, lambda certificate: BANK, never, lambda *_: None, LIMITS)
    try:
        with pytest.raises(PeerUnreachable):
            own.dial("shop", f"127.0.0.1:{server.port}", 1.0)
    finally:
        server.stop()
