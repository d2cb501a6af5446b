"""A private certificate authority: its key, a certificate for each party, and the list of revoked certificates.

An authority is a folder: `ca.crt` and `ca.key`, a certificate and a key for each party, a copy of every certificate
ever issued, and `revoked.crl`, a signed list in the standard format. All keys are ECDSA on P-256, which every TLS
library accepts. `identity` reads and checks certificates.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from veilboost.durable import make_folder
from veilboost.errors import (
    CertificateRevoked,
    ForeignCertificate,
    InvalidParameter,
    NotACertificate,
    UnreadableCertificate,
)
from veilboost.fields import FORMS
from veilboost.party.identity import (
    PARTY_URI,
    CertificateInfo,
    check_age,
    describe,
    fingerprint_of,
    load_key,
    load_revoked,
    parse_certificates,
    pem_key,
    read_public,
    refuse_to_overwrite,
    server_name,
    write_private,
)
from veilboost.party.policy import plain_fingerprint
from veilboost.types import PartyName

CA_CERTIFICATE, CA_KEY, REVOKED, ISSUED = "ca.crt", "ca.key", "revoked.crl", "issued"
CA_DAYS, PARTY_DAYS, MOST_DAYS = 3650, 365, 36_500
SKEW = timedelta(minutes=5)  # another machine's clock may be slow
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


def init_authority(
    folder: Path,
    name: str = "veilboost",
    days: int = CA_DAYS,
    *,
    passphrase: bytes | None = None,
    force: bool = False,
    now: datetime | None = None,
) -> Path:
    """Create an authority in a folder. Returns the path of its certificate, which all parties need."""
    start, end = _validity(days, now)
    if not (name.isprintable() and 1 <= len(name) <= 64):
        raise InvalidParameter("an authority's name is 1 to 64 printable characters", "choose another name")
    files = (folder / CA_KEY, folder / CA_CERTIFICATE, folder / REVOKED)
    refuse_to_overwrite(files, force)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(name, _name(name), key.public_key(), key, start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    make_folder(folder)
    contents = (
        pem_key(key, passphrase),
        certificate.public_bytes(Encoding.PEM),
        _signed_list(certificate, key, {}, start),
    )
    for file, content in zip(files, contents, strict=True):
        write_private(file, content, force=force)
    return folder / CA_CERTIFICATE


def issue(
    folder: Path,
    party: PartyName,
    hosts: Sequence[str],
    days: int = PARTY_DAYS,
    *,
    passphrase: bytes | None = None,
    force: bool = False,
    now: datetime | None = None,
) -> Path:
    """Issue a certificate and a key to a party, as server and as client; returns the certificate's path.

    `hosts` are the host names and addresses of the party. The key is next to the certificate: `NAME.crt` and
    `NAME.key`. With a passphrase it is encrypted.
    """
    if not FORMS["party"].fits(party):
        raise InvalidParameter(f"{party!r} is not {FORMS['party'].text}", "choose another name")
    if f"{party}.crt".casefold() == CA_CERTIFICATE:
        raise InvalidParameter("a party cannot be named like the authority's own file", "choose another name")
    key_file, file = folder / f"{party}.key", folder / f"{party}.crt"
    names = [_general_name(host) for host in dict.fromkeys(hosts)]
    refuse_to_overwrite((key_file, file), force)
    key = ec.generate_private_key(ec.SECP256R1())
    content = _signed_certificate(folder, party, names, key.public_key(), days, now)
    write_private(key_file, pem_key(key, passphrase), force=force)
    write_private(file, content, force=force)
    return file


def renew(
    folder: Path,
    party: PartyName,
    days: int = PARTY_DAYS,
    *,
    new_key: bool = False,
    passphrase: bytes | None = None,
    now: datetime | None = None,
) -> Path:
    """Issue the next certificate of a party, with the same hosts; returns its path. The current one stays valid.

    The party keeps its key, unless `new_key`: then `NAME.key` is replaced. With a passphrase the new key is encrypted.
    """
    file = folder / f"{party}.crt"
    info, current = describe(file), parse_certificates(read_public(file), str(file))[0]
    public = current.public_key()
    if info.party != party:
        raise NotACertificate(f"{file} does not belong to {party}")
    if new_key:
        key = ec.generate_private_key(ec.SECP256R1())
        content = _signed_certificate(folder, party, _names(info), key.public_key(), days, now)
        write_private(folder / f"{party}.key", pem_key(key, passphrase), force=True)
    elif passphrase is not None:
        raise InvalidParameter("a passphrase is for a new key, and the key stays", "add --new-key")
    elif info.serial in load_revoked(folder / REVOKED, folder / CA_CERTIFICATE):
        raise CertificateRevoked(f"{file} is revoked, so its key must not be used again", "add --new-key")
    elif not isinstance(public, ec.EllipticCurvePublicKey):
        raise NotACertificate(f"{file} was not issued by `veilboost certs`", "renew it where it was issued")
    else:
        content = _signed_certificate(folder, party, _names(info), public, days, now)
    write_private(file, content, force=True)
    return file


def _names(info: CertificateInfo) -> list[x509.GeneralName]:
    return [_general_name(host) for host in info.hosts]


def _signed_certificate(
    folder: Path,
    party: PartyName,
    names: Sequence[x509.GeneralName],
    key: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime | None,
) -> bytes:
    """A new certificate. The authority keeps a copy."""
    start, end = _validity(days, now)
    authority, authority_key = _load_authority(folder, now)
    if end > authority.not_valid_after_utc:
        left = (authority.not_valid_after_utc - start - SKEW).days
        raise InvalidParameter(f"{days} days are more than the authority has left", f"choose {left} or fewer")
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = (
        _builder(party, authority.subject, key, authority_key, start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(uses, critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [*names, x509.DNSName(server_name(party)), x509.UniformResourceIdentifier(PARTY_URI + party)]
            ),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    content = certificate.public_bytes(Encoding.PEM)
    make_folder(folder / ISSUED)
    # The copy first: even if writing the other files fails, the certificate can be revoked.
    write_private(folder / ISSUED / f"{fingerprint_of(certificate)}.crt", content, force=True)
    return content


def revoke(folder: Path, which: str, *, now: datetime | None = None) -> tuple[CertificateInfo, ...]:
    """Revoke every certificate issued so far to a party, or the one with this fingerprint.

    Daemons read the list `revoked.crl`, so every party needs the new one. Returns the revoked certificates.
    """
    authority, key = _load_authority(folder, now)
    issued = [describe(file) for file in sorted((folder / ISSUED).glob("*.crt"))]
    chosen = tuple(info for info in issued if which == info.party or plain_fingerprint(which) == info.fingerprint)
    if not chosen:
        raise UnreadableCertificate(
            f"the authority in {folder} has issued no certificate to {which}",
            "name a party, or the fingerprint of a certificate that it has issued",
        )
    revoked_file = folder / REVOKED
    load_revoked(revoked_file, folder / CA_CERTIFICATE)
    moment = now or datetime.now(UTC)
    before = {
        entry.serial_number: entry.revocation_date_utc for entry in x509.load_pem_x509_crl(read_public(revoked_file))
    }
    entries = {info.serial: moment for info in chosen} | before
    write_private(revoked_file, _signed_list(authority, key, entries, moment), force=True)
    return chosen


def _load_authority(folder: Path, now: datetime | None) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    file, key_file = folder / CA_CERTIFICATE, folder / CA_KEY
    if not file.exists():
        raise UnreadableCertificate(f"there is no authority in {folder}", "create one with `veilboost certs init`")
    certificate = parse_certificates(read_public(file), str(file))[0]
    check_age(certificate, str(file), now)
    key = load_key(key_file)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ForeignCertificate(f"{key_file} does not belong to {file}", "restore the folder from a copy")
    return certificate, key


def _validity(days: int, now: datetime | None) -> tuple[datetime, datetime]:
    if not 1 <= days <= MOST_DAYS:
        raise InvalidParameter(f"days={days} is outside [1, {MOST_DAYS}]", f"set --days to 1..{MOST_DAYS}")
    moment = now or datetime.now(UTC)
    return moment - SKEW, moment + timedelta(days=days)


def _general_name(host: str) -> x509.GeneralName:
    try:
        if "%" not in host:  # a zone is only valid on one machine
            return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if _HOST.fullmatch(host):
            return x509.DNSName(host)
    raise InvalidParameter(
        f"{host!r} is neither a host name nor an IP address", "give it without port, as in bank.example or 10.0.0.7"
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: str,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_issuer_key(issuer_key), critical=False)
    )


def _issuer_key(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _usage(*, authority: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **unused)


def _signed_list(
    authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, entries: Mapping[int, datetime], moment: datetime
) -> bytes:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(moment)
        .next_update(authority.not_valid_after_utc)  # a list is valid until there is a newer one
        .add_extension(_issuer_key(key), critical=False)
        .add_extension(x509.CRLNumber(int(moment.timestamp())), critical=False)
    )
    for serial, since in entries.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
