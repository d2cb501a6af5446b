"""Facts from run folders: those of all parties of a job, or as many as are at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilboost.align.api import all_alignments
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.errors import UnknownRun, UnreadableFile, VeilBoostError
from veilboost.model.part import Part
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder, read_entries, read_exchanges
from veilboost.privacy.accountant import spending
from veilboost.privacy.event import event_from_dict
from veilboost.privacy.statement import Noise, Statement
from veilboost.report.facts import Facts
from veilboost.report.model import part_facts
from veilboost.report.steps import Course, course, kind_of
from veilboost.types import PartyName
from veilboost.wire.message import Message
from veilboost.wire.transcript import Exchange, shown_to

_DRIVERS = ("active", "server")


@dataclass(frozen=True)
class _Job:
    """What vertical and horizontal jobs have in common for a reader."""

    name: str
    driver: PartyName
    roles: Mapping[PartyName, str]
    protocol: str
    summary: str
    messages: Sequence[type[Message]]
    alignment: Sequence[type[Message]]
    statement: Statement
    training: TrainingConfig
    settings: Mapping[str, Any]


def facts_of_runs(folders: Sequence[Path], findings: Sequence[Mapping[str, Any]] | None = None) -> Facts:
    """One job, from the folders of one or more of its parties.

    Raises
    ------
    UnknownRun
        A folder is none of a run, or folders are of different jobs.
    """
    runs = _by_party(folders)
    job = _read_job(next(iter(runs.values())))
    every = _exchanges(runs.values())
    driver = runs.get(job.driver) or next(iter(runs.values()))
    parts = {name: run.load_part() for name, run in runs.items() if (run.path / "part" / "manifest.json").exists()}
    noise = next((part.skeleton.noise for part in parts.values() if part.skeleton is not None), Noise.SYSTEM)
    metrics = _metrics(driver)
    metric = _metric(job, parts)
    steps = _course(driver, job)
    measured = [
        (float(each["number"]) + 1, float(each["validation"])) for each in metrics if each["validation"] is not None
    ]
    sent = dict.fromkeys(job.roles, 0)
    for each in every:
        sent[each.sender] = sent.get(each.sender, 0) + each.size
    seconds = [float(each["seconds"]) for each in metrics]
    status = driver.status
    missing = [name for name in job.roles if name not in runs]
    return Facts(
        title=f"The job {job.name}",
        source=f"run folders of {', '.join(runs)}",
        protocol=job.protocol,
        summary=job.summary,
        settings={"state": status.get("state", "unknown"), "rows in common": status.get("rows")} | dict(job.settings),
        parties={
            name: {"role": role, "columns": len(parts[name].columns) if name in parts else None}
            for name, role in job.roles.items()
        },
        metric=metric,
        higher_is_better=metric_named(metric).higher_is_better,
        quality={f"together, on validation rows, after {len(measured)} rounds": measured[-1][1]} if measured else {},
        curves={"validation rows": measured} if measured else {},
        round_seconds=seconds,
        cost={
            "all rounds": (sum(seconds), "s"),
            "per round": (sum(seconds) / len(seconds) if seconds else 0.0, "s"),
            "sent": (float(sum(each.size for each in every)), "B"),
            "messages": (float(sum(each.count for each in every)), ""),
        },
        steps=[step.to_dict() for step in steps.steps],
        waiting=steps.waiting,
        bytes_sent=sent,
        exchanges=[each.to_dict() for each in every],
        learned={name: shown_to(name, every) for name in job.roles},
        privacy={name: told for name, run in runs.items() if (told := _spent(run)) is not None},
        protections=[each.to_dict() for each in job.statement.given(noise).protections],
        findings=findings,
        model=part_facts(parts),
        note=_note(missing, measured, runs, noise),
    )


def _by_party(folders: Sequence[Path]) -> dict[PartyName, RunFolder]:
    runs: dict[PartyName, RunFolder] = {}
    sessions: set[str] = set()
    for folder in folders:
        run = RunFolder(folder)
        party = run.status.get("party")
        if not isinstance(party, str):
            raise UnknownRun(f"{folder} is not the folder of a run")
        sessions.add(str(run.status.get("session")))
        if party in runs or len(sessions) > 1:
            raise UnknownRun("these folders are of different runs", "name the folders of one job, one for each party")
        runs[party] = run
    return dict(sorted(runs.items(), key=lambda item: item[1].status.get("role") not in _DRIVERS))


def _read_job(run: RunFolder) -> _Job:
    job = load_job(run.path / "job.toml")
    spec = job.spec
    if spec.setting == "horizontal":
        alignment, about = (), {"participants": len(job.owners)}
    else:
        alignment = all_alignments()[job.alignment].messages
        about = {"alignment": job.alignment, "share of rows for validation": job.validation}
    training = job.training
    return _Job(
        name=job.name,
        driver=job.driver,
        roles={name: job.role_of(name) for name in job.parties},
        protocol=spec.name,
        summary=spec.summary,
        messages=spec.messages,
        alignment=tuple(alignment),
        statement=spec.statement,
        training=training,
        settings=about | training_facts(training),
    )


def training_facts(config: TrainingConfig) -> dict[str, Any]:
    """The parameters that people ask for first, and the protocol's own."""
    names = ("objective", "n_estimators", "max_depth", "learning_rate", "max_bin", "reg_lambda", "subsample", "seed")
    return {name: getattr(config, name) for name in names} | dict(config.options)


