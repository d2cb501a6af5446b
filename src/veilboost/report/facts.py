"""The content of a run's report as plain data in one JSON file: its parties, its steps, its model."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from veilboost.config import TrainingConfig
from veilboost.errors import MissingShare, UnreadableFile
from veilboost.model.explain import describe, importance, importance_by_party
from veilboost.model.explanation import Explanation
from veilboost.model.joined import JoinedModel, join
from veilboost.model.share import ModelShare
from veilboost.model.store import ONCE_SEEDED
from veilboost.privacy.statement import Noise
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.vertical.messages import BeginRound, EndTraining, StatisticsRequest
from veilboost.report.contributions import sample
from veilboost.report.values import plain
from veilboost.types import PartyName
from veilboost.wire.message import Message
from veilboost.wire.transcript import Direction, Entry

FILE = "result.json"
_FORMAT = "veilboost-result"
_VERSION = 2  # 2: protections are those of the run's own noise
SIMULATED = "veilboost simulate"
_DEFAULTS = ("curves", "curve_metrics", "round_seconds", "steps", "waiting", "evaluation", "findings", "model", "note")
Kind = Literal["alignment", "round", "level", "end", "other"]
ALIGNING, SETTING_UP, OPENING, ENDING = "aligning rows", "setting up", "opening rounds", "ending"
KIND = "total_gain"  # the kind of importance that adds up: a party's share is the sum over its columns


@dataclass(frozen=True)
class Facts:
    """One training run.

    Attributes
    ----------
    settings
        The settings of the run, by display name.
    parties
        Role, columns and rows of each party, if known.
    quality
        The metric of each model: one party alone, the federation, pooled data.
    curves
        Points (round, metric) by the rows they were measured on.
    curve_metrics
        The metric of a curve, by the same rows, if it is not `metric`.
    cost
        Totals by display name: (number, unit), with the unit s, B, MB or none.
    steps
        Step, seconds, and bytes sent by each party.
    waiting
        Seconds that the driver waited for each other party.
    exchanges
        The messages exchanged, as `Exchange.to_dict`.
    privacy
        The result of `privacy.spending` for each party.
    evaluation
        The evaluation of the scores of held-out rows, as `Evaluation.to_dict`; None without one.
    findings
        The findings of an audit, as `Finding.to_dict`; None without an audit.
    model
        Shape, and importance by party and column; None if unknown.
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
    curve_metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    round_seconds: Sequence[float] = ()
    steps: Sequence[Mapping[str, Any]] = ()
    waiting: Mapping[str, float] = field(default_factory=dict[str, Any])
    evaluation: Mapping[str, Any] | None = None
    findings: Sequence[Mapping[str, Any]] | None = None
    model: Mapping[str, Any] | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return plain({"format": _FORMAT, "version": _VERSION, **asdict(self)})

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_facts(file: Path) -> Facts:
    """Read a file that `Facts.save` wrote; raises `UnreadableFile` for anything else."""
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


# --- time and bytes: a transcript divided into alignment, setup, rounds and levels --------------------------------


@dataclass
class Step:
    """A step of a run. `seconds` count from its first message to the first of another step, summed over all rounds."""

    name: str
    seconds: float = 0.0
    requests: int = 0
    bytes_sent: dict[PartyName, int] = field(default_factory=dict[PartyName, int])

    def to_dict(self) -> dict[str, Any]:
        return {"step": self.name, "seconds": self.seconds, "requests": self.requests, "bytes": self.bytes_sent}


@dataclass(frozen=True)
class Course:
    """The steps of a run in order of first occurrence, and how long the driver waited for each party."""

    steps: list[Step]
    waiting: dict[PartyName, float]


