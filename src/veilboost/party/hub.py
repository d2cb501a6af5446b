"""Connections to peers: dialled by this party, or opened by peers behind a firewall that dial this party."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from veilboost import __version__, logs
from veilboost.crypto.csprng import Csprng
from veilboost.errors import ImpossibleSetting, MalformedMessage, PeerUnreachable, VeilBoostError, WireVersion
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
from veilboost.wire.grpc import HELLO_BYTES, Greeting, LinkLimits, LinkServer, TlsFiles, Welcome, dial
from veilboost.wire.message import Catalogue
from veilboost.wire.rpc import UNOBSERVED, Caller, Link, Observer, Waiting
from veilboost.wire.transcript import Transcript

_LOG = logs.EventLogger(__name__)
Reach = Callable[[PartyName, float], Link]  # opens a link to another party within some seconds


def own_identity(settings: PartySettings) -> Identity:
    """This party's certificate and key. Raises unless the certificate has the party name of the settings."""
    files = settings.certificates
    identity = load_identity(files.cert, files.key, files.ca, files.passphrase_file)
    if identity.party != settings.name:
        raise ImpossibleSetting(
            f"the party is named {settings.name}, but the certificate belongs to {identity.party}",
            "give each party its own certificate",
        )
    return identity


def revoked_at(settings: PartySettings) -> Revoked:
    """The list of revoked certificates, read on every call: changes need no restart."""
    files = settings.certificates
    return load_revoked(files.revoked, files.ca) if files.revoked is not None else frozenset[int]()


def admit_peer(settings: PartySettings, certificate: bytes) -> PeerIdentity:
    """The identity of a peer, from the certificate that TLS verified. Raises a coded error if it is not admitted."""
    peer = peer_identity(certificate)
    check_peer(peer, settings.policy, revoked_at(settings))
    return peer


LINK = "link"  # the purpose of a proof's signature
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})[0-9A-Za-z.+-]{0,40}")


def link_content(hello: bytes, fingerprint: str, dialling: PartyName, listening: PartyName, release: str) -> bytes:
    """What the listening party signs: the hello, the certificate at the other end, both names, and its own release."""
    parts = dialling.encode(), listening.encode(), release.encode(), hello[HELLO_BYTES:]
    fixed = hello[:HELLO_BYTES], bytes.fromhex(fingerprint)
    return b"".join((*fixed, *(len(part).to_bytes(2, "big") + part for part in parts)))


def prove_link(own: Identity, hello: bytes, dialling: PartyName, fingerprint: str) -> bytes:
    """The proof of a listening party: its release and its signature, for a peer with this certificate."""
    content = link_content(hello, fingerprint, dialling, own.party, __version__)
    return f"{__version__}\n{sign(own, LINK, content)}".encode()


def check_release(own: PartyName, peer: PartyName, release: str) -> None:
    """Refuse a peer of another minor release: their messages and computations may differ."""
    theirs, ours = _RELEASE.fullmatch(release), _RELEASE.match(__version__)
    if theirs is None or ours is None:
        raise MalformedMessage(f"{peer} does not say which release it runs", public=True)
    numbers = {peer: tuple(map(int, theirs.groups())), own: tuple(map(int, ours.groups()))}
    if numbers[peer] != numbers[own]:
        older, newer = sorted(numbers, key=lambda party: numbers[party])
        major, minor = numbers[newer]
        raise WireVersion(
            f"{peer} runs VeilBoost {release}, and {own} runs {__version__}",
            f"install VeilBoost {major}.{minor} at {older}: all parties need the same minor release",
            public=True,
        )


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
    """A channel to one party. By default: a new session, no transcript file, and the timeouts of the settings."""
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


