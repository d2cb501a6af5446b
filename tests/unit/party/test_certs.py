"""The authority, and the checks of certificates on input."""

from __future__ import annotations

import base64
import dataclasses
import os
import ssl
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from veilboost.errors import (
    CertificateExpired,
    CertificateRevoked,
    ExposedKey,
    ForeignCertificate,
    InvalidParameter,
    KeyMismatch,
    NotACertificate,
    UnknownPeer,
    UnreadableCertificate,
    VeilBoostError,
    WouldOverwrite,
)
from veilboost.party.certs import init_authority, issue, revoke
from veilboost.party.identity import (
    Identity,
    check_peer,
    describe,
    load_identity,
    load_revoked,
    peer_identity,
    write_private,
)
from veilboost.party.policy import Policy

pytestmark = pytest.mark.fast

HOSTS = ("bank.example", "127.0.0.1", "::1")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "certs"
    init_authority(made, "Town")
    issue(made, "bank", HOSTS)
    return made


def identity(folder: Path, party: str = "bank") -> Identity:
    return load_identity(folder / f"{party}.crt", folder / f"{party}.key", folder / "ca.crt")


# --- the authority ----------------------------------------------------------------------------------------


def test_a_certificate_says_who_where_and_how_long(folder: Path) -> None:
    info = describe(folder / "bank.crt")
    assert (info.subject, info.party, info.issuer, info.hosts) == ("bank", "bank", "Town", HOSTS)
    assert timedelta(days=364) < info.not_after - datetime.now(UTC) <= timedelta(days=365)
    assert info.not_before < datetime.now(UTC)
    authority = describe(folder / "ca.crt")
    assert (authority.party, authority.issuer, authority.hosts) == (None, "Town", ())
    assert authority.not_after > info.not_after
    der = ssl.PEM_cert_to_DER_cert((folder / "bank.crt").read_text())
    assert len(info.fingerprint) == 64
    assert info.fingerprint == peer_identity(der).fingerprint == identity(folder).fingerprint


def test_keys_are_their_owners_alone_and_nothing_is_left_behind(folder: Path) -> None:
    assert mode(folder) == mode(folder / "issued") == 0o700
    assert {path.name for path in folder.iterdir()} == {
        "ca.crt", "ca.key", "bank.crt", "bank.key", "issued", "revoked.crl",
    }  # fmt: skip
    assert {mode(path) for path in folder.iterdir() if path.is_file()} == {0o600}


def test_keys_are_private_even_under_an_open_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        init_authority(tmp_path / "open")
    finally:
        os.umask(before)
    assert mode(tmp_path / "open") == 0o700
    assert mode(tmp_path / "open" / "ca.key") == 0o600


def test_nothing_is_overwritten_unless_forced(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(WouldOverwrite):
        init_authority(folder)
    with pytest.raises(WouldOverwrite):
        issue(folder, "bank", HOSTS)
    (folder / "bank.crt").unlink()  # the key alone is in the way too
    with pytest.raises(WouldOverwrite, match=r"bank\.key"):
        issue(folder, "bank", HOSTS)
    (folder / "bank.crt").write_bytes(before[folder / "bank.crt"])
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    issue(folder, "bank", HOSTS, force=True)
    assert (folder / "bank.key").read_bytes() != before[folder / "bank.key"]
    assert mode(folder / "bank.key") == 0o600
    assert identity(folder).party == "bank"
    assert len(list((folder / "issued").iterdir())) == 2


def test_a_file_that_comes_to_be_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"theirs")
    with pytest.raises(WouldOverwrite):
        write_private(tmp_path / "key", b"ours")
    assert (tmp_path / "key").read_bytes() == b"theirs"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("party", ["", "ca", "CA", "a b", "../bank", "bank/x", "-x", "ü", "x" * 65, "a\n"])
def test_impossible_party_names_are_refused(folder: Path, party: str) -> None:
    with pytest.raises(InvalidParameter):
        issue(folder, party, HOSTS)


@pytest.mark.parametrize("host", ["", "bank.example:7400", "http://bank", "a b", "fe80::1%eth0", "ü.example", "a..b"])
def test_impossible_hosts_are_refused(folder: Path, host: str) -> None:
    with pytest.raises(InvalidParameter):
        issue(folder, "shop", [host])
    assert not (folder / "shop.key").exists()


