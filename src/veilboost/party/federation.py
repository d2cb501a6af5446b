"""Run a job with real parties from a notebook or a program."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
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
from veilboost.party.checks import Readiness
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
    """The coordinator that runs this job at its driver."""
    return _COORDINATORS[job.spec.setting](settings, job, watch)


@dataclass(frozen=True)
class Trained:
    """The result of a training job at its driver.

    Attributes
    ----------
    job : str
        Name of the job.
    protocol : str
        Name of the protocol.
    party : str
        Name of the driver.
    participants : list of str
        The parties that hold data.
    run : Path
        The run folder at the driver.
    rows : int
        Rows of the driver's own table; 0 at a server.
    rounds : int
        Boosting rounds of the whole job, including rounds before a resume.
    metric : str or None
        Name of the validation metric.
    validation : float or None
        The metric after the last round; None without validation rows.
    seconds : float
        Duration of this call.
    seconds_by_stage : dict of str to float
        Duration of each stage of this call.
    traffic : dict or None
        Messages and bytes by peer; None if nothing was recorded.
    resumed : bool
        Whether this call resumed an interrupted run.
    ids : str or None
        Whether ids were hashed in advance; None if the alignment does not hash ids.
    layout : str or None
        How the protocol encrypted, and the measured line for which it chose that; None if there was no choice.
    dropped : dict of str to str
        Participants that dropped out and did not return, with the reason.
    membership : list of str
        Which participants were lost, or returned, and in which round, if the others trained on.
    reports : dict of str to dict
        How each remaining participant reports that it protected its rows.
    auditable : bool
        Whether `veilboost audit` can attack this run: the job has record = "payload".
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
    layout: str | None
    dropped: dict[PartyName, str]
    membership: list[str]
    reports: dict[PartyName, dict[str, Any]]
    auditable: bool

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "run": str(self.run)}


class Federation:
    """A job with real parties, run by its driver: the active party (vertical) or the server (horizontal).

    The other parties run `veilboost party serve`. Each party reads its own settings file and applies its own policy.

    Parameters
    ----------
    job_file : str or Path
        The job file, as written by `veilboost init job`. All parties need the same job.
    party_file : str or Path
        The settings file of the driver, as written by `veilboost init party`.
    continues : str, default=None
        A finished run of the same parties on the same rows, to whose model the job adds its rounds; as `continues` in
        the job file.

    Attributes
    ----------
    job : Job
        The job: parties, protocol, alignment and training parameters.
    party : PartySettings
        The settings of the driver.

    See Also
    --------
    VerticalClassifier : Simulates vertical parties in one process.
    HorizontalClassifier : Simulates horizontal parties in one process.

    Examples
    --------
    The parties `shop` and `telecom` serve; the bank runs the job:

    >>> from veilboost import Federation
    >>> federation = Federation("job.toml", "bank.toml")  # doctest: +SKIP
    >>> federation.check().errors  # doctest: +SKIP
    {'bank': None, 'shop': None, 'telecom': None}
    >>> federation.train().rounds  # doctest: +SKIP
    60
    >>> federation.predict("new_customers.csv").scores  # doctest: +SKIP
    array([0.11, 0.42, 0.07])
    """

    def __init__(self, job_file: str | Path, party_file: str | Path, continues: str | None = None) -> None:
        job = load_job(job_file)
        self.job: Job = job if continues is None else replace(job, continues=continues)
        self.party: PartySettings = load_party(party_file)

    def __repr__(self) -> str:
        return f"Federation({self.job.name!r}: {', '.join(self.job.parties)}; here {self.party.name})"

    @property
    def run(self) -> RunFolder:
        """The run folder of the job at this party. Raises `UnknownRun` before the first start."""
        return RunFolder.open(self.party.runs, self.job.name)

    def check(self) -> Readiness:
        """Check at every party whether training could start. Spends no privacy budget and stores nothing.

        Every party reads and checks its own table, as training does. Rows that PSI will find are not known before.

        Returns
        -------
        Readiness
            The findings by party and check: `ready`, `errors` and `parties`.
        """
        with coordinate(self.party, self.job) as coordinator:
            return coordinator.check()

    def train(
        self, resume: bool = False, progress: bool = True, console: Console | None = None, wait: bool = False
    ) -> Trained:
        """Train with all parties, or resume an interrupted run.

        Parameters
        ----------
        resume : bool, default=False
            Resume an interrupted run after its last finished round.
        progress : bool, default=True
            Show the stage, the boosting rounds, the remaining time and the parties that the job waits for.
        console : rich.console.Console, default=None
            Where to show progress. None means standard error, or the output cell of a notebook.
        wait : bool, default=False
            Wait until persons at other parties have approved the job. By default this raises `ApprovalPending`.

        Returns
        -------
        Trained
            The result: run folder, rounds, validation metric, durations and traffic.

        Raises
        ------
        VeilBoostError
            If a party refuses, fails or cannot be reached. Its code and text name the cause and the remedy.
        """
        began = time.perf_counter()
        view = LiveView(max(0, self.job.training.n_estimators), console or _console(), shown=progress)
        with coordinate(self.party, self.job, view.watch) as coordinator, view:
            run, outcome = coordinator.train(resume, wait)
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
            layout=run.status.get("layout"),
            dropped=dict(outcome.dropped),
            membership=[str(each) for each in run.membership],
            reports={name: dict(report) for name, report in outcome.reports.items()},
            auditable=self.job.record == "payload",
        )

    def predict(self, frame: Any) -> Prediction:
        """Predict new rows of this party.

        A vertical model needs all parties to be reachable. A party that has the full model predicts alone.

        Parameters
        ----------
        frame : pandas or polars frame, pyarrow table, or path
            The rows, with the record-id column and the columns used in training. Other columns, such as the label, are
            ignored.

        Returns
        -------
        Prediction
            `ids` and `scores` in the order of the rows. Scores are probabilities, or values for regression.
        """
        predictor = open_predictor(self.party, self.run.path)
        return predictor.predict(predictor.load(frame))

    def transcript(self) -> list[dict[str, Any]]:
        """The messages that this party sent and received.

        Returns
        -------
        list of dict
            Sender, receiver, message type, count, bytes, and what was revealed to whom.
        """
        return [item.to_dict() for item in read_exchanges(self.run.path)[1]]

    def _traffic(self) -> dict[PartyName, dict[str, int]] | None:
        try:
            return traffic_by_peer(*read_exchanges(self.run.path))
        except UnreadableFile:
            return None


