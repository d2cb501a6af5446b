"""Read and verify certificates: this party's own, a peer's, and the list of revoked ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from veilboost.durable import read_small, replace_file
from veilboost.errors import (
    CertificateExpired,
    CertificateRevoked,
    ForeignCertificate,
    KeyMismatch,
    MalformedMessage,
    NotACertificate,
    UnknownPeer,
    UnsupportedCombination,
    WouldOverwrite,
    WrongPassphrase,
)
from veilboost.fields import FORMS
from veilboost.party.policy import Policy
from veilboost.types import PartyName

PARTY_URI = "veilboost:party:"
KEY_VARIABLE = "VEILBOOST_KEY_PASSPHRASE_FILE"
MOST_INTERMEDIATES = 4
Revoked: TypeAlias = frozenset[int]
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
# Exceptions of the library for invalid input.
_INVALID = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


def server_name(party: PartyName) -> str:
    """The TLS server name in a party's certificate, wherever the party runs."""
    return f"{party}.veilboost".lower()


@dataclass(frozen=True)
class Identity:
    """This party's verified identity, as needed for TLS."""

    party: PartyName
    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes
    fingerprint: str
    not_after: datetime  # the earliest end of the certificate and of its issuers

    @property
    def days_left(self) -> int:
        """The days until the certificate expires."""
        return (self.not_after - datetime.now(UTC)).days


@dataclass(frozen=True)
class PeerIdentity:
    """A peer's identity, from its certificate."""

    party: PartyName
    fingerprint: str
    not_after: datetime
    serial: int


@dataclass(frozen=True)
class CertificateInfo:
    """The content of a certificate. `party` is None for an authority's certificate."""

    subject: str
    party: PartyName | None
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    issuer: str
    serial: int


def describe(path: Path) -> CertificateInfo:
    """The content of the first certificate in a file. It may be expired, and nothing is verified."""
    certificate = parse_certificates(read_public(path), str(path))[0]
    try:
        names = _alternative_names(certificate)
        party = None if is_authority(certificate) else _party(names)
        every = names.get_values_for_type(x509.DNSName)
        return CertificateInfo(
            subject=_common_name(certificate.subject),
            party=party,
            hosts=(
                *(name for name in every if party is None or name != server_name(party)),
                *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
            ),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
            fingerprint=fingerprint_of(certificate),
            issuer=_common_name(certificate.issuer),
            serial=certificate.serial_number,
        )
    except _INVALID:
        raise NotACertificate(f"{path} contains an invalid certificate") from None


def load_identity(cert: Path, key: Path, ca: Path, passphrase_file: Path | None = None) -> Identity:
    """Read and verify this party's own certificate, key and authority. Every fault has its own coded error.

    `cert` may contain intermediate certificates after the party's own. In memory the key has no passphrase.
    """
    chain, authorities = read_public(cert), read_public(ca)
    certificate, *intermediates = parse_certificates(chain, str(cert))
    peer = _peer(certificate, str(cert))
    check_age(certificate, str(cert))
    secret = load_key(key, passphrase_file)
    try:
        fits = secret.public_key() == certificate.public_key()
    except _INVALID:
        fits = False
    if not fits:
        raise KeyMismatch(f"{key} does not belong to {cert}")
    path = issuers_of(certificate, intermediates, parse_certificates(authorities, str(ca)))
    if not path:
        raise ForeignCertificate(f"{cert} was not issued by the authority in {ca}")
    for issuer in path:
        check_age(issuer, str(ca if issuer is path[-1] else cert))
    ends = min(each.not_valid_after_utc for each in (certificate, *path))
    return Identity(peer.party, chain, pem_key(secret), authorities, peer.fingerprint, ends)


def load_key(file: Path, passphrase_file: Path | None = None) -> PrivateKeyTypes:
    """Read a private key. One with a passphrase needs the file with it, or the environment variable that names it."""
    content, passphrase = read_private(file), passphrase_of(file, passphrase_file)
    try:
        return serialization.load_pem_private_key(content, passphrase)
    except _INVALID:
        if passphrase is not None:
            raise WrongPassphrase(f"the passphrase does not fit {file}") from None
        raise NotACertificate(f"{file} contains no private key") from None


def passphrase_of(key: Path, passphrase_file: Path | None = None) -> bytes | None:
    """The passphrase of a key file, which must be private; None if it needs none."""
    if b"ENCRYPTED" not in read_private(key):
        return None
    named = passphrase_file or os.environ.get(KEY_VARIABLE)
    if not named:
        raise WrongPassphrase(f"{key} has a passphrase, and no file with it is named")
    return read_passphrase(Path(named))


