"""The life of a job in a party's runs folder: its states, and how it is cancelled, parked, ended and expired.

    proposed -> aligning -> training -> finished

A job that stops before is resumable (`parked` if its driver is gone, `cancelled` by its driver, `failed`) or ended
(`ended` by the owner of the table, `expired`). An ended job keeps its transcript and its entries in the ledger; its key
and its trees are removed, and it cannot be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from veilboost.durable import Locks, keeping
from veilboost.errors import (
    DamagedState,
    FolderLocked,
    InvalidParameter,
    JobCancelled,
    NewerFormat,
    NothingToResume,
    StateUnavailable,
    VeilBoostError,
)
from veilboost.party.coordinator import Connections
from veilboost.party.job import read_job
from veilboost.party.runs import DAMAGED, ENDED, JOB, RESUMABLE, RUNNING, RunFolder, date_text, list_runs
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName

DAY = 86_400.0


@dataclass(frozen=True)
class JobDetails:
    """One run, for its operator. Dates are texts in local time; fields that are unknown are None.

    `active` is the driver. `until`: when its driver can no longer resume it. `cancelling`: it stops soon.
    """

    job: str
    state: str
    folder: str
    files: Sequence[str] = ()
    party: PartyName | None = None
    role: str | None = None
    active: PartyName | None = None
    rounds: int | None = None
    rows: int | None = None
    ids: str | None = None
    layout: str | None = None
    report: Mapping[str, Any] | None = None
    reports: Mapping[PartyName, Mapping[str, Any]] | None = None
    membership: Sequence[str] | None = None
    error: str | None = None
    since: str | None = None
    updated: str | None = None
    until: str | None = None
    cancelling: bool | None = None


def about(run: RunFolder, settings: PartySettings) -> JobDetails:
    """A run's state, progress and error."""
    status, state = run.status, run.state
    rounds = len(run.metrics) if state == "finished" else run.rounds  # the last round needs no checkpoint
    updated = status.get("updated")
    until = None if run.drives or state not in RESUMABLE else float(updated or 0) + settings.policy.resume_days * DAY
    return JobDetails(
        job=run.path.name,
        state=state,
        folder=str(run.path),
        files=sorted(path.name for path in run.path.iterdir() if not path.name.startswith(".")),
        party=status.get("party"),
        role=status.get("role"),
        active=status.get("active") or status.get("party"),
        rounds=rounds if run.drives else None,
        rows=status.get("rows"),
        ids=status.get("ids"),
        layout=status.get("layout"),
        report=status.get("report"),
        reports=status.get("reports") or None,
        membership=[str(each) for each in run.membership] or None,
        error=status.get("error"),
        since=date_text(status.get("since")),
        updated=date_text(updated),
        until=date_text(until),
        cancelling=(run.cancelled and state in RUNNING) or None,
    )


def about_all(settings: PartySettings) -> list[JobDetails]:
    """All runs of a party, newest first. One that cannot be read does not hide the others."""

    def told(run: RunFolder) -> JobDetails:
        try:
            return about(run, settings)
        except (DamagedState, StateUnavailable, NewerFormat) as error:
            return JobDetails(run.path.name, DAMAGED, str(run.path), error=str(error))

    return [told(run) for run in list_runs(settings.runs)]


# --- a person ends a job --------------------------------------------------------------------------------------------


def cancel(settings: PartySettings, name: str) -> Literal["stops", "told", "ended"]:
    """Cancel a job at this party.

    "stops": a process of this party works on the job, and stops it: the driver after its round, another party before
    its next answer. "told": no process does; the other parties of a driver were told, as far as they can be reached.
    "ended": the owner of a table has ended the job.
    """
    run = RunFolder.open(settings.runs, name)
    state = run.state
    if state in ENDED or (state == "cancelled" and run.drives):
        raise InvalidParameter(f"the job {name} is already {state}", "nothing has to be cancelled")
    locks = Locks()
    try:
        with keeping("the run folder cannot be locked"):
            locks.take(run.lock, f"cancelling {name}")
    except FolderLocked:
        run.cancel()
        return "stops"
    try:
        if not run.drives:
            end(run, "ended")
            return "ended"
        if state != "failed":
            run.note(state="cancelled")
        with suppress(VeilBoostError):  # a party that cannot be told notices that the driver is gone
            _release(settings, run)
        return "told"
    finally:
        locks.release(run.lock)


def _release(settings: PartySettings, run: RunFolder) -> None:
    """Tell the other parties that a job stops whose process was killed."""
    if (run.path / JOB).exists():
        with Connections(settings, read_job(run.job_text)) as connections:
            connections.release(connections.others, bytes.fromhex(run.status["session"]))


def end(run: RunFolder, state: Literal["ended", "expired"]) -> None:
    """End a job for good at a party that answers: it cannot be resumed."""
    run.note(state=state)
    run.forget_trees()
    run.forget_key()


# --- a daemon parks and expires jobs --------------------------------------------------------------------------------


def refuse_ended(run: RunFolder, settings: PartySettings) -> None:
    """Raise if the owner has ended the job, or its driver stayed away for too long."""
    status = run.status
    if status.get("state") == "ended" or run.cancelled:  # a daemon that was killed may not have acted on it yet
        raise JobCancelled(
            f"the owner of {settings.name} has ended the job {run.path.name!r}",
            "change name in the job file and run train without --resume, if the owner agrees to a new job",
            public=True,
        )
    days = settings.policy.resume_days
    stayed_away = status.get("state") in RESUMABLE and time.time() - float(status["updated"]) > days * DAY
    if status.get("state") == "expired" or stayed_away:
        raise NothingToResume(
            f"the job {run.path.name!r} stopped more than {days:g} days ago; {settings.name} keeps none for longer",
            "run train without --resume: training starts at the first round",
            public=True,
        )


def park(run: RunFolder, session: str) -> bool:
    """The driver of a running job is gone, or this party stops: the job can be resumed. Whether this session ran it."""
    status = run.status
    running = status.get("session") == session and status.get("state") in RUNNING
    if running:
        run.note(state="parked")
    return running


def park_interrupted(settings: PartySettings) -> None:
    """Park the jobs in which this party answered when its process was killed, or end those that its owner cancelled."""
    for run in list_runs(settings.runs):
        with suppress(VeilBoostError):  # a damaged run stays as it is
            if not run.drives and park(run, str(run.status.get("session"))) and run.cancelled:
                end(run, "ended")


def expire(settings: PartySettings) -> list[str]:
    """End the jobs whose drivers stayed away for longer than the policy allows. Returns their names."""
    expired: list[str] = []
    for run in list_runs(settings.runs):
        with suppress(VeilBoostError):
            if not run.drives and run.status.get("state") in RESUMABLE:
                locks = Locks()
                locks.take(run.lock, f"expiring {run.path.name}")  # unless it is being resumed
                try:
                    refuse_ended(run, settings)
                except NothingToResume:
                    end(run, "expired")
                    expired.append(run.path.name)
                finally:
                    locks.release(run.lock)
    return expired
