"""The active party predicts with live parties."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilboost.align.api import AlignContext, Alignment, AlignmentSpec
from veilboost.align.registry import alignment_named
from veilboost.boost.objective import make_objective
from veilboost.crypto.csprng import Csprng
from veilboost.data.table import PartyTable
from veilboost.errors import EmptyIntersection, MissingPart, RowsDiffer, VeilBoostError
from veilboost.infer.joint import predict_joint
from veilboost.infer.messages import PREDICTION_MESSAGES
from veilboost.model.part import Skeleton
from veilboost.party.drive import Connections
from veilboost.party.job_session import read_job
from veilboost.party.messages import (
    CONTROL_MESSAGES,
    Accepted,
    BeginAlignment,
    EndAlignment,
    Finish,
    Propose,
    ProposePrediction,
)
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.types import AnyArray, Float64Array
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.message import Done
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript


@dataclass(frozen=True)
class Prediction:
    """`scores` as the objective gives them: probabilities (more than two classes: a column each) or values."""

    ids: AnyArray
    scores: Float64Array
    classes: tuple[str, ...] | None


class LivePredictor:
    """A finished run of the active party, and the parties that hold the other parts."""

    def __init__(self, settings: PartySettings, run: RunFolder) -> None:
        self.settings = settings
        self.run = run
        self.part = run.load_part()
        if self.part.skeleton is None:
            raise MissingPart(f"the part of {self.part.party} has no skeleton: only the active party can predict")
        self.skeleton: Skeleton = self.part.skeleton
        self._text = run.job_text
        self.job = read_job(self._text)

    def predict(self, table: PartyTable) -> Prediction:
        """Scores for every row of the table; each must be known to every party. Raises what a party objects to."""
        transcript = Transcript(self.settings.name, self.run.path / "predictions")
        with Connections(self.settings, self.job) as connections:
            try:
                margin = self._margins(table, connections, transcript)
            finally:
                transcript.close()
        objective = make_objective(
            self.skeleton.objective if self.skeleton.objective != "custom" else "regression",
            classes=self.skeleton.trees_per_round,
        )
        return Prediction(table.ids, objective.predict(margin), self.skeleton.classes)

    def _margins(self, table: PartyTable, connections: Connections, transcript: Transcript) -> Float64Array:
        session = Csprng().bytes(16)
        spec = alignment_named(self.job.alignment)
        catalogue = Catalogue({*CONTROL_MESSAGES, *spec.messages, *PREDICTION_MESSAGES})
        seconds = self.settings.limits.connect_seconds
        callers = {
            name: connections.caller(name, session, catalogue, transcript, seconds) for name in connections.others
        }
        owners = [name for name in self.job.order if name != self.settings.name]
        everyone, peers = Peers(dict[str, Channel](callers)), Peers({name: callers[name] for name in owners})
        name = self.run.path.name
        everyone.ask(
            {
                other: ProposePrediction(name, self._text, table.rows)
                if other in owners
                else Propose(self._text, dry_run=False, resume=False)
                for other in callers
            },
            Accepted,
        )
        completed = False
        try:
            margin = self._ask(table, spec, callers, everyone, peers)
            completed = True
        finally:  # whatever happened, nobody keeps a session open for us
            with contextlib.suppress(VeilBoostError):
                peers.ask({other: Finish(completed) for other in owners}, Done)
        return margin

    def _ask(
        self, table: PartyTable, spec: AlignmentSpec, callers: Mapping[str, Caller], everyone: Peers, peers: Peers
    ) -> Float64Array:
        everyone.ask({other: BeginAlignment() for other in callers}, Done)
        helpers: dict[str, Channel] = {
            party.role: callers[other] for other, party in self.job.parties.items() if party.role != "data"
        }
        context = AlignContext(
            self.settings.name,
            self.job.order,
            table.ids,
            Peers(helpers),
            threads=self.settings.threads or os.cpu_count() or 1,
        )
        aligner = spec.active(context, peers)
        aligner.prepare()
        try:
            alignment = aligner.align()
            lost = table.rows - alignment.rows
        except EmptyIntersection:
            alignment, lost = Alignment(np.empty(0, dtype=np.int64)), table.rows
        if lost:
            raise RowsDiffer(
                f"{lost} of the {table.rows} rows are not known to every party", "predict for people whom all know"
            )
        everyone.ask({other: EndAlignment(alignment.rows) for other in callers}, Done)
        aligned = alignment.apply(table)
        margin = predict_joint(self.part, aligned.columns, aligned.rows, peers)
        back = np.empty_like(margin)
        back[:, alignment.positions] = margin
        return back
