"""A federation of real parties, driven from a notebook or a program."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from veilboost.boost.booster import RoundResult
from veilboost.errors import UnreadableFile
from veilboost.party.coordinator import Coordinator, Watch
from veilboost.party.horizontal import HorizontalCoordinator
from veilboost.party.job import Job, load_job
from veilboost.party.predicting import Prediction, open_predictor
from veilboost.party.runs import RunFolder, read_exchanges
from veilboost.party.settings import PartySettings, load_party
from veilboost.party.vertical import VerticalCoordinator
from veilboost.protocols.spec import Setting
from veilboost.types import PartyName
from veilboost.wire.transcript import traffic_by_peer

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
            return traffic_by_peer(*read_exchanges(self.run.path))
        except UnreadableFile:
            return None


def _console() -> Console:
    console = Console()
    return console if console.is_jupyter else Console(stderr=True, highlight=False)


BAR_WIDTH = 40
TRAINING = "training"


class LiveView:
    """Draws progress where a person watches; elsewhere writes a line when a stage begins or a party is waited for.

    Use it as a context, and hand `watch` to the driver. `seconds` tells how long each stage took.
    """

    def __init__(self, rounds: int, console: Console, shown: bool = True) -> None:
        self.seconds: dict[str, float] = {}
        self.round = 0
        self._rounds = rounds
        self._console = console
        self._shown = shown
        self._drawn = shown and (console.is_terminal or console.is_jupyter)
        self._began = self._stage_began = time.perf_counter()
        self._stage = ""
        self._validation: float | None = None
        self._waits: dict[PartyName, str] = {}
        self._spinner = Spinner("dots")
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=8, transient=True, auto_refresh=self._drawn
        )

    @property
    def watch(self) -> Watch:
        return Watch(self._on_stage, self._on_round, self._on_waiting)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        if self._drawn:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._live.stop()
        self._end_stage()

    # --- what the driver tells --------------------------------------------------------------------------

    def _on_stage(self, stage: str) -> None:
        self._end_stage()
        self._stage, self._stage_began = stage, time.perf_counter()
        self._waits.clear()
        self._say(stage)

    def _on_round(self, result: RoundResult) -> None:
        self.round, self._validation = result.number + 1, result.validation
        self._waits.clear()

    def _on_waiting(self, party: PartyName, why: str) -> None:
        if party not in self._waits:
            self._say(f"waiting for {party}: {why}")
        self._waits[party] = why

    def _end_stage(self) -> None:
        if self._stage:
            took = time.perf_counter() - self._stage_began
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + took
            self._stage = ""

    # --- what a person sees -----------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if self._shown and not self._drawn:
            self._console.print(escape(text), soft_wrap=True)

    def _draw(self) -> RenderableType:
        line = Table.grid(padding=(0, 2, 0, 0))
        cells: list[RenderableType] = [self._spinner, Text(self._stage or "starting", style="bold")]
        if self._stage == TRAINING:
            cells.append(ProgressBar(self._rounds, self.round, width=BAR_WIDTH))
            cells.append(f"round {self.round} of {self._rounds}")
            if self._validation is not None:
                cells.append(f"{self._validation:.4f} on validation rows")
        cells.append(f"{time.perf_counter() - self._began:.0f} s")
        line.add_row(*cells)
        waits = [
            Text(f"  waiting for {party}: {why}", style="yellow", overflow="ellipsis", no_wrap=True)
            for party, why in list(self._waits.items())
        ]
        return Group(line, *waits)
