"""What crossed between parties in a run: messages by sender, receiver and type, and what they revealed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilboost.errors import UnknownRun, UnreadableFile, VeilBoostError
from veilboost.types import PartyName
from veilboost.wire.transcript import ENTRIES, Entry, read_transcript

FOLDER = "transcript"


@dataclass(frozen=True)
class Exchange:
    """All messages of one type from one party to another. `reveals` are pairs of what, and to which party or role."""

    sender: PartyName
    receiver: PartyName
    message: str
    count: int
    size: int
    reveals: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "sender": self.sender,
            "receiver": self.receiver,
            "message": self.message,
            "count": self.count,
            "bytes": self.size,
            "reveals": [{"what": what, "to": to} for what, to in self.reveals],
        }


@dataclass(frozen=True)
class Traffic:
    """Messages and bytes of one direction, seen from the party whose transcript it is."""

    messages: int = 0
    size: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.messages + other.messages, self.size + other.size)


def read_exchanges(run: Path) -> tuple[PartyName, list[Exchange]]:
    """Whose run it is, and what crossed, in the order in which types of messages first came.

    `run` is a run's folder, or the transcript's folder in it.

    Raises
    ------
    UnknownRun
        The folder is none of a run.
    UnreadableFile
        The run has no transcript, or it is damaged.
    """
    from veilboost.party.runs import RunFolder  # a simulation has no folders

    folder = run.parent if not (run / FOLDER).exists() and (run / ENTRIES).exists() else run
    owner = RunFolder(folder).status.get("party")
    if not isinstance(owner, str):
        raise UnknownRun(f"{run} is not the folder of a run")
    if not (folder / FOLDER / ENTRIES).exists():
        raise UnreadableFile(
            f"the run in {folder} has no transcript", 'it was recorded unless the job has record="none"'
        )
    roles = _roles(folder)
    found: dict[tuple[PartyName, PartyName, str], tuple[int, int, tuple[tuple[str, str], ...]]] = {}
    for entry in read_transcript(folder / FOLDER):
        sender, receiver = (owner, entry.peer) if entry.direction == "sent" else (entry.peer, owner)
        count, size, reveals = found.get((sender, receiver, entry.message), (0, 0, ()))
        if not count:
            reveals = tuple(
                (what, receiver if roles.get(receiver) == role else str(role)) for what, role in entry.reveals
            )
        found[sender, receiver, entry.message] = count + 1, size + entry.size, reveals
    return owner, [Exchange(*key, *value) for key, value in found.items()]


def read_entries(run: Path) -> Iterator[Entry]:
    """Message by message, as `read_exchanges` reads them."""
    return read_transcript(run / FOLDER if (run / FOLDER).exists() else run)


def traffic_by_peer(owner: PartyName, exchanges: Iterable[Exchange]) -> dict[PartyName, tuple[Traffic, Traffic]]:
    """What `owner` sent to each peer, and what it received from it."""
    totals: dict[PartyName, tuple[Traffic, Traffic]] = {}
    for item in exchanges:
        out = item.sender == owner
        peer = item.receiver if out else item.sender
        sent, received = totals.get(peer, (Traffic(), Traffic()))
        here = Traffic(item.count, item.size)
        totals[peer] = (sent + here, received) if out else (sent, received + here)
    return totals


def traffic_dict(totals: Mapping[PartyName, tuple[Traffic, Traffic]]) -> dict[PartyName, dict[str, int]]:
    return {
        peer: {
            "messages_sent": sent.messages,
            "bytes_sent": sent.size,
            "messages_received": received.messages,
            "bytes_received": received.size,
        }
        for peer, (sent, received) in totals.items()
    }


def shown_to(party: PartyName, exchanges: Sequence[Exchange]) -> list[str]:
    """What a party was shown by the messages that it received."""
    return list(dict.fromkeys(what for item in exchanges if item.receiver == party for what, _ in item.reveals))


def _roles(folder: Path) -> Mapping[PartyName, str]:
    """Which role each party has, as messages name roles; empty where the job cannot be read."""
    from veilboost.party.job import load_job

    try:
        job = load_job(folder / "job.toml")
    except VeilBoostError:
        return {}
    return {name: job.role_of(name) for name in job.parties}
