"""Certificates: a private authority, a certificate for each party, and the checks at the door.

An authority is a folder: `ca.crt`, `ca.key`, a certificate and a key for each party, a copy of every
certificate ever issued, and `revoked.crl`, the signed list of those that no longer count. ECDSA on P-256
throughout, which every TLS library accepts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilboost.errors import (
    CertificateExpired,
    CertificateRevoked,
    ForeignCertificate,
    ImpossibleParameter,
    KeyMismatch,
    NotACertificate,
    UnknownPeer,
)
from veilboost.party.declared import FORMS
from veilboost.party.keyfiles import (
    make_private_folder,
    read_private,
    read_public,
    refuse_to_overwrite,
    write_private,
)
from veilboost.party.policy import Policy
from veilboost.types import PartyName

CA_CERTIFICATE, CA_KEY, REVOKED, ISSUED = "ca.crt", "ca.key", "revoked.crl", "issued"
CA_DAYS, PARTY_DAYS, MOST_DAYS = 3650, 365, 36_500
PARTY_URI = "veilboost:party:"
SKEW = timedelta(minutes=5)  # another machine's clock may be behind ours
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*")
_ODD = (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound, x509.DuplicateExtension)


@dataclass(frozen=True)
class Identity:
    """Who this party is: what TLS needs, checked."""

    party: PartyName
    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes
    fingerprint: str
    not_after: datetime


@dataclass(frozen=True)
class PeerIdentity:
    """Who a peer is by the certificate that it showed."""

    party: PartyName
    fingerprint: str
    not_before: datetime
    not_after: datetime
    serial: int


@dataclass(frozen=True)
class CertificateInfo:
    """What a certificate says. `party` is None for an authority's."""

    subject: str
    party: PartyName | None
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    fingerprint: str
    issuer: str
    serial: int

    def state(self, now: datetime | None = None) -> str:
        return _age(self, now) or "valid"


# --- the authority ----------------------------------------------------------------------------------------


def init_authority(
    folder: Path, name: str = "veilboost", days: int = CA_DAYS, *, force: bool = False, now: datetime | None = None
) -> Path:
    """Make an authority in a folder; returns the path of its certificate, which all parties need."""
    start, end = _validity(days, now)
    if not re.fullmatch(r"[^\0-\x1f\x7f]{1,64}", name):
        raise ImpossibleParameter("an authority's name is 1 to 64 characters long")
    files = (folder / CA_KEY, folder / CA_CERTIFICATE, folder / REVOKED)
    refuse_to_overwrite(files, force)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    contents = _pem_key(key), _pem(certificate), _revocations(certificate, key, {}, start)
    make_private_folder(folder)
    for file, content in zip(files, contents, strict=True):
        write_private(file, content, force=force)
    return folder / CA_CERTIFICATE


def issue(
    folder: Path,
    party: PartyName,
    hosts: Sequence[str],
    days: int = PARTY_DAYS,
    *,
    force: bool = False,
    now: datetime | None = None,
) -> Path:
    """Issue a certificate and key for a party, as server and as client; returns the certificate's path.

    `hosts` are the names and addresses under which others reach the party.
    """
    check_party_name(party)
    start, end = _validity(days, now)
    names = [_general_name(host) for host in dict.fromkeys(hosts)]
    files = (folder / f"{party}.key", folder / f"{party}.crt")
    refuse_to_overwrite(files, force)
    authority, authority_key = _load_authority(folder)
    if end > authority.not_valid_after_utc:
        left = (authority.not_valid_after_utc - start).days
        raise ImpossibleParameter(f"{days} days are more than the authority lives", f"choose {left} or fewer")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        _builder(subject, authority.subject, key.public_key(), authority_key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(uses, critical=False)
        .add_extension(
            x509.SubjectAlternativeName([*names, x509.UniformResourceIdentifier(PARTY_URI + party)]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    make_private_folder(folder / ISSUED)
    # The copy first: what was issued can be revoked, whatever happens to the files in use.
    write_private(folder / ISSUED / f"{_fingerprint(certificate)}.crt", _pem(certificate), force=True)
    write_private(files[0], _pem_key(key), force=force)
    write_private(files[1], _pem(certificate), force=force)
    return files[1]