def pem_key(key: PrivateKeyTypes, passphrase: bytes | None = None) -> bytes:
    """A private key as PEM, encrypted if there is a passphrase."""
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def read_passphrase(file: Path) -> bytes:
    """The passphrase in a private file: its content without the line end."""
    passphrase = read_private(file).rstrip(b"\r\n")
    if not 0 < len(passphrase) <= LONGEST_PASSPHRASE:
        raise WrongPassphrase(f"{file} contains no passphrase of 1 to {LONGEST_PASSPHRASE} bytes")
    return passphrase


def peer_identity(certificate: bytes) -> PeerIdentity:
    """The identity in this certificate (DER or PEM). TLS has verified its issuer; `check_peer` checks the rest."""
    what = "the peer's certificate"
    if b"-----BEGIN" in certificate:
        return _peer(parse_certificates(certificate, what)[0], what)
    try:
        parsed = x509.load_der_x509_certificate(certificate)
    except _INVALID:
        raise NotACertificate(f"{what} is not a certificate") from None
    return _peer(parsed, what)


def check_peer(
    peer: PeerIdentity, policy: Policy, revoked: Revoked, now: datetime | None = None, *, dialled: bool = False
) -> None:
    """Refuse a peer that may not connect; its certificate may have expired or been revoked since it was admitted.

    `dialled`: the owner named it in a job or under [peers]. Then the policy need not name it, but its pins apply.
    """
    if (now or datetime.now(UTC)) > peer.not_after:
        raise CertificateExpired(
            f"the certificate of {peer.party} was valid until {peer.not_after:%Y-%m-%d %H:%M} UTC", public=True
        )
    if peer.serial in revoked:
        raise CertificateRevoked(f"the certificate {peer.fingerprint[:16]}... of {peer.party} is revoked", public=True)
    named = peer.party in policy.peers
    if (named or not dialled) and not policy.admits(peer.party, peer.fingerprint):
        raise UnknownPeer(f"the policy does not name {peer.party} with certificate {peer.fingerprint}", public=True)


# --- signatures by the key of a certificate --------------------------------------------------------------


_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


def sign(identity: Identity, purpose: str, content: bytes) -> str:
    """Sign `content` as this party, for all who trust the same authority. A signature is valid for one purpose."""
    own, *intermediates = parse_certificates(identity.certificate, "the own certificate")
    key, signed = serialization.load_pem_private_key(identity.key, password=None), _signed_bytes(own, purpose, content)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        signature = key.sign(signed)
    elif isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(signed, _PSS, hashes.SHA256())
    else:
        raise UnsupportedCombination("the key of the certificate cannot sign", "use an EC, Ed25519 or RSA key")
    chain = b"".join(each.public_bytes(Encoding.PEM) for each in (own, *intermediates)).decode()
    return json.dumps({"certificate": chain, "signature": signature.hex()})


