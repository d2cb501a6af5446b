"""A reproduction's folder as a page: every table and figure of a paper beside what was measured, with a verdict."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from markupsafe import Markup

from veilboost.errors import UnreadableFile
from veilboost.report.pages import render
from veilboost.report.values import seconds_text

TABLE, PLOT, CLAIM = "table.csv", "plot.svg", "claim.json"
_HOLDS = {"yes": "holds", "partly": "holds partly", "no": "does not hold", "open": "not measured"}
_KEYS = frozenset(("paper", "target", "title", "reported", "measured", "holds", "why", "seconds"))
_SPACE = "{http://www.w3.org/2000/svg}"
_ELEMENTS = frozenset(
    ("svg", "title", "desc", "g", "rect", "line", "polyline", "polygon", "circle", "text", "tspan", "path")
)
_LARGEST_PLOT, _MOST_ROWS, _LONGEST = 200_000, 200, 60


@dataclass(frozen=True)
class Measured:
    """One table or figure as it was measured. `plot` is SVG, empty where there is none."""

    claim: Mapping[str, Any]
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    plot: str

    @property
    def title(self) -> str:
        """Table 3: AUC of six methods."""
        return f"{str(self.claim['target']).replace('-', ' ').capitalize()}: {self.claim['title']}"

    @property
    def anchor(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.claim['paper']} {self.claim['target']}".lower())

    @property
    def drawing(self) -> Markup:
        return Markup(self.plot)  # noqa: S704 - `_read_plot` let nothing but shapes and text pass

    @property
    def verdict(self) -> str:
        return _HOLDS.get(self.claim["holds"], str(self.claim["holds"]))

    @property
    def shown_rows(self) -> list[list[str]]:
        return [[_short(cell) for cell in row] for row in self.rows[:_MOST_ROWS]]

    @property
    def how(self) -> str:
        """How long it took, how much was done, and on which machine."""
        machine: Any = self.claim.get("machine") or {}
        about = machine if isinstance(machine, str) else ", ".join(_facts_of(cast(Mapping[str, Any], machine)))
        listed = [f"Measured in {seconds_text(float(self.claim['seconds']))}"]
        listed += ["with fewer repetitions or rows than the paper (--quick)"] if self.claim.get("quick") else []
        listed += [f"on {about}"] if about else []
        skipped = self.claim.get("skipped")
        return "; ".join(listed) + (f". Data sets not at hand: {', '.join(skipped)}." if skipped else ".")


def read_reproduction(folder: Path) -> list[Measured]:
    """All targets below a folder, paper by paper; empty where there are none."""
    return [_read(file.parent) for file in sorted(folder.rglob(CLAIM), key=_place)]


def reproduction_page(targets: Sequence[Measured]) -> str:
    """One file of HTML."""
    papers: dict[str, list[Measured]] = {}
    for target in targets:
        papers.setdefault(str(target.claim["paper"]), []).append(target)
    return render("reproduction.html", Path(__file__).parent / "templates", targets=targets, papers=papers)


def _facts_of(machine: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key, value in machine.items():
        if isinstance(value, Mapping):
            found += [f"{name} {each}" for name, each in cast(Mapping[str, Any], value).items() if each is not None]
        elif value is not None:
            found.append(str(value) if key == "cpu" else f"{key} {value}")
    return found


def _short(cell: str) -> str:
    """A curve in a cell is summarised by its length and its end; numbers need no more than five digits."""
    if cell.startswith("["):
        try:
            values: Any = json.loads(cell)
            return f"{len(values)} values, the last {values[-1]:.4g}"
        except (ValueError, IndexError, TypeError):
            pass
    try:
        number = float(cell)
    except ValueError:
        return cell if len(cell) <= _LONGEST else f"{cell[: _LONGEST - 1]}…"
    return cell if number.is_integer() and len(cell) < 8 else f"{number:.5g}"


def _read(folder: Path) -> Measured:
    try:
        claim: Any = json.loads((folder / CLAIM).read_text(encoding="utf-8"))
        absent = _KEYS - claim.keys()
    except (OSError, ValueError, AttributeError):
        raise UnreadableFile(f"{folder / CLAIM} is not the claim of a reproduction") from None
    if absent:
        raise UnreadableFile(f"{folder / CLAIM} does not say {', '.join(sorted(absent))}", "reproduce the target again")
    headers, rows = _read_table(folder / TABLE)
    return Measured(claim, headers, rows, _read_plot(folder / PLOT))


def _read_table(file: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            lines = [line for line in csv.reader(opened) if line]
    except OSError:
        return [], []
    except (ValueError, csv.Error):
        raise UnreadableFile(f"{file} is not a table") from None
    if any(len(line) != len(lines[0]) for line in lines):
        raise UnreadableFile(f"{file} is not a table: its lines differ in length")
    return (lines[0], lines[1:]) if lines else ([], [])


def _read_plot(file: Path) -> str:
    """A drawing that is only a drawing: a page must not take over what someone put into a folder.

    Raises
    ------
    UnreadableFile
        It is none, or holds more than shapes and text.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError):
        raise UnreadableFile(f"{file} cannot be read") from None
    refusal = UnreadableFile(f"{file} is not one of our drawings", "reproduce the target again")
    if len(text) > _LARGEST_PLOT or "<!" in text or "<?" in text:
        raise refusal
    try:
        # Without declarations there are no entities to expand.
        root = ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError:
        raise refusal from None
    for element in root.iter():
        plain_name = element.tag.removeprefix(_SPACE)
        if plain_name not in _ELEMENTS or any(key.startswith("on") or "href" in key for key in element.attrib):
            raise refusal
    return text


def _place(file: Path) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Paper by paper, figure 10 behind figure 9."""
    words_of = file.parent.name.replace("_", "-").split("-")
    return str(file.parent.parent), tuple((int(word), "") if word.isdigit() else (-1, word) for word in words_of)
