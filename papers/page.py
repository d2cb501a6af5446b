"""A reproduction's folder as a page: every table and figure of a paper beside what was measured, with a verdict."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from veilboost.errors import UnreadableFile
from veilboost.report.page import Cell, Section, document, figure, table, verdict, words
from veilboost.report.units import seconds_text

TABLE, PLOT, CLAIM = "table.csv", "plot.svg", "claim.json"
_HOLDS = {"yes": "holds", "partly": "holds partly", "no": "does not hold", "open": "not measured"}
_SPACE = "{http://www.w3.org/2000/svg}"
_ELEMENTS = frozenset(
    ("svg", "title", "desc", "g", "rect", "line", "polyline", "polygon", "circle", "text", "tspan", "path")
)
_LARGEST_PLOT, _MOST_ROWS, _LONGEST = 200_000, 200, 60


@dataclass(frozen=True)
class Target:
    """One table or figure as it was measured. `plot` is SVG, empty where there is none."""

    claim: Mapping[str, Any]
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    plot: str


def read_reproduction(folder: Path) -> list[Target]:
    """All targets below a folder, paper by paper; empty where there are none."""
    return [_read(file.parent) for file in sorted(folder.rglob(CLAIM), key=_place)]


def reproduction_page(targets: Sequence[Target]) -> str:
    """One file of HTML."""
    papers = list(dict.fromkeys(str(target.claim["paper"]) for target in targets))
    sections = [Section("verdicts", "Claims and verdicts", _overview(targets))]
    for number, paper in enumerate(papers):
        own = [target for target in targets if target.claim["paper"] == paper]
        sections.append(Section(f"paper-{number}", paper, "".join(_article(target) for target in own)))
    return document(
        "What the papers report, and what we measured",
        "Every table and figure that was run, beside the published numbers, with what holds and what does not.",
        sections,
    )


def _overview(targets: Sequence[Target]) -> str:
    rows = [
        (
            Cell(f'<a href="#{_anchor(target)}">{escape(_title(target))}</a>'),
            str(target.claim["paper"]),
            verdict(_HOLDS.get(holds := str(target.claim["holds"]), holds), holds if holds in _HOLDS else "open"),
            str(target.claim["reported"]),
            str(target.claim["measured"]),
        )
        for target in targets
    ]
    return table("Each is shown below", ("table or figure", "paper", "claim", "reported", "measured"), rows)


def _article(target: Target) -> str:
    claim = target.claim
    holds = str(claim["holds"])
    parts = [
        f"<h3>{escape(_title(target))}</h3>",
        f'<p><span class="verdict {escape(holds)}">{escape(_HOLDS.get(holds, holds))}</span>: '
        f"{escape(str(claim['why']))}</p>",
        words(f"The paper reports: {claim['reported']}"),
        words(f"We measured: {claim['measured']}"),
        figure(target.plot, "sheet") if target.plot else "",
        _numbers(target),
        words(_how(claim), "quiet"),
    ]
    return f'<article id="{_anchor(target)}" aria-label="{escape(_title(target))}">{"".join(parts)}</article>'


def _title(target: Target) -> str:
    """Table 3: AUC of six methods."""
    return f"{str(target.claim['target']).replace('-', ' ').capitalize()}: {target.claim['title']}"


def _anchor(target: Target) -> str:
    return re.sub(r"[^a-z0-9]+", "-", f"{target.claim['paper']} {target.claim['target']}".lower())


def _numbers(target: Target) -> str:
    if not target.rows:
        return ""
    shown = [[_short(cell) for cell in row] for row in target.rows[:_MOST_ROWS]]
    left = len(target.rows) - len(shown)
    caption = "As measured" + (f"; {left} more rows are in {TABLE}" if left > 0 else "")
    return table(caption, [header.replace("_", " ") for header in target.headers], shown)


def _how(claim: Mapping[str, Any]) -> str:
    machine: Any = claim.get("machine") or {}
    about = machine if isinstance(machine, str) else ", ".join(_facts_of(cast(Mapping[str, Any], machine)))
    told = [f"Measured in {seconds_text(float(claim['seconds']))}"]
    told += ["with fewer repetitions or rows than the paper (--quick)"] if claim.get("quick") else []
    told += [f"on {about}"] if about else []
    skipped = claim.get("skipped")
    return "; ".join(told) + (f". Data sets not at hand: {', '.join(skipped)}." if skipped else ".")


def _facts_of(machine: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    for key, value in machine.items():
        if isinstance(value, Mapping):
            found += [f"{name} {each}" for name, each in cast(Mapping[str, Any], value).items() if each is not None]
        elif value is not None:
            found.append(str(value) if key == "cpu" else f"{key} {value}")
    return found


def _short(cell: str) -> str:
    """A curve in a cell is told by its length and its end; numbers need no more than five digits."""
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


def _read(folder: Path) -> Target:
    try:
        claim: Any = json.loads((folder / CLAIM).read_text(encoding="utf-8"))
        absent = {"paper", "target", "title", "reported", "measured", "holds", "why", "seconds"} - claim.keys()
    except (OSError, ValueError, AttributeError):
        raise UnreadableFile(f"{folder / CLAIM} is not the claim of a reproduction") from None
    if absent:
        raise UnreadableFile(f"{folder / CLAIM} does not say {', '.join(sorted(absent))}", "reproduce the target again")
    headers, rows = _read_table(folder / TABLE)
    return Target(claim, headers, rows, _read_plot(folder / PLOT))


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
