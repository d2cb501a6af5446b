"""Ways to peers: dialled by us, or opened by peers that sit behind a firewall and dial us."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from veilboost.crypto.csprng import Csprng
from veilboost.errors import ImpossibleSetting, PeerUnreachable
from veilboost.party.identity import (
    Identity,
    PeerIdentity,
    Revoked,
    check_peer,
    check_signed,
    load_identity,
    load_revoked,
    peer_identity,
    server_name,
    sign,
)
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName
from veilboost.wire.grpc import HELLO_BYTES, Greeting, LinkServer, TlsFiles, Welcome, dial
from veilboost.wire.message import Catalogue
from veilboost.wire.rpc import Caller, Link, Waiting
from veilboost.wire.transcript import Transcript

Reach = Callable[[PartyName, float], Link]  # a way to another party, within so many seconds


def own_identity(settings: PartySettings) -> Identity:
    """This party's certificate and key, which must be those of the party that the settings name."""
    files = settings.certificates
    identity = load_identity(files.cert, files.key, files.ca)
    if identity.party != settings.name:
        raise ImpossibleSetting(
            f"the name is {settings.name}, the certificate is of {identity.party}",
            "give each party its own certificate",
        )
    return identity


def revoked_at(settings: PartySettings) -> Revoked:
    """The list of revoked certificates, read anew: a party need not be started again for it."""
    files = settings.certificates
    return load_revoked(files.revoked, files.ca) if files.revoked is not None else frozenset[int]()


def admit_peer(settings: PartySettings, certificate: bytes) -> PeerIdentity:
    """Who a peer is, by the certificate that TLS has checked; a coded error if it may not speak to us."""
    peer = peer_identity(certificate)
    check_peer(peer, settings.policy, revoked_at(settings))
    return peer


LINK = "link"  # what a proof is signed for


def link_content(hello: bytes, fingerprint: str, dialling: PartyName, listening: PartyName) -> bytes:
    """What the listening side signs: the hello, the certificate that it sees at the other end, and both names."""
    names = (name.encode() for name in (dialling, listening))
    return b"".join((hello, bytes.fromhex(fingerprint), *(len(name).to_bytes(2, "big") + name for name in names)))


def tls_files(identity: Identity) -> TlsFiles:
    return TlsFiles(identity.certificate, identity.key, identity.ca)


def caller_to(
    party: PartyName,
    settings: PartySettings,
    reach: Reach,
    catalogue: Catalogue,
    *,
    session: bytes | None = None,
    transcript: Transcript | None = None,
    seconds: float | None = None,
    idle_timeout: float | None = None,
    waiting: Waiting | None = None,
    first_number: int = 1,
) -> Caller:
    """A channel to one party: a new session, not recorded, as patient as the settings say, unless told otherwise."""
    return Caller(
        party,
        lambda left: reach(party, left),
        session or Csprng().bytes(16),
        catalogue,
        transcript or Transcript(settings.name),
        settings.limits.wait_seconds if seconds is None else seconds,
        waiting=waiting,
        first_number=first_number,
        idle_timeout=settings.limits.request_seconds if idle_timeout is None else idle_timeout,
    )


class LinkHub:
    """Gives a link to a peer: the newest that the peer opened, or one that we dial."""

    def __init__(self, settings: PartySettings) -> None:
        self.identity = own_identity(settings)
        self._settings, self._limits = settings, settings.limits
        self._waiting: dict[PartyName, Link] = {}
        self._arrived = threading.Condition()

    def serve(self, welcome: Welcome) -> LinkServer:
        """Listen, and hand the links of peers that our policy admits to `welcome`."""
        return LinkServer(
            self._settings.listen,
            tls_files(self.identity),
            lambda certificate: admit_peer(self._settings, certificate),
            self._proof,
            welcome,
            self._limits.max_message_mb << 20,
            self._limits.keepalive_seconds,
        )

    def offer(self, party: PartyName, link: Link) -> None:
        """A peer has opened a link to us."""
        with self._arrived:
            if party in self._waiting:
                self._waiting[party].close()
            self._waiting[party] = link
            self._arrived.notify_all()

    def open(self, party: PartyName, address: str | None, seconds: float) -> Link:
        """A link to this party: dialled at its address, or without one, the next that it opens."""
        if address is not None:
            return self.dial(party, address, seconds)[0]
        until = time.monotonic() + seconds
        with self._arrived:
            while party not in self._waiting:
                left = until - time.monotonic()
                if left <= 0 or not self._arrived.wait(min(left, 1.0)):
                    raise PeerUnreachable(f"{party} has not dialled us yet")
            return self._waiting.pop(party)

    def dial(
        self, party: PartyName, address: str, seconds: float, *, answers: bool = False
    ) -> tuple[Link, PeerIdentity]:
        """A link to this party, and who answered: checked as whoever dials us is (ADR 0032).

        `answers`: this side will answer requests over it, so the policy must name the party.
        """
        own, found = self.identity, list[PeerIdentity]()
        hello = Csprng().bytes(HELLO_BYTES)

        def verify(proof: bytes) -> None:
            content = link_content(hello, own.fingerprint, own.party, party)
            peer = check_signed(proof.decode(errors="replace"), party, LINK, content, own.ca)
            check_peer(peer, self._settings.policy, revoked_at(self._settings), dialled=not answers)
            found.append(peer)

        link = dial(
            address,
            tls_files(own),
            server_name(party),
            self._limits.max_message_mb << 20,
            Greeting(party, hello, verify, max(seconds, 1.0)),
            self._limits.keepalive_seconds,
        )
        return link, found[0]

    def _proof(self, hello: bytes, peer: PeerIdentity) -> bytes:
        content = link_content(hello, peer.fingerprint, peer.party, self.identity.party)
        return sign(self.identity, LINK, content).encode()

    def close(self) -> None:
        with self._arrived:
            for link in self._waiting.values():
                link.close()
            self._waiting.clear()
