"""A party's daemon: listens, dials out where the owner says so, and answers until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from veilboost.errors import PeerUnreachable
from veilboost.party.host import PartyHost, admit_peer
from veilboost.party.hub import LinkHub, own_identity, tls_files
from veilboost.party.identity import PeerIdentity
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName
from veilboost.wire.grpc import LinkServer
from veilboost.wire.rpc import FIRST_PAUSE, LONGEST_PAUSE, Link, Packet, answer_requests

_LOG = logging.getLogger(__name__)


class Daemon:
    """A running party. Make it, and it serves; `stop` ends it."""

    def __init__(self, settings: PartySettings) -> None:
        identity = own_identity(settings)
        limits = settings.limits
        self.settings = settings
        self._hub = LinkHub(identity, limits)
        self.host = PartyHost(settings, self._reach)
        self._stopping = threading.Event()
        self._server = LinkServer(
            settings.listen,
            tls_files(identity),
            self.host.admit,
            self._welcome,
            limits.max_message_mb << 20,
            limits.keepalive_seconds,
        )
        self.port = self._server.port
        _LOG.info("%s listens on port %d", settings.name, self.port)
        # `connect = "out"` in a party's own file: this party dials the peer and answers over that link.
        for name, peer in settings.peers.items():
            if peer.connect == "out" and peer.address is not None:
                threading.Thread(target=self._dial_out, args=(name, peer.address), daemon=True).start()

    def stop(self) -> None:
        _LOG.info("%s stops", self.settings.name)
        self._stopping.set()
        self._server.stop()
        self._hub.close()
        self.host.close()

    def wait(self) -> None:
        """Until `stop` is called from another thread or a signal handler."""
        while not self._stopping.wait(1.0):
            pass

    def _welcome(self, link: Link, peer: PeerIdentity) -> Callable[[Packet], Packet]:
        return lambda packet: self.host.handle(peer, packet)

    def _dial_out(self, name: PartyName, address: str) -> None:
        """Keep a link open to a peer that cannot dial us; it sends requests over it as over any other."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            link = self._hub.open(name, address, seconds=0.0)
            peer = PeerIdentity(name, "", self.host.identity.not_after, 0)
            heard = False

            def handle(packet: Packet, peer: PeerIdentity = peer) -> Packet:
                nonlocal heard
                heard = True
                return self.host.handle(peer, packet)

            answer_requests(link, handle)
            link.close()
            pause = FIRST_PAUSE if heard else min(2 * pause, LONGEST_PAUSE)
            self._stopping.wait(pause)

    def _reach(self, name: PartyName, seconds: float) -> Link:
        peer = self.settings.peers.get(name)
        if peer is None or peer.address is None:
            raise PeerUnreachable(f"{self.settings.name} has no address of {name}", "name it under [peers]")
        return self._hub.open(name, peer.address, seconds)


def listen_for(settings: PartySettings, hub: LinkHub) -> LinkServer:
    """A server that only collects the links of peers that dial the driving party."""
    limits = settings.limits

    def keep(link: Link, peer: PeerIdentity) -> None:
        hub.offer(peer.party, link)

    return LinkServer(
        settings.listen,
        tls_files(own_identity(settings)),
        lambda certificate: admit_peer(settings, certificate),
        keep,
        limits.max_message_mb << 20,
        limits.keepalive_seconds,
    )
