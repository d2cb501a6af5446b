"""Runs targets: cells one after the other, each stored at once, then the table, the plot and the claim."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from papers.pictures import png_of
from papers.rows import Row, Rows, over_seeds
from papers.target import Cell, Claim, Context, Target
from veilboost.errors import MissingExtra
from veilboost.report.values import plain

CELLS, TABLE, PLOT, PICTURE, CLAIM = "cells.jsonl", "table.csv", "plot.svg", "plot.png", "claim.json"
_PACKAGES = ("veilboost", "numpy", "xgboost-cpu", "scikit-learn")
_VERSION = importlib.metadata.version("veilboost")


class Cells:
    """The measured cells of one target in its folder: one JSON line each, appended as they come.

    Cells of other versions of this package count for nothing; a quick run and a full one share the file, and never each
    other's cells.
    """

    def __init__(self, folder: Path, quick: bool) -> None:
        self._file = folder / CELLS
        self._quick = quick
        self._known: dict[str, dict[str, Any]] = {}
        text = self._file.read_text() if self._file.exists() else ""
        self._torn = bool(text) and not text.endswith("\n")  # by a run that was killed while writing
        for line in text.splitlines():
            self._remember(line)

    def get(self, key: Row) -> Row | None:
        """Key and values of a cell that was measured before, in one."""
        entry = self._known.get(_name(key))
        return None if entry is None else {**entry["key"], **entry["values"]}

    def seconds(self, key: Row) -> float:
        """What a measured cell took."""
        return float(self._known[_name(key)]["seconds"])

    def add(self, key: Row, values: Row, seconds: float) -> None:
        entry = {"version": _VERSION, "quick": self._quick, "key": dict(key), "values": dict(values)}
        line = json.dumps({**entry, "seconds": round(seconds, 3)})
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as opened:
            opened.write(("\n" if self._torn else "") + line + "\n")
        self._torn = False
        self._remember(line)

    def _remember(self, line: str) -> None:
        with suppress(ValueError):  # half a line
            entry = json.loads(line)
            if entry.get("version") == _VERSION and entry["quick"] == self._quick:
                self._known[_name(entry["key"])] = entry


def _name(key: Row) -> str:
    return json.dumps(dict(key), sort_keys=True)


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
    seconds: float
    quick: bool
    skipped: list[str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "paper": self.target.paper,
            "target": self.target.name,
            "title": self.target.title,
            **asdict(self.claim),
            "seconds": round(self.seconds, 1),
            "quick": self.quick,
            "skipped": self.skipped,
            "machine": machine(),
            "published": [dict(row) for row in self.target.published],
            "rows": [dict(row) for row in self.rows],
        }


def folder_of(target: Target, out: Path) -> Path:
    return out / target.paper / target.name


def expected_seconds(target: Target, context: Context, out: Path) -> float:
    """About how long what is not yet measured will take."""
    stored = Cells(folder_of(target, out), context.quick)
    return sum(cell.seconds for cell in target.planned(context) if stored.get(cell.key) is None)


def reproduce(target: Target, context: Context, out: Path, watch: Watcher = lambda _: None) -> Reproduction:
    """Measure what is not yet measured, and write the target's folder."""
    folder = folder_of(target, out)
    stored, cells = Cells(folder, context.quick), target.planned(context)
    for at, cell in enumerate(cells):
        known = stored.get(cell.key) is not None
        left = [each.seconds for each in cells[at:] if stored.get(each.key) is None]
        watch(Progress(target, cell, known, at, len(cells), sum(left)))
        if not known:
            began = time.perf_counter()
            values = cell.measure()
            stored.add(cell.key, values, time.perf_counter() - began)
    watch(Progress(target, None, True, len(cells), len(cells), 0.0))
    # From disk, so that a first run and a resumed one judge the very same numbers.
    measured = [row for row in (stored.get(cell.key) for cell in cells) if row is not None]
    rows: Rows = target.table(over_seeds(measured, cells[0].key)) if measured else ()
    claim = target.claim(rows) if measured else _without_data(target)
    seconds = sum(stored.seconds(cell.key) for cell in cells)
    found = Reproduction(target, claim, rows, seconds, context.quick, context.missing(target.sets))
    _write(found, folder)
    return found


def _without_data(target: Target) -> Claim:
    wanted = ", ".join(target.sets)
    return Claim("not compared", "nothing", "open", f"none of its data sets is at hand ({wanted})")


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