def test_impossible_lives_are_refused(folder: Path, tmp_path: Path) -> None:
    for days in (0, -1, 36_501):
        with pytest.raises(InvalidParameter, match="days"):
            init_authority(tmp_path / "other", days=days)
    with pytest.raises(InvalidParameter, match="choose 3649 or fewer"):
        issue(folder, "shop", HOSTS, days=3651)
    with pytest.raises(InvalidParameter):
        init_authority(tmp_path / "other", "x" * 65)
    assert not (tmp_path / "other").exists()


def test_an_authority_that_cannot_issue_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableCertificate, match="certs init"):
        issue(tmp_path / "nowhere", "shop", HOSTS)
    init_authority(tmp_path / "old", days=1, now=datetime.now(UTC) - timedelta(days=2))
    with pytest.raises(CertificateExpired):
        issue(tmp_path / "old", "shop", HOSTS)
    init_authority(tmp_path / "other")
    (folder / "ca.key").write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    with pytest.raises(ForeignCertificate):
        issue(folder, "shop", HOSTS)
    (folder / "ca.key").write_bytes(b"no key")
    with pytest.raises(NotACertificate):
        issue(folder, "shop", HOSTS)
    (folder / "ca.key").chmod(0o640)
    with pytest.raises(ExposedKey):
        issue(folder, "shop", HOSTS)


# --- this party's own -------------------------------------------------------------------------------------


def test_an_identity_holds_what_tls_needs_and_does_not_show_its_key(folder: Path) -> None:
    found = identity(folder)
    assert found.party == "bank"
    assert found.certificate == (folder / "bank.crt").read_bytes()
    assert found.key == (folder / "bank.key").read_bytes()
    assert found.ca == (folder / "ca.crt").read_bytes()
    assert "PRIVATE" not in repr(found)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.party = "shop"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["bank.crt", "bank.key", "ca.crt"])
def test_files_that_are_missing_unreadable_or_something_else_are_refused(folder: Path, name: str) -> None:
    file = folder / name
    good = file.read_bytes()
    for content in (b"", b"hello", b"\xff" * 100, good[:60], good.replace(b"M", b"N", 5)):
        file.write_bytes(content)
        with pytest.raises(NotACertificate, match=name):
            identity(folder)
    file.write_bytes(b"x" * (1 << 20) + b"y")
    with pytest.raises(UnreadableCertificate, match="too large"):
        identity(folder)
    file.unlink()
    with pytest.raises(UnreadableCertificate, match=name):
        identity(folder)
    file.mkdir()
    with pytest.raises(UnreadableCertificate, match=name):
        identity(folder)


@pytest.mark.parametrize("exposed", [0o604, 0o640, 0o644, 0o601, 0o620, 0o777])
def test_a_key_that_others_may_read_is_refused(folder: Path, exposed: int) -> None:
    (folder / "bank.key").chmod(exposed)
    with pytest.raises(ExposedKey, match=f"{exposed:04o}"):
        identity(folder)
    for private in (0o600, 0o400):
        (folder / "bank.key").chmod(private)
        assert identity(folder).party == "bank"


def test_a_link_does_not_hide_an_exposed_key(folder: Path) -> None:
    (folder / "bank.key").rename(folder / "real.key")
    (folder / "real.key").chmod(0o644)
    (folder / "bank.key").symlink_to(folder / "real.key")
    with pytest.raises(ExposedKey):
        identity(folder)


def test_expired_and_future_certificates_are_refused(folder: Path) -> None:
    now = datetime.now(UTC)
    for party, moment in (("past", now - timedelta(days=11)), ("future", now + timedelta(days=2))):
        # The authority must have lived at that time, so it is asked as of then.
        made = folder.parent / party
        init_authority(made, now=now - timedelta(days=100))
        issue(made, party, HOSTS, days=10, now=moment)
        with pytest.raises(CertificateExpired, match=f"{party}.crt .*UTC"):
            identity(made, party)


def test_an_expired_authority_is_refused(tmp_path: Path) -> None:
    """Only somebody else's tool makes a certificate that outlives its authority."""
    past = datetime.now(UTC) - timedelta(days=20)
    init_authority(tmp_path, days=10, now=past)
    issue(tmp_path, "bank", HOSTS, days=5, now=past)
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    old = x509.load_pem_x509_certificate((tmp_path / "bank.crt").read_bytes())
    rewrite(tmp_path, old.not_valid_before_utc, authority.not_valid_after_utc + timedelta(days=100))
    with pytest.raises(CertificateExpired, match=r"ca\.crt"):
        identity(tmp_path)


