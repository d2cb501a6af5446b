"""Runs targets: cells one after the other, each stored at once, then the table, the plot and the claim."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from papers.pictures import png_of
from papers.rows import Row, Rows, over_seeds
from papers.rules import Holds
from papers.target import Cell, Claim, Context, Target
from veilboost.errors import MissingExtra
from veilboost.report.values import plain

CELLS, TABLE, PLOT, PICTURE, CLAIM = "cells.jsonl", "table.csv", "plot.svg", "plot.png", "claim.json"
_PACKAGES = ("veilboost", "numpy", "xgboost-cpu", "scikit-learn")


class Cells:
    """The measured cells of one target in its folder: one JSON line each, appended as they come.

    A cell counts while its fingerprint is that of today's code and data; a quick run and a full one share the file, and
    never each other's cells.
    """

    def __init__(self, folder: Path, context: Context) -> None:
        self._file, self._context = folder / CELLS, context
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._fingerprints: dict[str, str] = {}  # of today's code, by the name of the cell
        text = self._file.read_text() if self._file.exists() else ""
        self._torn = bool(text) and not text.endswith("\n")  # by a run that was killed while writing
        for line in text.splitlines():
            with suppress(ValueError):  # half a line
                self._remember(json.loads(line))

    def get(self, cell: Cell) -> Row | None:
        """Key and values of a cell that was measured before, in one."""
        entry = self.entry(cell)
        return None if entry is None else {**entry["key"], **entry["values"]}

    def entry(self, cell: Cell) -> Mapping[str, Any] | None:
        """The whole line of a cell that was measured before: also its seconds, day and processor."""
        return self._known.get((_name(cell.key), self._fingerprint(cell)))

    def add(self, cell: Cell, values: Row, seconds: float) -> None:
        entry: dict[str, Any] = {
            "fingerprint": self._fingerprint(cell),
            "quick": self._context.quick,
            "key": dict(cell.key),
            "values": dict(values),
            "seconds": round(seconds, 3),
            "day": datetime.now(UTC).date().isoformat(),
            "cpu": machine()["cpu"],
            "load": round(os.getloadavg()[0], 1),  # above the cores, other work ran beside it
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as opened:
            opened.write(("\n" if self._torn else "") + json.dumps(entry) + "\n")
        self._torn = False
        self._remember(entry)

    def expected(self, cells: Sequence[Cell]) -> float:
        """About how long the cells that are not stored will take: as those measured before of the same kind did."""
        taken: dict[str, list[float]] = {}
        for entry in self._known.values():
            taken.setdefault(_kind(entry["key"]), []).append(entry["seconds"])
        left = [cell for cell in cells if self.get(cell) is None]
        known = [(cell.seconds, fmean(taken[kind])) for cell in cells if (kind := _kind(cell.key)) in taken]
        # Other kinds are as much quicker or slower than guessed as those that were measured.
        pace = sum(each for _, each in known) / sum(guess for guess, _ in known) if known else 1.0
        return sum(fmean(taken.get(_kind(cell.key), [pace * cell.seconds])) for cell in left)

    def _fingerprint(self, cell: Cell) -> str:
        name = _name(cell.key)
        if name not in self._fingerprints:
            self._fingerprints[name] = self._context.fingerprint(cell)
        return self._fingerprints[name]

    def _remember(self, entry: dict[str, Any]) -> None:
        if entry.get("quick") == self._context.quick and "fingerprint" in entry:
            self._known[_name(entry["key"]), entry["fingerprint"]] = entry


def _name(key: Row) -> str:
    return json.dumps(dict(key), sort_keys=True)


def _kind(key: Row) -> str:
    """A cell without its seed: other drawings take as long."""
    return _name({name: value for name, value in key.items() if name != "seed"})


@dataclass(frozen=True)
class Progress:
    """How far a target is: the next cell (None at the end), whether it was measured before, how many are done, and
    about how long the others take."""

    target: Target
    cell: Cell | None
    stored: bool
    done: int
    cells: int
    seconds_left: float


Watcher = Callable[[Progress], None]


@dataclass(frozen=True)
class Reproduction:
    """A finished target, as `claim.json` says it."""

    target: Target
    claim: Claim
    rows: Rows
    entries: Sequence[Mapping[str, Any]]  # the cells it is made of
    quick: bool
    skipped: list[str]

    @property
    def holds(self) -> Holds:
        return self.target.rule.verdict(self.rows) if self.rows else "open"

    def to_dict(self) -> dict[str, Any]:
        counts, cases = self.target.rule.counted(self.rows) if self.rows else (0, 0)
        days = sorted({entry["day"] for entry in self.entries})
        return {
            "paper": self.target.paper,
            "target": self.target.name,
            "title": self.target.title,
            "reported": self.claim.reported,
            "measured": self.claim.measured,
            "holds": self.holds,
            "rule": self.target.rule.text,
            "cases": {"counted": counts, "of": cases},
            "why": self.claim.why,
            "seconds": round(sum(entry["seconds"] for entry in self.entries), 1),
            "load": max((entry["load"] for entry in self.entries if "load" in entry), default=None),
            "days": days[:1] + days[1:][-1:],
            "drawings": max((row.get("runs", 1) for row in self.rows), default=0),
            "quick": self.quick,
            "skipped": self.skipped,
            "machine": {**machine(), "cpu": ", ".join(sorted({entry["cpu"] for entry in self.entries}))},
            "published": [dict(row) for row in self.target.published],
            "rows": [dict(row) for row in self.rows],
        }


def folder_of(target: Target, out: Path) -> Path:
    return out / target.paper / target.name


def cells_of(target: Target, context: Context, out: Path) -> Cells:
    """The measured cells of a target: its own, or those of the target that it reads."""
    return Cells(out / target.paper / (target.reads or target.name), context)


def expected_seconds(target: Target, context: Context, out: Path) -> float:
    """About how long what is not yet measured will take."""
    return cells_of(target, context, out).expected(target.planned(context))


def reproduce(target: Target, context: Context, out: Path, watch: Watcher = lambda _: None) -> Reproduction:
    """Measure what is not yet measured, and write the target's folder."""
    stored, cells = cells_of(target, context, out), target.planned(context)
    for at, cell in enumerate(cells):
        known = stored.get(cell) is not None
        watch(Progress(target, cell, known, at, len(cells), stored.expected(cells[at:])))
        if not known:
            began = time.perf_counter()
            values = cell.measure()
            stored.add(cell, values, time.perf_counter() - began)
    watch(Progress(target, None, True, len(cells), len(cells), 0.0))
    # From disk, so that a first run and a resumed one judge the very same numbers.
    entries = [entry for entry in (stored.entry(cell) for cell in cells) if entry is not None]
    measured = [{**entry["key"], **entry["values"]} for entry in entries]
    rows: Rows = target.table(over_seeds(measured, cells[0].key)) if measured else ()
    claim = target.claim(rows) if measured else _without_data(target)
    found = Reproduction(target, claim, rows, entries, context.quick, context.missing(target.sets))
    _write(found, folder_of(target, out))
    return found


def _without_data(target: Target) -> Claim:
    wanted = ", ".join(target.sets)
    return Claim("not compared", "nothing", f"none of its data sets is at hand ({wanted})")


def _write(found: Reproduction, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fields = list(dict.fromkeys(name for row in found.rows for name in row))
    with (folder / TABLE).open("w", newline="") as file:
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows({name: _shown(value) for name, value in row.items()} for row in found.rows)
    if found.rows:
        drawing = found.target.drawn(found.rows)
        (folder / PLOT).write_text(drawing)
        try:
            (folder / PICTURE).write_bytes(png_of(drawing))
        except MissingExtra:
            (folder / PICTURE).unlink(missing_ok=True)  # better no picture than one of an earlier run
    (folder / CLAIM).write_text(json.dumps(plain(found.to_dict()), indent=2, allow_nan=False) + "\n")


def _shown(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def machine() -> dict[str, Any]:
    """Where and with what something was measured: processor, cores, and versions of what counts."""
    cpuinfo = Path("/proc/cpuinfo")  # Linux; elsewhere the platform's own name has to do
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    return {
        "cpu": next(named, platform.processor() or platform.machine()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
