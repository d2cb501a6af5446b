"""A job as it goes, for whoever watches: stage, rounds, validation metric, and whom it waits for."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from veilboost.boost.booster import RoundResult
from veilboost.party.coordinator import Watch
from veilboost.types import PartyName

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
