"""The state of peers: who can be reached, with which release, certificate and clock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from veilboost import __version__
from veilboost.errors import VeilBoostError, printable
from veilboost.party.hub import LinkHub, caller_to
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job
from veilboost.party.messages import Ping, Pong
from veilboost.party.session import Session, SessionContext
from veilboost.party.settings import PartySettings
from veilboost.party.status import WARN_DAYS, days_until
from veilboost.types import PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.grpc import MAX_RELEASE
from veilboost.wire.message import Catalogue, Message
from veilboost.wire.rpc import Link

MOST_DIFFERENCE = 30  # seconds between the clocks of two parties
PINGS = Catalogue((Ping, Pong))


class PingSession(Session):
    """Answers a ping, which any admitted peer may send; it ends at once."""

    catalogue = PINGS

    def __init__(self, context: SessionContext, opening: Ping) -> None:
        super().__init__(context)

    def _act(self, peer: PeerIdentity, message: Message) -> Pong:
        self.over = True
        return Pong(__version__, int(time.time()))


@dataclass(frozen=True)
class PeerStatus:
    """A peer as seen from here. `clock_difference`: seconds that its clock is ahead, to about one second."""

    peer: PartyName
    address: str
    release: str | None = None
    certificate_days: float | None = None
    round_trip_ms: float | None = None
    clock_difference: int | None = None
    problems: Sequence[str] = field(default_factory=list[str])


def dialled_addresses(settings: PartySettings | None, job: Job | None) -> dict[PartyName, str]:
    """The addresses of the peers in these settings, and of the parties of a job. Others dial this party."""
    entries = [*(settings.peers.items() if settings else ()), *(job.parties.items() if job else ())]
    return {name: entry.address for name, entry in entries if entry.address is not None}


def peer_status(settings: PartySettings, addresses: Mapping[PartyName, str]) -> list[PeerStatus]:
    """Dial all peers at once. Waits at most `connect_seconds` for each."""
    others = {name: address for name, address in addresses.items() if name != settings.name}
    if not others:
        return []
    hub = LinkHub(settings)
    with ThreadPoolExecutor(len(others), thread_name_prefix="status") as pool:
        return list(pool.map(partial(_ask, hub, settings), others, others.values()))


def _ask(hub: LinkHub, settings: PartySettings, name: PartyName, address: str) -> PeerStatus:
    seconds, found = settings.limits.connect_seconds, list[PeerIdentity]()

    def reach(party: PartyName, left: float) -> Link:
        link, identity = hub.dial(party, address, left)
        found.append(identity)
        return link

    caller = caller_to(name, settings, reach, PINGS, seconds=seconds, idle_timeout=seconds)
    peers = Peers({name: caller})
    try:
        peers.ask({name: Ping()}, Pong)  # opens the connection, whose time does not count
        began, clock = time.perf_counter(), time.time()
        pong = peers.ask({name: Ping()}, Pong)[name]
        took = time.perf_counter() - began
    except VeilBoostError as error:
        return PeerStatus(name, address, problems=[" ".join(str(error).split())])
    finally:
        caller.close()
    days, ahead = days_until(found[-1].not_after), round(pong.clock + 0.5 - clock - took / 2)
    problems = [f"its certificate expires in {days:.0f} days"] if days < WARN_DAYS else []
    if abs(ahead) > MOST_DIFFERENCE:
        problems.append(f"its clock differs by {ahead} s")
    return PeerStatus(name, address, printable(pong.release[:MAX_RELEASE]), days, 1000 * took, ahead, problems)
