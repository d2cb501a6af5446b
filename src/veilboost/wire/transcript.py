"""The record of a party's messages: type, bytes, time. Together with what each type reveals, it shows the leakage."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from veilboost.at_rest import Appender, Records
from veilboost.durable import keeping, make_folder, open_private
from veilboost.errors import InvalidParameter, UnreadableFile
from veilboost.types import PartyName
from veilboost.wire.message import Message, Reveals, revealed

Direction = Literal["sent", "received"]
Record = Literal["types", "payload"]
ENTRIES, PAYLOADS = "transcript.jsonl", "payload.bin"


class Entry(NamedTuple):
    """One message that was sent or received."""

    when: float
    direction: Direction
    peer: PartyName
    message: str
    size: int
    reveals: tuple[tuple[str, str], ...] = ()  # (what, to whom)


@cache
def _as_json(reveals: tuple[Reveals, ...]) -> str:
    """What a message reveals, as JSON. Cached: a run has few classes and many messages."""
    return json.dumps([(item.what, item.to) for item in reveals])


class Transcript:
    """One party's record of a job, in order. With a folder, it is written there as it grows.

    `record="payload"`: the frames are also written to disk, for the audit; without a folder the messages are kept in
    `messages`. Payloads contain data that other parties sent: protect them (`at_rest`).
    """

    def __init__(self, owner: PartyName, folder: Path | None = None, record: Record = "types") -> None:
        self.owner = owner
        self._recorded: list[tuple[float, Direction, PartyName, str, int]] = []
        self.messages: list[tuple[Direction, PartyName, Message]] = []
        self._on_disk = folder is not None
        self._keeps = record == "payload" and folder is None
        self._lines = self._frames = None
        self._files: AbstractContextManager[Any] = nullcontext()
        if folder is None:
            return
        self._files = threading.Lock()  # a session may be closed while another thread still answers a message
        with keeping("the transcript cannot be written"):
            make_folder(folder)
            if (folder / ENTRIES).exists():  # a killed party may have left half a line
                with (folder / ENTRIES).open("r+b") as file:
                    content = file.read()
                    if not content.endswith(b"\n"):  # otherwise another session may append to it now
                        file.truncate(content.rfind(b"\n") + 1)
            if record == "payload":
                self._frames = Appender(folder / PAYLOADS)
            # Line-buffered: if the process is killed, every message sent before is in the file.
            self._lines = open_private(folder / ENTRIES, "a", encoding="utf-8", buffering=1)

    @property
    def entries(self) -> list[Entry]:
        """The messages so far."""
        return [Entry(*values) for values in self._recorded]

    def record(
        self, direction: Direction, peer: PartyName, message: Message, size: int, frame: bytes | None = None
    ) -> None:
        when, name = time.time(), message.type_name()
        self._recorded.append((when, direction, peer, name, size))
        if self._keeps:
            self.messages.append((direction, peer, message))
        if not self._on_disk:
            return
        with self._files, keeping("the transcript cannot be written"):
            if self._lines is None:
                return
            offset = "null" if self._frames is None else str(self._frames.tell())
            self._lines.write(
                f'{{"when":{when!r},"direction":"{direction}","peer":{json.dumps(peer)},"message":"{name}",'
                f'"size":{size},"offset":{offset},"reveals":{_as_json(revealed(message))}}}\n'
            )
            if self._frames is not None and frame is not None:
                self._frames.write(frame)

    def flush(self) -> None:
        with self._files, keeping("the transcript cannot be written"):
            for file in (self._lines, self._frames):
                if file is not None:
                    file.flush()

    def close(self) -> None:
        """Close the files. A file on a full disk may hold a line that was not written: then this raises, too."""
        with self._files, keeping("the transcript cannot be written"), ExitStack() as stack:
            files, self._lines, self._frames = (self._lines, self._frames), None, None
            for file in files:
                if file is not None:
                    stack.callback(file.close)

    def bytes_sent(self) -> int:
        return sum(size for _, direction, _, _, size in self._recorded if direction == "sent")

    def messages_sent(self) -> int:
        return sum(direction == "sent" for _, direction, *_ in self._recorded)


class NoTranscript(Transcript):
    """Records nothing, for connections that last: their number of messages has no bound."""

    def record(
        self, direction: Direction, peer: PartyName, message: Message, size: int, frame: bytes | None = None
    ) -> None:
        pass


def by_type(entries: list[Entry]) -> dict[tuple[Direction, PartyName, str], tuple[int, int]]:
    """Count and bytes of each (direction, peer, message type)."""
    totals: dict[tuple[Direction, PartyName, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for entry in entries:
        key = entry.direction, entry.peer, entry.message
        count, size = totals[key]
        totals[key] = count + 1, size + entry.size
    return dict(totals)


def read_transcript(folder: Path) -> Iterator[Entry]:
    """Read the entries that a party wrote into a run folder."""
    return (entry for entry, _ in _read(folder))


def read_frames(folder: Path) -> Iterator[tuple[Entry, bytes]]:
    """Read the entries with their frames, where payloads were recorded."""
    path = folder / PAYLOADS
    if not path.exists():
        raise UnreadableFile(
            f"{folder} has no payloads: the job was trained without them, and they cannot be added",
            'write record = "payload" and another name into the job file, train again, and audit the new run',
        )
    entries = list(_read(folder))
    with path.open("rb") as file:
        records, found, after = Records(path, file), list[tuple[Entry, int]](), math.inf
        for entry, offset in reversed(entries):
            if offset is not None:
                # A killed party's last frames may be missing, and what it wrote later may stand in their place.
                if records.end(offset, entry.size) <= after:
                    found.append((entry, offset))
                after = min(after, offset)
        for entry, offset in reversed(found):
            frame = records.read(offset, entry.size)
            if len(frame) == entry.size:
                yield entry, frame


def read_appended(folder: Path, offset: int) -> tuple[list[Entry], int]:
    """The entries from a byte offset on, and the offset behind them, to follow a transcript that grows."""
    path = folder / ENTRIES
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        return [_parse(line)[0] for line in whole.splitlines()], offset + len(whole)
    except _INVALID as error:
        raise UnreadableFile(f"{path} is not a transcript") from error


def _read(folder: Path) -> Iterator[tuple[Entry, int | None]]:
    path = folder / ENTRIES
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # still being written, or left by a killed party
                yield _parse(line)
    except _INVALID as error:
        raise UnreadableFile(f"{path} is not a transcript") from error


_INVALID = (OSError, ValueError, KeyError, TypeError)


def _parse(line: bytes) -> tuple[Entry, int | None]:
    values = json.loads(line)
    reveals = tuple((str(what), str(to)) for what, to in values["reveals"])
    entry = Entry(values["when"], values["direction"], values["peer"], values["message"], values["size"], reveals)
    return entry, values.get("offset")


# --- the messages of a run, by sender, receiver and type ------------------------------------------------------------


@dataclass(frozen=True)
class Exchange:
    """All messages of one type from one party to another. `reveals` holds pairs of (what, to which party or role)."""

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


def traffic_by_peer(owner: PartyName, exchanges: Iterable[Exchange]) -> dict[PartyName, dict[str, int]]:
    """Messages and bytes that `owner` sent to each peer and received from it."""
    totals: dict[PartyName, dict[str, int]] = {}
    for item in exchanges:
        peer, direction = (item.receiver, "sent") if item.sender == owner else (item.sender, "received")
        total = totals.setdefault(
            peer, {"messages_sent": 0, "bytes_sent": 0, "messages_received": 0, "bytes_received": 0}
        )
        total[f"messages_{direction}"] += item.count
        total[f"bytes_{direction}"] += item.size
    return totals


def shown_to(party: PartyName, exchanges: Sequence[Exchange]) -> list[str]:
    """What a party learned from the messages that it received."""
    return list(dict.fromkeys(what for item in exchanges if item.receiver == party for what, _ in item.reveals))


# --- estimated time of a transcript's messages on a slower network --------------------------------------------------


_FORM = re.compile(r"(\d+(?:\.\d+)?)(k|m|g)bit,(\d+(?:\.\d+)?)(ms|s)")
_BITS = {"k": 1e3, "m": 1e6, "g": 1e9}
_SECONDS = {"ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Network:
    """One party's connection: bits per second, and seconds that a message of any size is in transit."""

    bandwidth: float
    latency: float

    @staticmethod
    def parse(text: str) -> Network:
        """Parse text such as `20mbit,100ms`, or the name of one of `LINES`."""
        if (named := LINES.get(text.strip().lower())) is not None:
            return named
        found = _FORM.fullmatch(text.strip().lower())
        if found is None or float(found[1]) == 0:
            known = ", ".join(LINES)
            raise InvalidParameter(f"{text!r} is not a network", f"write it as 20mbit,100ms, or name one of {known}")
        return Network(float(found[1]) * _BITS[found[2]], float(found[3]) * _SECONDS[found[4]])

    def seconds(self, rounds: int, size: int) -> float:
        """Time for `rounds` round trips and `size` bytes over one connection."""
        return 2 * self.latency * rounds + 8 * size / self.bandwidth

    def replay(self, entries: Iterable[Entry]) -> float:
        """Time of a party's own transcript over its own connection."""
        entries = list(entries)
        return self.latency * turns(entries) + 8 * sum(entry.size for entry in entries) / self.bandwidth

    def __str__(self) -> str:
        rate = self.bandwidth / 1e6
        return f"a line of {2e3 * self.latency:.3g} ms and {f'{rate:,.0f}' if rate >= 10 else f'{rate:.2g}'} Mbit/s"


LINES = {
    "lan": Network(10e9, 0.25e-3),
    "metro": Network(1e9, 2.5e-3),
    "wan": Network(100e6, 25e-3),
    "far": Network(20e6, 75e-3),
}
UNMEASURED = LINES["wan"]  # what a job assumes if nobody measured its line


def turns(entries: Sequence[Entry]) -> int:
    """How often the direction of a party's messages changes. Consecutive messages in one direction count once."""
    return sum(at == 0 or entry.direction != entries[at - 1].direction for at, entry in enumerate(entries))
