"""Runs targets: cells one after the other, each stored at once, then the table, the plot and the claim."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from papers.cells import Cells
from papers.context import Context
from papers.machine import machine
from papers.pictures import png_of
from papers.target import Cell, Claim, Row, Target
from veilboost.errors import MissingExtra
from veilboost.report.values import plain

TABLE, PLOT, PICTURE, CLAIM = "table.csv", "plot.svg", "plot.png", "claim.json"


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
    rows: Sequence[Row]
    seconds: float
    quick: bool
    skipped: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        return {
            "paper": self.target.paper,
            "target": self.target.name,
            "title": self.target.title,
            **asdict(self.claim),
            "seconds": round(self.seconds, 1),
            "quick": self.quick,
            "skipped": list(self.skipped),
            "machine": machine(),
            "published": [dict(row) for row in self.target.published],
            "rows": [dict(row) for row in self.rows],
        }


def folder_of(target: Target, out: Path) -> Path:
    return out / target.paper / target.name


def expected_seconds(target: Target, context: Context, out: Path) -> float:
    """About how long what is not yet measured will take."""
    stored = Cells(folder_of(target, out), context.quick)
    return sum(cell.seconds for cell in target.cells(context) if stored.get(cell.key) is None)


def reproduce(target: Target, context: Context, out: Path, watch: Watcher | None = None) -> Reproduction:
    """Measure what is not yet measured, and write the target's folder."""
    folder = folder_of(target, out)
    stored, cells = Cells(folder, context.quick), target.cells(context)
    for at, cell in enumerate(cells):
        known = stored.get(cell.key) is not None
        left = [each.seconds for each in cells[at:] if stored.get(each.key) is None]
        if watch is not None:
            watch(Progress(target, cell, known, at, len(cells), sum(left)))
        if not known:
            began = time.perf_counter()
            values = cell.measure()
            stored.add(cell.key, values, time.perf_counter() - began)
    if watch is not None:
        watch(Progress(target, None, True, len(cells), len(cells), 0.0))
    # From disk, so that a first run and a resumed one judge the very same numbers.
    measured = [row for row in (stored.get(cell.key) for cell in cells) if row is not None]
    rows = target.table(measured)
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
        drawing = found.target.plot(found.rows)
        (folder / PLOT).write_text(drawing)
        try:
            (folder / PICTURE).write_bytes(png_of(drawing))
        except MissingExtra:
            (folder / PICTURE).unlink(missing_ok=True)  # better no picture than one of an earlier run
    (folder / CLAIM).write_text(json.dumps(plain(found.to_dict()), indent=2, allow_nan=False) + "\n")


def _shown(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value