class CurrentIdentity:
    """This party's identity, read again when one of its files has changed. Links that are open keep the old one."""

    def __init__(self, settings: PartySettings) -> None:
        self._settings, self._lock = settings, threading.Lock()
        self._seen, self._identity = self._stamp(), own_identity(settings)

    def get(self) -> Identity:
        """The identity for a new link. While the new files cannot be used, it is the old one."""
        with self._lock:
            if (stamp := self._stamp()) != self._seen:
                self._seen = stamp
                try:
                    self._identity = own_identity(self._settings)
                except VeilBoostError as error:
                    _LOG.warning("certificate_unusable", logs.reason(error), error)
                else:
                    fingerprint = self._identity.fingerprint[:16]
                    _LOG.info("certificate_changed", "new links use the new files", certificate=fingerprint)
            return self._identity

    def _stamp(self) -> list[tuple[int, int, int] | None]:
        files = self._settings.certificates
        found: list[tuple[int, int, int] | None] = []
        for file in (files.cert, files.key, files.ca, files.passphrase_file):
            try:
                about = file.stat() if file is not None else None
            except OSError:
                about = None
            found.append(about and (about.st_ino, about.st_mtime_ns, about.st_size))
        return found


class LinkHub:
    """Provides links to peers: the newest that the peer opened, or a dialled one."""

    def __init__(self, settings: PartySettings, observer: Observer = UNOBSERVED) -> None:
        self._identity = CurrentIdentity(settings)
        self._settings, self._observer = settings, observer
        self._limits = LinkLimits(
            message_bytes=settings.limits.max_message_mb << 20,
            hello_seconds=settings.limits.connect_seconds,
            packet_seconds=settings.limits.request_seconds,
            keepalive_seconds=settings.limits.keepalive_seconds,
            links=settings.limits.max_links,
            peers=max(1, len(settings.policy.peers)),
        )
        self._waiting: dict[PartyName, Link] = {}
        self._arrived = threading.Condition()

    @property
    def identity(self) -> Identity:
        """This party's identity now: its files may change at any time."""
        return self._identity.get()

    def serve(self, welcome: Welcome, ready: Callable[[], bool] = lambda: True) -> LinkServer:
        """Listen, and pass the links of peers that the policy admits to `welcome`. `ready`: for the health service."""
        return LinkServer(
            self._settings.listen,
            lambda: tls_files(self.identity),
            lambda certificate: admit_peer(self._settings, certificate),
            self._proof,
            welcome,
            self._limits,
            ready,
            self._observer,
        )

    def offer(self, party: PartyName, link: Link) -> None:
        """Store a link that a peer opened."""
        with self._arrived:
            if party in self._waiting:
                self._waiting[party].close()
            self._waiting[party] = link
            self._arrived.notify_all()

    def open(self, party: PartyName, address: str | None, seconds: float) -> Link:
        """A link to this party: dialled at its address, or, without an address, the next that it opens."""
        if address is not None:
            return self.dial(party, address, seconds)[0]
        until = time.monotonic() + seconds
        with self._arrived:
            while party not in self._waiting:
                left = until - time.monotonic()
                if left <= 0 or not self._arrived.wait(min(left, 1.0)):
                    raise PeerUnreachable(f"{party} has not dialled this party yet")
            return self._waiting.pop(party)

    def dial(
        self, party: PartyName, address: str, seconds: float, *, answers: bool = False
    ) -> tuple[Link, PeerIdentity]:
        """Dial a party. Returns the link and the peer's identity, verified like that of a dialling peer (ADR 0032).

        `answers`: this party will answer requests over the link, so the policy must name the peer.
        """
        own, found = self.identity, list[PeerIdentity]()
        hello = Csprng().bytes(HELLO_BYTES) + __version__.encode()

        def verify(proof: bytes) -> None:
            release, _, evidence = proof.decode(errors="replace").partition("\n")
            check_release(own.party, party, release)  # before the signature, whose content is that of the release
            content = link_content(hello, own.fingerprint, own.party, party, release)
            peer = check_signed(evidence, party, LINK, content, own.ca)
            check_peer(peer, self._settings.policy, revoked_at(self._settings), dialled=not answers)
            found.append(peer)

        link = dial(
            address,
            tls_files(own),
            server_name(party),
            self._limits,
            Greeting(party, hello, verify, max(seconds, 1.0)),
            self._observer,
        )
        return link, found[0]

    def _proof(self, hello: bytes, peer: PeerIdentity) -> bytes:
        check_release(self._settings.name, peer.party, hello[HELLO_BYTES:].decode(errors="replace"))
        return prove_link(self.identity, hello, peer.party, peer.fingerprint)

    def close(self) -> None:
        with self._arrived:
            for link in self._waiting.values():
                link.close()
            self._waiting.clear()