def check_signed(
    evidence: str, party: PartyName, purpose: str, content: bytes, ca: bytes, when: datetime | None = None
) -> PeerIdentity:
    """Verify that `party` signed, with a certificate of the authority that is valid now, or was valid at `when`.

    `check_peer` checks the rest.

    Raises
    ------
    ForeignCertificate, CertificateExpired, NotACertificate
        The certificate is not valid.
    MalformedMessage
        The certificate, the signer or the signed content is not the expected one.
    """
    try:
        values = json.loads(evidence)
        pem, signature = str(values["certificate"]).encode(), bytes.fromhex(values["signature"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MalformedMessage(f"{party} sent no readable signature") from error
    what = f"the certificate of {party}"
    certificate, *intermediates = parse_certificates(pem, what)
    path = issuers_of(certificate, intermediates, parse_certificates(ca, "the authority's certificate"))
    if not path:
        raise ForeignCertificate(f"{what} was not issued by the authority")
    for each in (certificate, *path):
        check_age(each, what, when)
    peer = _peer(certificate, what)
    if peer.party != party or not _verified(certificate, signature, _signed_bytes(certificate, purpose, content)):
        raise MalformedMessage(
            f"a statement attributed to {party} was not signed by {party}",
            "stop: someone may intercept the connection, or the driver of the job may have exchanged keys",
        )
    return peer


def _signed_bytes(certificate: x509.Certificate, purpose: str, content: bytes) -> bytes:
    """The bytes to sign. A purpose has no zero byte and a fingerprint has 32 bytes, so the encoding is unique."""
    return f"veilboost {purpose}\0".encode() + certificate.fingerprint(hashes.SHA256()) + content


def _verified(certificate: x509.Certificate, signature: bytes, signed: bytes) -> bool:
    key = certificate.public_key()
    try:
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, signed, _PSS, hashes.SHA256())
        else:
            return False
    except InvalidSignature:
        return False
    return True


def load_revoked(path: Path, ca: Path) -> Revoked:
    """The serial numbers on the authority's list. Refuses a list without the authority's signature."""
    content = read_public(path)
    issuers = parse_certificates(read_public(ca), str(ca))
    try:
        listed = x509.load_pem_x509_crl(content)
        signed = any(listed.is_signature_valid(issuer.public_key()) for issuer in issuers)  # pyright: ignore[reportArgumentType]
        serials = frozenset(entry.serial_number for entry in listed)
    except _INVALID:
        raise NotACertificate(f"{path} is not a list of revoked certificates") from None
    if not signed:
        raise ForeignCertificate(f"{path} was not signed by the authority in {ca}")
    return serials


# --- also used by the authority ---------------------------------------------------------------------------


def parse_certificates(content: bytes, what: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except _INVALID:
        raise NotACertificate(f"{what} contains no certificate in PEM format") from None


def check_age(certificate: x509.Certificate, what: str, now: datetime | None = None) -> None:
    state = age(certificate.not_valid_before_utc, certificate.not_valid_after_utc, now)
    if state == "expired":
        raise CertificateExpired(f"{what} was valid until {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")
    if state != "valid":
        raise CertificateExpired(f"{what} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC")


def age(not_before: datetime, not_after: datetime, now: datetime | None = None) -> str:
    """`valid`, `expired` or `not yet valid`."""
    now = now or datetime.now(UTC)
    if now > not_after:
        return "expired"
    return "valid" if now >= not_before else "not yet valid"


def fingerprint_of(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex()


def is_authority(certificate: x509.Certificate) -> bool:
    return _may_issue(certificate, 0)


def issuers_of(
    certificate: x509.Certificate, intermediates: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """The issuers of a certificate, up to the first of the trusted authorities; empty if there is no such path.

    Their ages are not checked. An intermediate with name constraints is not accepted: only TLS enforces them.
    """
    path: list[x509.Certificate] = []
    for below in range(MOST_INTERMEDIATES + 1):
        last = path[-1] if path else certificate
        for issuer in (*authorities, *intermediates[:MOST_INTERMEDIATES]):
            if issuer not in path and _may_issue(issuer, below) and _is_issued_by(last, issuer):
                break
        else:
            return []
        path.append(issuer)
        if issuer in authorities:
            return path
        if _extension(issuer, x509.NameConstraints) is not None:
            return []
    return []


def _is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, *_INVALID):
        return False
    return True


def _may_issue(issuer: x509.Certificate, below: int) -> bool:
    """Whether this is an authority that may have so many intermediates below it."""
    try:
        constraints, usage = _extension(issuer, x509.BasicConstraints), _extension(issuer, x509.KeyUsage)
    except _INVALID:
        return False
    longest = None if constraints is None else constraints.path_length
    return (
        constraints is not None
        and constraints.ca
        and (longest is None or below <= longest)
        and (usage is None or usage.key_cert_sign)
    )


def _extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _peer(certificate: x509.Certificate, what: str) -> PeerIdentity:
    try:
        party = _party(_alternative_names(certificate))
        fingerprint, serial = fingerprint_of(certificate), certificate.serial_number
        not_after = certificate.not_valid_after_utc
    except _INVALID:
        raise NotACertificate(f"{what} is invalid") from None
    if party is None:
        raise NotACertificate(f"{what} names no party", "issue one with `veilboost certs issue`")
    return PeerIdentity(party, fingerprint, not_after, serial)


def _party(names: x509.SubjectAlternativeName) -> PartyName | None:
    """The one party that a certificate names. With two names, the identity would be ambiguous."""
    uris = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith(PARTY_URI)]
    party = uris[0].removeprefix(PARTY_URI) if len(uris) == 1 else ""
    return party if FORMS["party"].fits(party) else None


def _alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return _extension(certificate, x509.SubjectAlternativeName) or x509.SubjectAlternativeName([])


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


# --- private files: written atomically, and never over an existing file by accident ---------------------------------


LONGEST_PASSPHRASE = 1023  # OpenSSL reads no longer one


def refuse_to_overwrite(files: Iterable[Path], force: bool) -> None:
    """Refuse if any of several files exists, before the first is written."""
    for file in files:
        if not force and os.path.lexists(file):
            raise WouldOverwrite(f"{file} already exists")


def write_private(file: Path, content: bytes, *, force: bool = False) -> None:
    """Write a file of mode 0600 atomically: a reader sees the old content or the new.

    Raises `WouldOverwrite` if the file exists and `force` is not set, and `OSError` if the system refuses.
    """
    try:
        replace_file(file, content, overwrite=force)
    except FileExistsError:
        raise WouldOverwrite(f"{file} already exists") from None


def read_public(file: Path) -> bytes:
    """The content of a certificate file. Raises a coded error if it cannot be read."""
    return read_small(file, private=False)


def read_private(file: Path) -> bytes:
    """The content of a private key file. Refused if users other than its owner could have read it."""
    return read_small(file, private=True)
