"""The passive role of lattice encryption: answers the levels of every layout with encrypted sums."""

from __future__ import annotations

from veilboost.boost.rows import RowGroups
from veilboost.errors import UnexpectedMessage
from veilboost.protocols.lattice.expansion_passive import ExpandedAnswers
from veilboost.protocols.lattice.layouts import LayoutOf, Noise, PassiveLayout, only_runs
from veilboost.protocols.lattice.masks_passive import MaskedAnswers
from veilboost.protocols.lattice.runs_passive import AnswersInRuns
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveCipher, PassiveContext, PassiveJob
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.wire.message import Message


class LatticePassiveCipher(PassiveCipher):
    """Answers levels with encrypted sums; if it `streams`, every message with some of a level's ciphertexts.

    `layout_of` returns the layout of the job's parameters. `noise` returns the noise on a level's sums, for which
    `noise_bits` are reserved.
    """

    def __init__(
        self,
        context: PassiveContext,
        layout_of: LayoutOf = only_runs,
        streams: bool = False,
        noise_bits: int = 0,
        noise: Noise | None = None,
    ) -> None:
        super().__init__(context)
        self._layout_of, self._noise_bits = layout_of, noise_bits
        self._runs, self._masks = AnswersInRuns(context, noise, streams, noise_bits), MaskedAnswers(context, noise)
        self._expanded = ExpandedAnswers(context, noise)

    @property
    def shuffles(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] - known when a round starts
        """Whether columns have another order in every round. A reused mask shows the column, so they keep theirs."""
        return self._masks.sizes is None

    def begin_training(self, job: PassiveJob) -> None:
        super().begin_training(job)
        allowed: list[PassiveLayout] = [self._runs]
        name = self._layout_of(job.config)
        if name != "runs":
            # Below the root a vector could count a row in several nodes of a level, and the noise is for one.
            self._masks.only_roots = name in ("root", "expansion") or self._noise_bits > 0
            allowed += [self._masks, self._expanded] if name in ("auto", "expansion") else [self._masks]
        for layout in allowed:
            layout.begin_training(job)
        self._layouts = {kind: layout for layout in allowed for kind in layout.handles}

    def open_round(self, message: BeginRound) -> None:
        self._runs.open_round(message)

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        layout = self._layouts.get(type(message))
        if layout is None:
            raise UnexpectedMessage("a request of another protocol")
        return layout.answer(message, state, build)

    def other(self, message: Message, state: RoundState | None) -> Message:
        layout = self._layouts.get(type(message))
        return super().other(message, state) if layout is None else layout.other(message, state)
