"""The checks of a job before it starts: every party runs its own, and the driver collects them in one table."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veilboost import logs
from veilboost.durable import keeping
from veilboost.errors import CheckpointFailed, ClockDiffers, PeerRefused, VeilBoostError, printable
from veilboost.party.certs import SKEW
from veilboost.party.messages import Checked
from veilboost.types import PartyName

# In the order of the table. Network: reached over TLS, same release. Policy: settings, policy and privacy budget.
# Run: its folder, its lock, and other jobs on the table. Match: the tables of the parties fit together.
CHECKS = ("network", "certificate", "clock", "policy", "run", "table", "label", "disk", "match")
LEAST_BYTES, BYTES_PER_ROW = 16 << 20, 64  # of a run folder: transcript and share; alignment and checkpoints
_PREFIXES = {"VB-160": "certificate", "VB-10": "policy", "VB-161": "policy", "VB-17": "run"}
_REFUSED = re.compile(r"\S+ refused \((VB-\d{4}): (.*)\)", re.DOTALL)
_LOG = logs.EventLogger(__name__)


@dataclass(frozen=True)
class Finding:
    """The result of one check at one party.

    Attributes
    ----------
    code : str or None
        Code of the error with which training would fail; None if the check passed.
    text : str
        What is wrong and what to do. Other parties send only the public text: their owners find the full reason in
        their logs. If the check passed: a detail such as the days until a certificate expires.
    """

    code: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Readiness:
    """The results of all checks of a job.

    Attributes
    ----------
    job : str
        Name of the job.
    parties : dict of str to dict of str to Finding
        The findings by party and check. A check that is missing was not made: it does not apply to the party, or an
        earlier check failed.
    """

    job: str
    parties: Mapping[PartyName, Mapping[str, Finding]]

    @property
    def ready(self) -> bool:
        """Whether all checks passed, so that training can start."""
        return not any(self.errors.values())

    @property
    def errors(self) -> dict[PartyName, str | None]:
        """The first error of each party; None if it would take part."""
        return {
            party: next((found.text for found in findings.values() if found.code), None)
            for party, findings in self.parties.items()
        }

    def to_dict(self) -> dict[str, Any]:
        parties = {
            party: {name: vars(found[name]) if name in found else None for name in CHECKS}
            for party, found in self.parties.items()
        }
        return {"job": self.job, "ready": self.ready, "parties": parties}


@dataclass(frozen=True)
class Checks:
    """The checks of one party, as they are made. Errors are logged in full, for its owner."""

    job: str
    errors: dict[str, VeilBoostError | None] = field(default_factory=dict[str, VeilBoostError | None])

    def passes(self, name: str, step: Callable[[], object]) -> bool:
        """Make a step of training, and return whether it passed. A check may have several steps."""
        try:
            step()
        except VeilBoostError as error:
            _LOG.warning("check_failed", logs.reason(error), error, job=self.job, check=name)
            self.errors[name] = error
            return False
        self.errors.setdefault(name, None)
        return True

    @property
    def findings(self) -> dict[str, Finding]:
        """The findings as the owner reads them."""
        return {name: finding(error) for name, error in self.errors.items()}

    def answer(self, release: str, days: int, **about: Any) -> Checked:
        """The findings as the driver receives them."""
        codes = [error.code if error else "" for error in self.errors.values()]
        texts = ["; ".join(filter(None, error.for_peer())) if error else "" for error in self.errors.values()]
        checks = tuple(self.errors)
        return Checked(release, checks, tuple(codes), tuple(texts), time.time(), days, **about)


def of_answer(party: PartyName, driver: PartyName, answer: Checked, sent: float) -> dict[str, Finding]:
    """The findings that a party sent to its driver, which asked at the time `sent`. Unknown checks are ignored."""
    early, late = sent - answer.clock, answer.clock - time.time()
    found = {"network": Finding(), "certificate": expiry(answer.days), "clock": Finding()}
    if max(early, late) > SKEW.total_seconds():
        how = f"{early:.0f} s slow" if early > late else f"{late:.0f} s fast"
        found["clock"] = finding(ClockDiffers(f"compared with the clock of {driver}, that of {party} is {how}"))
    for name, *told in zip(answer.checks, answer.codes, answer.texts, strict=False):
        code, text = (printable(each[: logs.MOST_TEXT]) for each in told)
        if name in CHECKS and (code or name not in found):
            found[name] = Finding(code, f"{code}: {text}") if code else Finding()
    return found


def of_error(error: VeilBoostError) -> dict[str, Finding]:
    """The finding of a party that answers with an error, or does not answer."""
    found = finding(error)
    check = next((name for prefix, name in _PREFIXES.items() if str(found.code).startswith(prefix)), "network")
    return ({} if check == "network" else {"network": Finding()}) | {check: found}


def finding(error: VeilBoostError | None) -> Finding:
    """An error as a finding, with the code that it has at the party where it occurred."""
    if error is None:
        return Finding()
    refused = _REFUSED.fullmatch(error.what) if isinstance(error, PeerRefused) else None
    if refused is None:
        return Finding(error.code, _line(error))
    code, what = refused.groups()
    return Finding(code, f"{code}: {what}; {error.remedy}")


def expiry(days: int) -> Finding:
    return Finding(text=f"{days} days")


def check_space(runs: Path, rows: int = 0) -> None:
    """Raise `CheckpointFailed` if the disk has too little space for a run over this many rows."""
    existing = next(folder for folder in (runs, *runs.parents) if folder.exists())
    with keeping("the free space of the runs folder cannot be read"):
        free = shutil.disk_usage(existing).free
    needed = LEAST_BYTES + BYTES_PER_ROW * rows
    if free < needed:
        raise CheckpointFailed(f"{runs} has {free >> 20} MB of free space, and the run may need {needed >> 20} MB")


def _line(error: VeilBoostError) -> str:
    return " ".join(str(error).split())
