"""The cells of the drill, which file operations count, the outcomes, and tables of these."""

from __future__ import annotations

import errno
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import proxy
from town import KILL, NONE, Fault

DAY = 86_400
MOST_BYTES = 100  # places of one connection that are tried
# kind -> what its numbers count, or the numbers themselves.
KINDS: dict[str, str | tuple[int, ...]] = {
    "kill-file": "files",
    "kill-message": "messages",
    "term-message": "messages",
    "deaf": "messages",
    "lie": "sent",
    "disk-full": "files",
    "read-only": "files",
    "clock-ahead": "files",
    "clock-back": "files",
    "expired": "files",
    "descriptors": (1, 2, 4, 8, 12, 16, 24),
    "memory": (1, 8, 32, 64, 128, 256),
    "rolled-back": "messages",
    "two-drivers": "messages",
    "two-daemons": (1,),
    "power-loss": (1,),
    **dict.fromkeys(proxy.KINDS, "bytes"),
}
DAEMONS_ONLY = ("deaf", "two-daemons", *proxy.KINDS)


@dataclass(frozen=True)
class Cell:
    protocol: str
    kind: str
    party: str
    number: int

    def __str__(self) -> str:
        return f"{self.protocol}:{self.kind}:{self.party}:{self.number}"

    @property
    def fault(self) -> Fault:
        n = self.number
        return {
            "kill-file": Fault(at=n, errno=KILL),
            "kill-message": Fault(message=n),
            "term-message": Fault(message=n, signal=signal.SIGTERM),
            "deaf": Fault(message=n, signal=0),
            "lie": Fault(lie=n),
            "disk-full": Fault(at=n, errno=errno.ENOSPC),
            "read-only": Fault(at=n, errno=errno.EROFS),
            "clock-ahead": Fault(at=n, jump=2 * DAY),
            "clock-back": Fault(at=n, jump=-2 * DAY),
            "expired": Fault(at=n, jump=4000 * DAY),
            "descriptors": Fault(descriptors=n),
            "memory": Fault(megabytes=n),
            "rolled-back": Fault(message=n),
            "two-drivers": Fault(message=n),
        }.get(self.kind, NONE)


@dataclass
class Outcome:
    cell: Cell
    verdict: str = ""
    why: str = ""
    codes: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)  # temporary files; participants without a model
    struck: str = ""  # the operation or message
    seconds: float = 0.0


def places(events: Sequence[tuple[str, str]], thorough: bool = True) -> list[int]:
    """The file operations to kill before: before any other one, a kill leaves the state of one of these.

    An operation that changes nothing, such as fsync, is left out: the state is that before the next operation, or at
    the next message, where `kill-message` strikes. Of writes to one file with nothing in between, the first, the middle
    and the last count. If not `thorough`, the lines of the transcript are left out, which no party reads to resume, and
    of the commits of the ledger the first two and the last have all their places, the others one each, in turn.
    """
    found: list[int] = []
    for write, group in groupby(events, key=_written):
        if not thorough and write.endswith("/transcript.jsonl"):
            continue
        numbers = [int(about.split(" ", 1)[0]) for what, about in group if what == "file"]
        found += sorted({numbers[0], numbers[len(numbers) // 2], numbers[-1]}) if write else numbers
    if thorough:
        return found
    commit_of = _commits(events)
    last = max(commit_of.values(), default=0)
    kept: list[int] = []
    for commit, group in groupby(sorted(found, key=commit_of.__getitem__), key=commit_of.__getitem__):
        numbers = list(group)
        kept += numbers if commit <= 2 or commit == last else [numbers[commit % len(numbers)]]
    return sorted(kept)


def _commits(events: Sequence[tuple[str, str]]) -> dict[int, int]:
    """The commit of the ledger that each file operation belongs to; 0: none."""
    commit, found = 0, dict[int, int]()
    for what, about in events:
        if what in {"file", "idle"}:
            number, did = about.split(" ", 1)
            commit += did.startswith("open ") and did.endswith("ledger.sqlite-journal")
            found[int(number)] = commit if "ledger.sqlite" in did else 0
    return found


def _written(event: tuple[str, str]) -> str:
    """The file that is written, if this is what happens."""
    return event[1].partition(" ")[2] if event[0] == "file" and " write " in event[1] else ""


VERDICTS = ("same model", "resumed", "coded", "other model", "bad")


def matrix(outcomes: Sequence[dict[str, Any]], *by: str) -> list[dict[str, Any]]:
    """The number of cells of each verdict, in a row for each value of these fields of a cell."""
    rows: dict[tuple[str, ...], Counter[str]] = {}
    for outcome in outcomes:
        rows.setdefault(tuple(outcome["cell"][name] for name in by), Counter())[outcome["verdict"]] += 1
    return [
        dict(zip(by, key, strict=True)) | {"tried": sum(count[v] for v in VERDICTS)} | {v: count[v] for v in VERDICTS}
        for key, count in rows.items()
    ]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    names = list(rows[0]) if rows else []
    lines = [names, ["---"] * len(names), *([str(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def summary(outcomes: Sequence[dict[str, Any]], second: str = "protocol", command: str = "drill.py") -> str:
    """Two tables, by kind and by `second`, and every bad cell with the command that repeats it."""
    bad = [each for each in outcomes if each["verdict"] == "bad"]
    told = [markdown(matrix(outcomes, "kind")), markdown(matrix(outcomes, second))]
    for each in bad:
        cell = Cell(**each["cell"])
        told.append(f"bad: {each['why']}\n  at: {each['struck']}\n  python tests/drill/{command} --cell {cell}")
    left = [each for each in outcomes if each["left"] and each["verdict"] != "bad"]
    if left:
        first = f"{Cell(**left[0]['cell'])}: {', '.join(left[0]['left'])}"
        told.append(f"{len(left)} cells left something behind, such as {first}")
    return "\n\n".join(told)