def _console() -> Console:
    console = Console()
    return console if console.is_jupyter else Console(stderr=True, highlight=False)


BAR_WIDTH = 30
QUIET_SECONDS = 10.0  # between lines of rounds, where nothing is drawn
TRAINING = "training"


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


class LiveView:
    """Draws live progress on a terminal or in a notebook; elsewhere prints a line per stage, per wait and per round.

    Lines of rounds are at least ten seconds apart. The remaining time assumes that rounds take as long as those since
    training started or resumed, and that it does not stop early. Use it as a context manager, and pass `watch` to the
    driver. `seconds` is the duration of each stage.
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
        self._result: RoundResult | None = None
        self._seen = 0  # rounds of this session
        self._said = self._began
        self._waits: dict[PartyName, str] = {}
        self._spinner = Spinner("dots")
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=8, transient=True, auto_refresh=self._drawn
        )

    @property
    def watch(self) -> Watch:
        return Watch(self._on_stage, self._on_round, self._on_waiting, self._on_total)

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        if self._drawn:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._live.stop()
        self._end_stage()

    # --- events of the driver ---------------------------------------------------------------------------

    def _on_stage(self, stage: str) -> None:
        self._end_stage()
        self._stage, self._stage_began = stage, time.perf_counter()
        self._seen, self._said = 0, self._stage_began
        self._waits.clear()
        self._say(stage)

    def _on_round(self, result: RoundResult) -> None:
        self.round, self._result = result.number + 1, result
        self._seen += 1
        self._waits.clear()
        if time.perf_counter() - self._said >= QUIET_SECONDS:
            self._said = time.perf_counter()
            self._say(f"{self._stage}: {', '.join(self._progress())}")

    def _on_total(self, rounds: int) -> None:
        self._rounds = rounds

    def _on_waiting(self, party: PartyName, why: str) -> None:
        if party not in self._waits:
            self._say(f"waiting for {party}: {why}")
        self._waits[party] = why

    def _end_stage(self) -> None:
        if self._stage:
            took = time.perf_counter() - self._stage_began
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + took
            self._stage = ""

    # --- output -----------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        if self._shown and not self._drawn:
            self._console.print(escape(text), soft_wrap=True)

    def _progress(self) -> Iterator[str]:
        yield f"round {self.round} of {self._rounds}"
        if self._result is not None and self._result.validation is not None:
            yield f"{self._result.metric} {self._result.validation:.4f} on validation rows"
        now = time.perf_counter()
        yield f"{_duration(now - self._began)} elapsed"
        if self._seen:
            left = (now - self._stage_began) / self._seen * max(self._rounds - self.round, 0)
            yield f"{_duration(left)} left"

    def _draw(self) -> RenderableType:
        line = Table.grid(padding=(0, 2, 0, 0))
        cells: list[RenderableType] = [self._spinner, Text(self._stage or "starting", style="bold")]
        if self._stage == TRAINING:
            cells.append(ProgressBar(self._rounds, self.round, width=BAR_WIDTH))
            cells += self._progress()
        else:
            cells.append(_duration(time.perf_counter() - self._began))
        line.add_row(*cells)
        waits = [
            Text(f"  waiting for {party}: {why}", style="yellow", overflow="ellipsis", no_wrap=True)
            for party, why in list(self._waits.items())
        ]
        return Group(line, *waits)
