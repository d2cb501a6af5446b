"""Short conversations about a secure service: a session is opened, one thing is asked, and it is closed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from veilboost.crypto.csprng import Csprng
from veilboost.errors import ImpossibleSetting, VeilBoostError
from veilboost.infer.secure.messages import SECURE_MESSAGES
from veilboost.party.hub import LinkHub, own_identity
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, OpenService
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.codec import Catalogue
from veilboost.wire.link import Link
from veilboost.wire.message import Done, Message
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript

CATALOGUE = Catalogue({*CONTROL_MESSAGES, *SECURE_MESSAGES})


class ServiceWay:
    """A channel to one daemon, a new session for every request: neither end remembers the other."""

    def __init__(
        self,
        settings: PartySettings,
        peer: PartyName,
        opening: OpenService,
        reach: Callable[[PartyName, float], Link],
        transcript: Transcript | None = None,
    ) -> None:
        self._settings, self._peer, self._opening, self._reach = settings, peer, opening, reach
        self._transcript = transcript or Transcript(settings.name)

    def send(self, message: Message) -> Pending:
        caller = Caller(
            self._peer,
            lambda seconds: self._reach(self._peer, seconds),
            Csprng().bytes(16),
            CATALOGUE,
            self._transcript,
            self._settings.limits.wait_seconds,
            silence=self._settings.limits.request_seconds,
        )
        way = Peers({self._peer: caller})

        def wait() -> Message:
            try:
                way.ask({self._peer: self._opening}, Accepted)
                answer = way.ask({self._peer: message}, Message)[self._peer]
                with contextlib.suppress(VeilBoostError):
                    way.ask({self._peer: Finish(completed=True)}, Done)
                return answer
            finally:
                caller.close()

        return wait


class ServiceClient:
    """Ways to daemons by the addresses in a party's own file; for the active party's commands and for users."""

    def __init__(self, settings: PartySettings, opening: OpenService) -> None:
        self._settings, self._opening = settings, opening
        self._hub = LinkHub(own_identity(settings), settings.limits)

    def way(self, peer: PartyName) -> ServiceWay:
        if peer not in self._settings.peers or self._settings.peers[peer].address is None:
            raise ImpossibleSetting(f"{self._settings.name} has no address of {peer}", f"add it under [peers.{peer}]")
        return ServiceWay(self._settings, peer, self._opening, self._open)

    def _open(self, peer: PartyName, seconds: float) -> Link:
        return self._hub.open(peer, self._settings.peers[peer].address, seconds)

    def close(self) -> None:
        self._hub.close()