def _exchanges(runs: Iterable[RunFolder]) -> list[Exchange]:
    """What crossed. Both ends of a conversation wrote it down: once is enough."""
    found: dict[tuple[PartyName, PartyName, str], Exchange] = {}
    for run in runs:
        with suppress(UnreadableFile):  # the job said record = "none"
            for each in read_exchanges(run.path)[1]:
                found.setdefault((each.sender, each.receiver, each.message), each)
    return list(found.values())


def _course(run: RunFolder, job: _Job) -> Course:
    status = run.status
    try:
        entries = list(read_entries(run.path))
    except UnreadableFile:
        return Course([], {})
    asks = "sent" if status.get("role") in _DRIVERS else "received"
    return course(str(status.get("party")), entries, kind_of(job.messages, job.alignment), asks)


def _metrics(run: RunFolder) -> list[dict[str, Any]]:
    """Round by round; a round that was trained again after an interruption counts once."""
    try:
        lines = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return list({int(each["number"]): each for each in found}.values())
    except OSError:
        return []
    except (ValueError, KeyError, TypeError):
        raise UnreadableFile(f"metrics.jsonl in {run.path} is damaged") from None


def _metric(job: _Job, parts: Mapping[PartyName, Part]) -> str:
    if job.training.eval_metric != "auto":
        return job.training.eval_metric
    skeleton = next((part.skeleton for part in parts.values() if part.skeleton is not None), None)
    objective = job.training.objective if skeleton is None else skeleton.objective
    classes = 2 if skeleton is None else max(2, skeleton.trees_per_round)
    return "auc" if objective == "auto" else make_objective(objective, classes=classes).default_metric


def _spent(run: RunFolder) -> dict[str, Any] | None:
    try:
        kept = run.ledger
        return spending([event_from_dict(fields) for fields in kept["events"]], float(kept["delta"]))
    except UnknownRun:  # the job has not ended, or this party keeps no ledger
        return None
    except (VeilBoostError, KeyError, TypeError, ValueError) as error:
        raise UnknownRun(
            f"the ledger of {run.path} is damaged", "`veilboost ledger show` reads the party's own"
        ) from error


def _note(
    missing: Sequence[PartyName], measured: Sequence[Any], runs: Mapping[PartyName, RunFolder], noise: Noise
) -> str:
    told = [] if noise.warning is None else [f"The model is not protected: {noise.warning}."]
    if missing:
        told.append(
            f"Made from what {', '.join(runs)} wrote down. What only {', '.join(missing)} saw is not in it: "
            "name their run folders too, where their owners agree."
        )
    if not measured:
        told.append("The job kept no rows for validation, so there is no learning curve: set validation = 0.2 in it.")
    return " ".join(told)
