"""Who is there: one small question to every party, all at once, by which nothing is read or spent."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from veilboost.errors import PeerUnreachable, VeilBoostError
from veilboost.party.hub import LinkHub, caller_to, own_identity
from veilboost.party.job import Job
from veilboost.party.messages import CONTROL_MESSAGES, Propose
from veilboost.party.settings import PartySettings
from veilboost.party.vertical.coordinator import who_answers
from veilboost.types import PartyName
from veilboost.wire.codec import Catalogue
from veilboost.wire.rpc import Caller

Presence = Mapping[PartyName, bool | None]  # None: it dials us, so it cannot be called
_GRACE = 0.5  # what the threads may take beyond the deadline of the requests themselves


class RollCall:
    """Asks every party that a prediction needs and that can be dialled for a dry run of the job."""

    def __init__(self, settings: PartySettings, job: Job, job_text: str) -> None:
        self._settings = settings
        self._job = job
        self._text = job_text
        self._lock = threading.Lock()
        self._known: Presence | None = None
        self._when = 0.0

    def now(self, seconds: float) -> Presence:
        """Which parties answer within so many seconds."""
        with self._lock:
            return self._call(seconds)

    def lately(self, age: float, seconds: float) -> Presence:
        """The same, if it was not asked within the last `age` seconds; otherwise what was found then."""
        with self._lock:
            if self._known is None or time.monotonic() - self._when > age:
                return self._call(seconds)
            return self._known

    def _call(self, seconds: float) -> Presence:
        parties = {name: self._job.parties[name] for name in who_answers(self._job)}
        found: dict[PartyName, bool | None] = dict.fromkeys(parties)
        hub = LinkHub(own_identity(self._settings), self._settings.limits)
        callers = {
            name: self._caller(hub, name, party.address, seconds)
            for name, party in parties.items()
            if party.connect == "out"
        }
        with ThreadPoolExecutor(max(1, len(callers)), thread_name_prefix="roll-call") as pool:
            asked = {name: pool.submit(self._is_there, caller) for name, caller in callers.items()}
            wait(asked.values(), seconds + _GRACE)
            for name, answer in asked.items():
                found[name] = answer.done() and answer.result()
                callers[name].close()  # also ends the wait for a party that neither answers nor refuses
        hub.close()
        self._known, self._when = found, time.monotonic()
        return found

    def _caller(self, hub: LinkHub, name: PartyName, address: str | None, seconds: float) -> Caller:
        return caller_to(
            name,
            self._settings,
            lambda name, left: hub.open(name, address, left),
            Catalogue(CONTROL_MESSAGES),
            seconds=seconds,
            silence=seconds,
        )

    def _is_there(self, caller: Caller) -> bool:
        try:
            caller.send(Propose(self._text, dry_run=True, resume=False))()
        except PeerUnreachable:
            return False
        except VeilBoostError:
            return True  # it would not train this again, and that is an answer too
        return True


def names_of(parties: Sequence[PartyName]) -> str:
    """`shop`, `shop and telecom`, `a, b and c`."""
    return parties[0] if len(parties) == 1 else f"{', '.join(parties[:-1])} and {parties[-1]}"
