"""What a page tells of a run, as plain data: made from run folders or by a simulation, kept as one JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from veilboost.errors import UnreadableFile
from veilboost.model.store import ONCE_SEEDED
from veilboost.privacy.statement import Noise
from veilboost.protocols.registry import protocol_named
from veilboost.report.values import plain

FILE = "result.json"
_FORMAT = "veilboost-result"
_VERSION = 2  # 2: protections are those of the run's own noise
SIMULATED = "veilboost simulate"
_DEFAULTS = ("curves", "round_seconds", "steps", "waiting", "findings", "model", "note")


@dataclass(frozen=True)
class Facts:
    """One training run.

    Attributes
    ----------
    settings
        What was run, by names for people.
    parties
        Role, columns and rows of each party, as far as they are known.
    quality
        The metric by who had what: alone, together, all columns in one hand.
    curves
        Points (round, metric) by which rows they were measured on.
    cost
        Totals, by names for people: (number, unit), a unit of s, B, MB or none.
    steps
        Where time and bytes went: step, seconds, and bytes sent by each party.
    waiting
        Seconds that the driving party waited for each other one.
    exchanges
        What crossed, as `Exchange.to_dict`.
    privacy
        What `privacy.spending` says of each party.
    findings
        What an audit found, as `Finding.to_dict`; None where none was made.
    model
        Shape, and importance by party and column; None where it is not known.
    note
        What is missing, and how to get it.
    """

    title: str
    source: str
    protocol: str
    summary: str
    settings: Mapping[str, Any]
    parties: Mapping[str, Mapping[str, Any]]
    metric: str
    higher_is_better: bool
    quality: Mapping[str, float]
    cost: Mapping[str, tuple[float, str]]
    bytes_sent: Mapping[str, int]
    exchanges: Sequence[Mapping[str, Any]]
    learned: Mapping[str, Sequence[str]]
    privacy: Mapping[str, Mapping[str, Any]]
    protections: Sequence[Mapping[str, Any]]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict[str, Any])
    round_seconds: Sequence[float] = ()
    steps: Sequence[Mapping[str, Any]] = ()
    waiting: Mapping[str, float] = field(default_factory=dict[str, Any])
    findings: Sequence[Mapping[str, Any]] | None = None
    model: Mapping[str, Any] | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return plain({"format": _FORMAT, "version": _VERSION, **asdict(self)})

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_facts(file: Path) -> Facts:
    """Read what `Facts.save` wrote.

    Raises
    ------
    UnreadableFile
        It cannot be read, or something else wrote it.
    """
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise UnreadableFile(f"{file} cannot be read as JSON") from None
    known = {each.name for each in fields(Facts)}
    if not isinstance(found, dict) or cast(dict[str, Any], found).get("format") != _FORMAT:
        raise UnreadableFile(f"{file} is not the result of a run", "simulate with --out DIR writes one")
    given = {key: value for key, value in cast(dict[str, Any], found).items() if key in known}
    if found["version"] not in (1, _VERSION) or known - given.keys() - {*_DEFAULTS}:
        raise UnreadableFile(f"{file} was written by another version", "simulate again with --out DIR")
    facts = Facts(**given)
    if found["version"] == 1 and facts.source == SIMULATED and facts.protocol in ONCE_SEEDED:
        claims = protocol_named(facts.protocol).statement.given(Noise.UNKNOWN)
        note = f"{facts.note} The model is not protected: {Noise.UNKNOWN.warning}.".strip()
        facts = replace(facts, protections=[each.to_dict() for each in claims.protections], note=note)
    return facts
