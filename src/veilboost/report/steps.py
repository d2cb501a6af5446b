"""Where time and bytes of a run went: a transcript cut into alignment, setting up, rounds and levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from veilboost.protocols.vertical.messages import BeginRound, EndTraining, StatisticsRequest
from veilboost.types import PartyName
from veilboost.wire.message import Message
from veilboost.wire.transcript import Direction, Entry

Kind = Literal["alignment", "round", "level", "end", "other"]
ALIGNING, SETTING_UP, OPENING, ENDING = "aligning rows", "setting up", "opening rounds", "ending"


@dataclass
class Step:
    """`seconds` run from its first message to the first of another step, added up over all rounds."""

    name: str
    seconds: float = 0.0
    requests: int = 0
    bytes_sent: dict[PartyName, int] = field(default_factory=dict[PartyName, int])

    def to_dict(self) -> dict[str, Any]:
        return {"step": self.name, "seconds": self.seconds, "requests": self.requests, "bytes": self.bytes_sent}


@dataclass(frozen=True)
class Course:
    """The steps of a run in the order in which they first came, and how long the driver waited for each party."""

    steps: list[Step]
    waiting: dict[PartyName, float]


def kind_of(messages: Iterable[type[Message]], alignment: Iterable[type[Message]] = ()) -> Callable[[str], Kind]:
    """What a message's name says of where in a run it stands."""
    kinds: dict[str, Kind] = {message.type_name(): "alignment" for message in alignment}
    for message in messages:
        if issubclass(message, BeginRound):
            kinds[message.type_name()] = "round"
        elif issubclass(message, StatisticsRequest):
            kinds[message.type_name()] = "level"
        elif issubclass(message, EndTraining):
            kinds[message.type_name()] = "end"
    return lambda name: kinds.get(name, "other")


def course(owner: PartyName, entries: Iterable[Entry], kind: Callable[[str], Kind], asks: Direction = "sent") -> Course:
    """Cut one party's transcript into steps.

    Levels are counted, not read: every statistics request to a party is its next level. In protocols without
    levels (rows in different hands) each type of request is a step of its own.

    Parameters
    ----------
    asks
        Which messages are requests: those that `owner` sent, if it drives the run, or those that it received.
    """
    found: dict[str, Step] = {}
    waiting: dict[PartyName, float] = {}
    level: dict[PartyName, int] = {}
    at: dict[PartyName, str] = {}
    asked: dict[PartyName, float] = {}
    every = list(entries)
    leveled = any(kind(entry.message) in {"round", "level"} for entry in every)
    last: Entry | None = None
    current = SETTING_UP
    for entry in every:
        if last is not None:
            found[current].seconds += max(entry.when - last.when, 0.0)
        last = entry
        if entry.direction == asks:
            current = _step(entry, kind(entry.message), level, at.get(entry.peer), leveled)
            at[entry.peer] = current
            asked[entry.peer] = entry.when
        else:
            current = at.get(entry.peer, current)
            if entry.peer in asked and asks == "sent":
                waiting[entry.peer] = waiting.get(entry.peer, 0.0) + max(entry.when - asked.pop(entry.peer), 0.0)
        step = found.setdefault(current, Step(current))
        step.requests += entry.direction == asks
        sender = owner if entry.direction == "sent" else entry.peer
        step.bytes_sent[sender] = step.bytes_sent.get(sender, 0) + entry.size
    return Course(_ordered(list(found.values())), waiting)


def _step(entry: Entry, kind: Kind, level: dict[PartyName, int], current: str | None, leveled: bool) -> str:
    if kind == "alignment" or entry.message in {"BeginAlignment", "NextLot", "EndAlignment"}:
        return ALIGNING
    if not leveled:
        return entry.message
    if kind == "round":
        level[entry.peer] = -1
        return OPENING
    if kind == "level":
        level[entry.peer] = level.get(entry.peer, -1) + 1
        return f"level {level[entry.peer]}"
    if kind == "end":
        return ENDING
    if entry.peer not in level:
        return SETTING_UP
    return current or SETTING_UP


def _ordered(steps: list[Step]) -> list[Step]:
    """Levels by depth: a shallow first tree must not put level 2 behind what came later."""
    levels = sorted((step for step in steps if step.name.startswith("level ")), key=lambda s: int(s.name[6:]))
    queue = iter(levels)
    return [next(queue) if step.name.startswith("level ") else step for step in steps]
