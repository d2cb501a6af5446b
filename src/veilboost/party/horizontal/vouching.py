"""What a party says, signed by the key of its certificate, so that another one believes it from a third one's mouth."""

from __future__ import annotations

import json

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509 import Certificate

from veilboost.errors import ForeignCertificate, MalformedMessage, UnsupportedCombination
from veilboost.party.identity import (
    Identity,
    Revoked,
    check_age,
    check_peer,
    is_issued_by,
    parse_certificates,
    peer_identity,
)
from veilboost.party.policy import Policy
from veilboost.types import PartyName

_PSS = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.MAX_LENGTH)


class CertificateVoucher:
    """Signs for one party within one session, and checks what others signed within it.

    A certificate counts as it does at the door: issued by the authority, of the party that is named, not expired, not
    revoked, and admitted by the owner's policy, with its fingerprint where that is pinned.
    """

    def __init__(self, identity: Identity, policy: Policy, revoked: Revoked, session: bytes) -> None:
        self._identity, self._policy, self._revoked, self._session = identity, policy, revoked, session

    def vouch(self, content: bytes) -> str:
        key, signed = serialization.load_pem_private_key(self._identity.key, password=None), self._spelled(content)
        if isinstance(key, ec.EllipticCurvePrivateKey):
            signature = key.sign(signed, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, ed25519.Ed25519PrivateKey):
            signature = key.sign(signed)
        elif isinstance(key, rsa.RSAPrivateKey):
            signature = key.sign(signed, _PSS, hashes.SHA256())
        else:
            raise UnsupportedCombination("the key of the certificate cannot sign", "use an EC, Ed25519 or RSA key")
        own = parse_certificates(self._identity.certificate, "the own certificate")[0]
        return json.dumps({"certificate": _pem(own), "signature": signature.hex()})

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        try:
            values = json.loads(evidence)
            pem, signature = str(values["certificate"]).encode(), bytes.fromhex(values["signature"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MalformedMessage(f"{party} brings no signature that can be read") from error
        what = f"the certificate of {party}"
        certificate = parse_certificates(pem, what)[0]
        issuers = parse_certificates(self._identity.ca, "the authority's certificate")
        if not any(is_issued_by(certificate, issuer) for issuer in issuers):
            raise ForeignCertificate(f"{what} was not issued by the authority")
        check_age(certificate, what)
        peer = peer_identity(pem)
        check_peer(peer, self._policy, self._revoked)
        if peer.party != party or not _verified(certificate, signature, self._spelled(content)):
            raise MalformedMessage(
                f"what is said to come from {party} was not signed by {party}",
                "do not train on this: whoever drives the job may have exchanged keys",
            )

    def _spelled(self, content: bytes) -> bytes:
        return b"veilboost vouches " + self._session + content


def _pem(certificate: Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _verified(certificate: Certificate, signature: bytes, signed: bytes) -> bool:
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