def kind_of(messages: Iterable[type[Message]], alignment: Iterable[type[Message]] = ()) -> Callable[[str], Kind]:
    """A function that maps a message's name to its kind of step."""
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
    """Divide one party's transcript into steps.

    Levels are counted, not read: every statistics request to a party is its next level. In protocols without
    levels (horizontal ones) each type of request is its own step.

    Parameters
    ----------
    asks
        Which messages are requests: those that `owner` sent, if it is the driver, or those that it received.
    """
    found: dict[str, Step] = {}
    waiting: dict[PartyName, float] = {}
    level: dict[PartyName, int] = {}
    at: dict[PartyName, str] = {}
    unanswered: defaultdict[PartyName, deque[str]] = defaultdict(deque)  # several, if requests were sent together
    requested: dict[PartyName, float] = {}
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
            unanswered[entry.peer].append(current)
            requested[entry.peer] = entry.when
        else:
            current = unanswered[entry.peer].popleft() if unanswered[entry.peer] else at.get(entry.peer, current)
            if entry.peer in requested and asks == "sent":
                waiting[entry.peer] = waiting.get(entry.peer, 0.0) + max(entry.when - requested.pop(entry.peer), 0.0)
        step = found.setdefault(current, Step(current))
        step.requests += entry.direction == asks
        sender = owner if entry.direction == "sent" else entry.peer
        step.bytes_sent[sender] = step.bytes_sent.get(sender, 0) + entry.size
    return Course(_ordered(list(found.values())), waiting)


def _step(entry: Entry, kind: Kind, level: dict[PartyName, int], current: str | None, leveled: bool) -> str:
    if kind == "alignment" or entry.message in {"BeginAlignment", "NextBatch", "EndAlignment"}:
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
    """Sort levels by depth: a shallow first tree must not move level 2 behind later steps."""
    levels = sorted((step for step in steps if step.name.startswith("level ")), key=lambda s: int(s.name[6:]))
    queue = iter(levels)
    return [next(queue) if step.name.startswith("level ") else step for step in steps]


def training_facts(config: TrainingConfig) -> dict[str, Any]:
    """The main parameters of boosting, and those of the protocol."""
    names = (
        "objective",
        "n_estimators",
        "max_depth",
        "learning_rate",
        "max_bin",
        "reg_lambda",
        "subsample",
        "random_state",
    )
    return {name: getattr(config, name) for name in names} | dict(config.options)


# --- the model ----------------------------------------------------------------------------------------------------


def model_facts(joined: JoinedModel, explained: Explanation | None = None) -> dict[str, Any]:
    """Facts about a model whose shares are all available, and the explanation of some rows."""
    about = describe(joined)
    return {
        **{name: about[name] for name in ("trees", "depth", "leaves", "sha256", "splits")},
        "importance_by_party": dict(importance_by_party(joined, KIND)),
        "importance_by_column": [item._asdict() for item in importance(joined, KIND)],
        "contributions": [] if explained is None else sample(explained),
    }


def share_facts(shares: Mapping[PartyName, ModelShare]) -> dict[str, Any] | None:
    """Facts from the available shares: everything, the shape of the trees, or how often columns split."""
    if not shares:
        return None
    try:
        return model_facts(join(shares))
    except MissingShare:
        pass
    found: dict[str, Any] = {"splits_by_column": [each for share in shares.values() for each in _splits(share)]}
    skeleton = next((share.skeleton for share in shares.values() if share.skeleton is not None), None)
    if skeleton is None:
        return found
    gains, splits = np.zeros(len(skeleton.parties)), np.zeros(len(skeleton.parties), dtype=np.int64)
    for tree in skeleton.trees:
        inner = np.flatnonzero(tree.owner >= 0)
        np.add.at(gains, tree.owner[inner], tree.gain[inner])
        np.add.at(splits, tree.owner[inner], 1)
    relative = gains / gains.sum() if gains.sum() > 0 else gains
    return found | {
        "trees": len(skeleton.trees),
        "depth": max((tree.depth for tree in skeleton.trees), default=0),
        "leaves": sum(int((tree.owner < 0).sum()) for tree in skeleton.trees),
        "splits": dict(zip(skeleton.parties, splits.tolist(), strict=True)),
        "importance_by_party": dict(zip(skeleton.parties, relative.tolist(), strict=True)),
    }


def _splits(share: ModelShare) -> list[dict[str, Any]]:
    counts = np.bincount(share.records.feature, minlength=len(share.columns))
    return [
        {
            "party": share.party,
            "column": info.name if share.share_names else f"{share.party}#{at + 1}",
            "splits": int(counts[at]),
        }
        for at, info in enumerate(share.columns)
    ]