def rewrite(
    folder: Path,
    start: datetime,
    end: datetime,
    keep: Callable[[x509.Extension[x509.ExtensionType]], bool] = bool,
    signer: str = "ca",
) -> None:
    """Issue bank's certificate again: with other dates, fewer extensions, or by somebody else."""
    old = x509.load_pem_x509_certificate((folder / "bank.crt").read_bytes())
    issuer = x509.load_pem_x509_certificate((folder / f"{signer}.crt").read_bytes())
    key = serialization.load_pem_private_key((folder / f"{signer}.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(issuer.subject, old.subject, old.public_key(), old.serial_number, start, end)
    for extension in filter(keep, old.extensions):
        builder = builder.add_extension(extension.value, extension.critical)
    (folder / "bank.crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def test_a_certificate_without_a_party_is_refused(folder: Path) -> None:
    now = datetime.now(UTC)
    named = x509.SubjectAlternativeName
    rewrite(folder, now, now + timedelta(days=1), lambda extension: not isinstance(extension.value, named))
    with pytest.raises(NotACertificate, match="names no party"):
        identity(folder)
    assert describe(folder / "bank.crt").party is None
    with pytest.raises(NotACertificate, match="names no party"):
        peer_identity((folder / "ca.crt").read_bytes())


def test_another_partys_key_is_refused(folder: Path) -> None:
    issue(folder, "shop", HOSTS)
    with pytest.raises(KeyMismatch):
        load_identity(folder / "bank.crt", folder / "shop.key", folder / "ca.crt")


def test_another_authoritys_certificate_is_refused(folder: Path, tmp_path: Path) -> None:
    """Also if the other authority has the same name."""
    init_authority(tmp_path / "other", "Town")
    other = tmp_path / "other" / "ca.crt"
    with pytest.raises(ForeignCertificate):
        load_identity(folder / "bank.crt", folder / "bank.key", other)
    both = tmp_path / "both.crt"
    both.write_bytes(other.read_bytes() + (folder / "ca.crt").read_bytes())
    assert load_identity(folder / "bank.crt", folder / "bank.key", both).party == "bank"


def test_a_party_is_no_authority(folder: Path) -> None:
    issue(folder, "shop", HOSTS)
    now = datetime.now(UTC)
    rewrite(folder, now - timedelta(days=1), now + timedelta(days=1), signer="shop")
    with pytest.raises(ForeignCertificate):
        load_identity(folder / "bank.crt", folder / "bank.key", folder / "shop.crt")


# --- peers ------------------------------------------------------------------------------------------------


def test_known_peers_pass_and_all_others_are_refused(folder: Path) -> None:
    peer = peer_identity((folder / "bank.crt").read_bytes())
    assert (peer.party, peer.not_after) == ("bank", describe(folder / "bank.crt").not_after)
    spelled = ":".join(peer.fingerprint[at : at + 2] for at in range(0, 64, 2)).upper()
    for known in ("any", peer.fingerprint, spelled):
        check_peer(peer, Policy(peers={"bank": ("00" * 32, known)}), frozenset())
    for peers in ({}, {"shop": ("any",)}, {"bank": ()}, {"bank": ("00" * 32,)}, {"shop": (peer.fingerprint,)}):
        with pytest.raises(UnknownPeer, match="bank"):
            check_peer(peer, Policy(peers=peers), frozenset())


def test_a_peer_expires_also_while_it_is_connected(folder: Path) -> None:
    peer = peer_identity((folder / "bank.crt").read_bytes())
    policy = Policy(peers={"bank": ("any",)})
    check_peer(peer, policy, frozenset(), peer.not_after)
    with pytest.raises(CertificateExpired):
        check_peer(peer, policy, frozenset(), peer.not_after + timedelta(seconds=1))


def test_revoked_peers_are_refused_and_the_next_certificate_is_not(folder: Path) -> None:
    policy = Policy(peers={"bank": ("any",), "shop": ("any",)})
    issue(folder, "shop", HOSTS)
    assert load_revoked(folder / "revoked.crl", folder / "ca.crt") == frozenset()
    first = peer_identity((folder / "bank.crt").read_bytes())
    assert [info.fingerprint for info in revoke(folder, "bank")] == [first.fingerprint]
    issue(folder, "bank", HOSTS, force=True)
    second = peer_identity((folder / "bank.crt").read_bytes())
    revoked = load_revoked(folder / "revoked.crl", folder / "ca.crt")
    with pytest.raises(CertificateRevoked, match="bank"):
        check_peer(first, policy, revoked)
    check_peer(second, policy, revoked)
    shop = peer_identity((folder / "shop.crt").read_bytes())
    revoke(folder, shop.fingerprint.upper())
    revoke(folder, shop.fingerprint)  # twice is once
    assert load_revoked(folder / "revoked.crl", folder / "ca.crt") == {first.serial, shop.serial}
    with pytest.raises(UnreadableCertificate, match="nobody"):
        revoke(folder, "nobody")


def test_a_revocation_list_counts_only_with_the_authoritys_signature(folder: Path, tmp_path: Path) -> None:
    init_authority(tmp_path / "other")
    with pytest.raises(ForeignCertificate):
        load_revoked(tmp_path / "other" / "revoked.crl", folder / "ca.crt")
    with pytest.raises(UnreadableCertificate):  # a list that is gone lets nobody in
        load_revoked(tmp_path / "gone.crl", folder / "ca.crt")
    (folder / "revoked.crl").write_bytes(b"nobody")
    with pytest.raises(NotACertificate):
        load_revoked(folder / "revoked.crl", folder / "ca.crt")
    with pytest.raises(NotACertificate):  # and is not begun anew by the next revocation
        revoke(folder, "bank")


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_for_a_certificate_give_a_coded_error(content: bytes, pem: bool) -> None:
    with pytest.raises(NotACertificate):
        peer_identity(b"-----BEGIN CERTIFICATE-----\n" + content if pem else content)


def test_damaged_files_give_coded_errors_only(folder: Path) -> None:
    """Every byte of what is between the dashes, changed one at a time."""
    for name, read in (
        ("bank.crt", lambda: (identity(folder), describe(folder / "bank.crt"))),
        ("bank.key", lambda: identity(folder)),
        ("ca.crt", lambda: identity(folder)),
        ("revoked.crl", lambda: load_revoked(folder / "revoked.crl", folder / "ca.crt")),
    ):
        file = folder / name
        good = file.read_text()
        head, *lines, foot = good.strip().splitlines()
        der, coded = base64.b64decode("".join(lines)), 0
        for at in range(len(der)):
            damaged = der[:at] + bytes([der[at] ^ 0x55]) + der[at + 1 :]
            file.write_text("\n".join((head, base64.b64encode(damaged).decode(), foot)))
            try:
                read()
            except VeilBoostError:
                coded += 1
        assert coded > len(der) / 2
        file.write_text(good)


# --- TLS takes them ---------------------------------------------------------------------------------------


def handshake(server: Identity, client: Identity, host: str, folder: Path) -> tuple[bytes, bytes]:
    """Mutual TLS through memory; returns what each side was shown of the other."""
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides: list[ssl.SSLObject] = []
    for who, purpose in ((server, ssl.PROTOCOL_TLS_SERVER), (client, ssl.PROTOCOL_TLS_CLIENT)):
        context = ssl.SSLContext(purpose)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=who.ca.decode())
        context.load_cert_chain(folder / f"{who.party}.crt", folder / f"{who.party}.key")
        is_server = who is server
        incoming, outgoing = (theirs, ours) if is_server else (ours, theirs)
        name = None if is_server else host
        sides.append(context.wrap_bio(incoming, outgoing, server_side=is_server, server_hostname=name))
    for _ in range(4):
        for side in reversed(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = [side.getpeercert(binary_form=True) for side in sides]
    assert shown[0] is not None
    assert shown[1] is not None
    return shown[0], shown[1]


@pytest.mark.parametrize("host", HOSTS)
def test_both_sides_of_mutual_tls_accept_the_certificates(folder: Path, host: str) -> None:
    issue(folder, "shop", ["shop.example"])
    to_server, to_client = handshake(identity(folder), identity(folder, "shop"), host, folder)
    assert peer_identity(to_server).party == "shop"
    assert peer_identity(to_client).party == "bank"


def test_tls_refuses_another_host(folder: Path) -> None:
    issue(folder, "shop", ["shop.example"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(identity(folder), identity(folder, "shop"), "shop.example", folder)
