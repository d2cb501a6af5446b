"""Reports from folders: a saved result, or the run folders of one or more parties of a job."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilboost.align.api import all_alignments
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.errors import UnknownRun, UnreadableFile, VeilBoostError
from veilboost.model.share import ModelShare
from veilboost.party.approvals import approval_text
from veilboost.party.job import Job, load_job
from veilboost.party.runs import RunFolder, read_entries, read_exchanges
from veilboost.privacy.accountant import spending
from veilboost.privacy.event import event_from_dict
from veilboost.privacy.statement import Noise
from veilboost.report.evaluation import FILE as EVALUATION
from veilboost.report.evaluation import load_evaluation
from veilboost.report.facts import FILE, Course, Facts, course, kind_of, load_facts, share_facts, training_facts
from veilboost.types import PartyName
from veilboost.wire.transcript import Exchange, shown_to

AUDIT, _STATUS = "audit.json", "status.json"
_DRIVERS = ("active", "server")
_KEYS = ("attack", "adversary", "victim", "data", "metric", "value", "low", "high", "baseline", "seconds", "sentence")


def facts_of_runs(folders: Sequence[Path], findings: Sequence[Mapping[str, Any]] | None = None) -> Facts:
    """The facts of one job from run folders of one or more parties; raises `UnknownRun` if they do not match."""
    runs = _by_party(folders)
    job = load_job(next(iter(runs.values())).path / "job.toml")
    spec, roles = job.spec, {name: job.role_of(name) for name in job.parties}
    every = _exchanges(runs.values())
    driver = runs.get(job.driver) or next(iter(runs.values()))
    shares = {name: run.load_share() for name, run in runs.items() if run.has_share}
    noise = next((share.skeleton.noise for share in shares.values() if share.skeleton is not None), Noise.SYSTEM)
    metrics = driver.metrics
    metric = next((each.metric for each in reversed(metrics) if each.metric), None) or _metric(job, shares)
    steps = _course(driver, job)
    measured = [(float(each.number + 1), float(each.validation)) for each in metrics if each.validation is not None]
    sent = dict.fromkeys(roles, 0)
    for each in every:
        sent[each.sender] = sent.get(each.sender, 0) + each.size
    seconds = [each.seconds for each in metrics]
    status = driver.status
    missing = [name for name in roles if name not in runs]
    about: dict[str, Any] = {"state": status.get("state", "unknown"), "rows in common": status.get("rows")}
    if spec.setting == "horizontal":
        about["participants"] = len(job.owners)
        if driver.membership:
            about["participants lost or returned"] = "; ".join(map(str, driver.membership))
    else:
        about |= {"alignment": job.alignment, "share of rows for validation": job.validation}
    for name, run in runs.items():
        if (approval := approval_text(run)) is not None:
            about[f"approval at {name}"] = f"{approval} (veilboost jobs show verifies the signature)"
    return Facts(
        title=f"The job {job.name}",
        source=f"run folders of {', '.join(runs)}",
        protocol=spec.name,
        summary=spec.summary,
        settings=about | training_facts(job.training),
        parties={
            name: {"role": role, "columns": len(shares[name].columns) if name in shares else None}
            for name, role in roles.items()
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
        learned={name: shown_to(name, every) for name in roles},
        privacy={name: spent for name, run in runs.items() if (spent := _spent(run)) is not None},
        protections=[each.to_dict() for each in spec.statement.given(noise).protections],
        findings=findings,
        model=share_facts(shares),
        note=_note(missing, measured, runs, noise),
    )


def _by_party(folders: Sequence[Path]) -> dict[PartyName, RunFolder]:
    runs: dict[PartyName, RunFolder] = {}
    sessions: set[str] = set()
    for folder in folders:
        run = RunFolder(folder)
        party = run.status.get("party")
        if not isinstance(party, str):
            raise UnknownRun(f"{folder} is not a run folder")
        sessions.add(str(run.status.get("session")))
        if party in runs or len(sessions) > 1:
            raise UnknownRun(
                "these folders belong to different runs", "name the run folders of one job, one for each party"
            )
        runs[party] = run
    return dict(sorted(runs.items(), key=lambda item: item[1].status.get("role") not in _DRIVERS))


def _exchanges(runs: Iterable[RunFolder]) -> list[Exchange]:
    """The messages exchanged. Sender and receiver both record a message; it counts once."""
    found: dict[tuple[PartyName, PartyName, str], Exchange] = {}
    for run in runs:
        with suppress(UnreadableFile):  # the job has record = "none"
            for each in read_exchanges(run.path)[1]:
                found.setdefault((each.sender, each.receiver, each.message), each)
    return list(found.values())


def _course(run: RunFolder, job: Job) -> Course:
    status = run.status
    try:
        entries = list(read_entries(run.path))
    except UnreadableFile:
        return Course([], {})
    asks = "sent" if status.get("role") in _DRIVERS else "received"
    aligning = () if job.spec.setting == "horizontal" else all_alignments()[job.alignment].messages
    return course(str(status.get("party")), entries, kind_of(job.spec.messages, aligning), asks)


def _metric(job: Job, shares: Mapping[PartyName, ModelShare]) -> str:
    """The metric of a run that measured nothing."""
    if job.training.eval_metric != "auto":
        return job.training.eval_metric
    skeleton = next((share.skeleton for share in shares.values() if share.skeleton is not None), None)
    objective = job.training.objective if skeleton is None else skeleton.objective
    classes = 2 if skeleton is None else max(2, skeleton.trees_per_round)
    return "auc" if objective == "auto" else make_objective(objective, classes=classes).default_metric


def _spent(run: RunFolder) -> dict[str, Any] | None:
    try:
        kept = run.ledger
        return spending([event_from_dict(fields) for fields in kept["events"]], float(kept["delta"]))
    except UnknownRun:  # the job has not finished, or this party keeps no ledger
        return None
    except (VeilBoostError, KeyError, TypeError, ValueError) as error:
        raise UnknownRun(
            f"the ledger of {run.path} is damaged", "`veilboost ledger show` reads the party's own"
        ) from error


def _note(
    missing: Sequence[PartyName], measured: Sequence[Any], runs: Mapping[PartyName, RunFolder], noise: Noise
) -> str:
    notes = [] if noise.warning is None else [f"The model is not protected: {noise.warning}."]
    if missing:
        notes.append(
            f"Made from the records of {', '.join(runs)}. Messages that only {', '.join(missing)} recorded are "
            "missing: name their run folders too, if their owners agree."
        )
    if not measured:
        notes.append(
            "The job has no validation rows, so there is no learning curve: set validation = 0.2 in the job file."
        )
    return " ".join(notes)


@dataclass(frozen=True)
class Report:
    """A page and its content as plain data."""

    title: str
    html: str
    data: Mapping[str, Any]


def make_report(paths: Sequence[Path], audit: Path | None = None, evaluation: Path | None = None) -> Report:
    """Make a report from run folders of one job, a folder that holds them, or a saved result.

    `audit` is the output of `veilboost audit --json` for this run; by default audit.json in the first path, if present.
    `evaluation` is the same of `veilboost evaluate --json`, in evaluation.json.
    """
    from veilboost.report.pages import run_page

    findings = _findings(audit, paths[0])
    result = paths[0] if paths[0].name == FILE else paths[0] / FILE
    if len(paths) == 1 and result.is_file():
        facts = load_facts(result)
        facts = facts if findings is None else replace(facts, findings=findings)
    else:
        facts = facts_of_runs([run for path in paths for run in _runs_in(path)], findings)
    file = paths[0] / EVALUATION if evaluation is None else evaluation
    if evaluation is not None or file.is_file():
        facts = replace(facts, evaluation=load_evaluation(file))
    return Report(facts.title, run_page(facts), facts.to_dict())


def _runs_in(path: Path) -> list[Path]:
    """The run folder itself, or the run folders one or two levels below."""
    if (path / _STATUS).exists():
        return [path]
    found = sorted({file.parent for pattern in ("*", "*/*") for file in path.glob(f"{pattern}/{_STATUS}")})
    if not found:
        raise UnknownRun(
            f"{path} holds neither a run nor a result",
            "name a run folder, or a folder that demo --folder or simulate --out wrote",
        )
    names = {run.name for run in found}
    if len(names) > 1:
        raise UnknownRun(f"{path} holds several jobs: {', '.join(sorted(names))}", "name the folder of one of them")
    return found


def _findings(audit: Path | None, beside: Path) -> list[Mapping[str, Any]] | None:
    file = beside / AUDIT if audit is None else audit
    return None if audit is None and not file.is_file() else read_findings(file)


def read_findings(file: Path) -> list[Mapping[str, Any]]:
    """The findings of an audit; raises `UnreadableFile` if the file has none."""
    refusal = UnreadableFile(f"{file} holds no audit findings", "write it with veilboost audit --json")
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        listed: list[Mapping[str, Any]] = [{**each, "verdict": str(each["verdict"])} for each in found["findings"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise refusal from None
    if any(key not in each for each in listed for key in _KEYS):
        raise refusal
    return listed
