"""A federation of real parties, driven from a notebook or a program."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from veilboost.errors import UnreadableFile
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.exchange import read_exchanges, traffic_by_peer, traffic_dict
from veilboost.party.horizontal.coordinator import HorizontalCoordinator
from veilboost.party.job import Job, load_job
from veilboost.party.live import LiveView
from veilboost.party.predicting import Prediction, open_predictor
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, load_party
from veilboost.party.vertical.coordinator import VerticalCoordinator
from veilboost.protocols.spec import Setting
from veilboost.types import PartyName

_COORDINATORS: Mapping[Setting, type[Coordinator]] = {
    "vertical": VerticalCoordinator,
    "horizontal": HorizontalCoordinator,
}


def coordinate(settings: PartySettings, job: Job, watch: Watch | None = None) -> Coordinator:
    """What drives this job at its driver."""
    return _COORDINATORS[job.spec.setting](settings, job, watch)


@dataclass(frozen=True)
class Trained:
    """What the driver knows when a job has ended well. `traffic` is None where nothing was recorded.

    `rows` are those of the driver's own table, none at a server. `seconds` is of this run of the command, `rounds` of
    all of the job. `ids` says whether they were hashed beforehand, where they are hashed at all. `dropped` are
    participants that were lost on the way, `reports` is what the others tell of how they protected their rows.
    """

    job: str
    protocol: str
    party: PartyName
    participants: list[PartyName]
    run: Path
    rows: int
    rounds: int
    metric: str | None
    validation: float | None
    seconds: float
    seconds_by_stage: dict[str, float]
    traffic: dict[PartyName, dict[str, int]] | None
    resumed: bool
    ids: str | None
    dropped: dict[PartyName, str]
    reports: dict[PartyName, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "run": str(self.run)}


class Federation:
    """A job between real parties, seen from the party that drives it: the active one, or the server.

    The other parties run `veilboost party serve`.

    Parameters
    ----------
    job_file : str or Path
        The job, as `veilboost init job` writes it.
    party_file : str or Path
        The settings of the party that drives, as `veilboost init party` writes them.

    Examples
    --------
    >>> federation = Federation("job.toml", "bank.toml")  # doctest: +SKIP
    >>> federation.check()  # doctest: +SKIP
    {'shop': None, 'telecom': None}
    >>> federation.train().rounds  # doctest: +SKIP
    60
    """

    def __init__(self, job_file: str | Path, party_file: str | Path) -> None:
        self.job: Job = load_job(job_file)
        self.party: PartySettings = load_party(party_file)

    def __repr__(self) -> str:
        return f"Federation({self.job.name!r}: {', '.join(self.job.parties)}; here {self.party.name})"

    @property
    def run(self) -> RunFolder:
        """The job's folder at this party; `UnknownRun` before the job was ever started."""
        return RunFolder.open(self.party.runs, self.job.name)

    def check(self) -> dict[PartyName, str | None]:
        """Would every other party take part? None if so, else why not. Nothing is spent or kept."""
        with coordinate(self.party, self.job) as coordinator:
            return coordinator.check()

    def train(self, resume: bool = False, progress: bool = True, console: Console | None = None) -> Trained:
        """Train with all parties, or go on with a run that was interrupted.

        Parameters
        ----------
        resume : bool
            Go on from the last finished round of an interrupted run.
        progress : bool
            Show stage, rounds and whom the job waits for.
        console : rich.console.Console, optional
            Where to show it; by default on standard error, or in the notebook.
        """
        began = time.perf_counter()
        view = LiveView(self.job.training.n_estimators, console or _console(), shown=progress)
        with coordinate(self.party, self.job, view.watch) as coordinator, view:
            run, outcome = coordinator.train(resume)
        return Trained(
            job=self.job.name,
            protocol=self.job.protocol,
            party=self.party.name,
            participants=list(self.job.owners),
            run=run.path,
            rows=int(run.status.get("rows", 0)),
            rounds=len(outcome.history),
            metric=outcome.metric,
            validation=outcome.history[-1].validation if outcome.history else None,
            seconds=time.perf_counter() - began,
            seconds_by_stage=view.seconds,
            traffic=self._traffic(),
            resumed=resume,
            ids=run.status.get("ids"),
            dropped=dict(outcome.dropped),
            reports={name: dict(report) for name, report in outcome.reports.items()},
        )

    def predict(self, frame: Any) -> Prediction:
        """Scores for new rows of this party: with all parties alive, or alone where it has the whole model.

        Parameters
        ----------
        frame : pandas or polars frame, pyarrow table, or path
            The rows, with the id column and the columns trained on; others, the label too, do not matter.

        Returns
        -------
        Prediction
            `ids` and `scores` in the order of the rows; probabilities, or values of a regression.
        """
        predictor = open_predictor(self.party, self.run.path)
        return predictor.predict(predictor.load(frame))

    def transcript(self) -> list[dict[str, Any]]:
        """What crossed at this party: sender, receiver, message type, count, bytes, and what was revealed to whom."""
        return [item.to_dict() for item in read_exchanges(self.run.path)[1]]

    def _traffic(self) -> dict[PartyName, dict[str, int]] | None:
        try:
            return traffic_dict(traffic_by_peer(*read_exchanges(self.run.path)))
        except UnreadableFile:
            return None


def _console() -> Console:
    console = Console()
    return console if console.is_jupyter else Console(stderr=True, highlight=False)
