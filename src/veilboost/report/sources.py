"""What a folder holds, and the page that is made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veilboost.errors import UnknownRun, UnreadableFile
from veilboost.report.facts import FILE, load_facts
from veilboost.report.pages import run_page
from veilboost.report.runs import facts_of_runs

AUDIT = "audit.json"
_STATUS = "status.json"
_KEYS = ("attack", "adversary", "victim", "data", "metric", "value", "low", "high", "baseline", "seconds", "sentence")


@dataclass(frozen=True)
class Report:
    """A page, and what it says as plain data."""

    title: str
    html: str
    data: Mapping[str, Any]


def make_report(paths: Sequence[Path], audit: Path | None = None) -> Report:
    """Look at what the paths hold: run folders of one job, a folder that holds them, or a result.

    Parameters
    ----------
    audit
        What `veilboost audit --json` printed for this run; by default audit.json beside the run, where there is one.

    Raises
    ------
    UnknownRun
        There is nothing there to report on, or more than one job.
    UnreadableFile
        A file is damaged.
    """
    findings = _findings(audit, paths[0])
    result = paths[0] if paths[0].name == FILE else paths[0] / FILE
    if len(paths) == 1 and result.is_file():
        facts = load_facts(result)
        facts = facts if findings is None else replace(facts, findings=findings)
    else:
        facts = facts_of_runs([run for path in paths for run in _runs_in(path)], findings)
    return Report(facts.title, run_page(facts), facts.to_dict())


def _runs_in(path: Path) -> list[Path]:
    """A run's folder itself, or the runs one or two folders below."""
    if (path / _STATUS).exists():
        return [path]
    found = sorted({file.parent for pattern in ("*", "*/*") for file in path.glob(f"{pattern}/{_STATUS}")})
    if not found:
        raise UnknownRun(
            f"{path} holds neither a run nor a result",
            "name a run's folder, or what demo --folder or simulate --out wrote",
        )
    names = {run.name for run in found}
    if len(names) > 1:
        raise UnknownRun(f"{path} holds several jobs: {', '.join(sorted(names))}", "name the folder of one of them")
    return found


def _findings(audit: Path | None, beside: Path) -> list[Mapping[str, Any]] | None:
    file = beside / AUDIT if audit is None else audit
    if audit is None and not file.is_file():
        return None
    refusal = UnreadableFile(f"{file} is not what an audit found", "veilboost audit --json prints it")
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
        listed: list[Mapping[str, Any]] = [{**each, "verdict": str(each["verdict"])} for each in found["findings"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise refusal from None
    if any(key not in each for each in listed for key in _KEYS):
        raise refusal
    return listed
