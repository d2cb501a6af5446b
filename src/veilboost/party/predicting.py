"""The active party predicts with live parties."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilboost.align.api import AlignContext, AlignmentSpec
from veilboost.align.registry import alignment_named
from veilboost.crypto.csprng import Csprng
from veilboost.data.columns import id_values
from veilboost.data.load import load_table
from veilboost.data.schema import SchemaRules, check_present, check_size
from veilboost.data.selection import Selection
from veilboost.data.sources import read_source
from veilboost.data.table import PartyTable
from veilboost.errors import EmptyIntersection, ImpossibleSetting, MissingPart, RowsDiffer, VeilBoostError
from veilboost.infer.joint import predict_joint
from veilboost.infer.messages import PREDICTION_MESSAGES
from veilboost.model.part import ColumnInfo, Skeleton
from veilboost.party.drive import Connections, who_answers
from veilboost.party.job_session import read_job
from veilboost.party.lots import SALT_BYTES, DrivenLots, agreed_lots
from veilboost.party.messages import CONTROL_MESSAGES, Accepted, Finish, Propose, ProposePrediction
from veilboost.party.runs import RunFolder
from veilboost.party.settings import DataSettings, PartySettings
from veilboost.types import AnyArray, Float64Array, Int64Array
from veilboost.wire.channel import Channel, Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.message import Done
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript

KEEP = SchemaRules(constant="keep")  # a few new rows may well agree in a column


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
        return Prediction(table.ids, self.skeleton.loss.predict(margin), self.skeleton.classes)

    def _margins(self, table: PartyTable, connections: Connections, transcript: Transcript) -> Float64Array:
        session = Csprng().bytes(16)
        spec = alignment_named(self.job.alignment)
        catalogue = Catalogue({*CONTROL_MESSAGES, *spec.messages, *PREDICTION_MESSAGES})
        seconds = self.settings.limits.connect_seconds
        callers = {
            name: connections.caller(name, session, catalogue, transcript, seconds) for name in who_answers(self.job)
        }
        owners = [name for name in self.job.order if name != self.settings.name]
        everyone, peers = Peers(dict[str, Channel](callers)), Peers({name: callers[name] for name in owners})
        name = self.run.path.name
        accepted = everyone.ask(
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
            margin = self._ask(table, spec, callers, everyone, peers, agreed_lots(1, accepted))
            completed = True
        finally:  # whatever happened, nobody keeps a session open for us
            with contextlib.suppress(VeilBoostError):
                peers.ask({other: Finish(completed) for other in owners}, Done)
        return margin

    def _ask(
        self,
        table: PartyTable,
        spec: AlignmentSpec,
        callers: Mapping[str, Caller],
        everyone: Peers,
        peers: Peers,
        lots: int,
    ) -> Float64Array:
        helpers: dict[str, Channel] = {
            party.role: callers[other]
            for other, party in self.job.parties.items()
            if other in callers and party.role != "data"
        }
        context = AlignContext(
            self.settings.name,
            self.job.order,
            table.ids,
            Peers(helpers),
            threads=self.settings.threads or os.cpu_count() or 1,
        )
        found: list[Int64Array] = []
        with contextlib.suppress(EmptyIntersection):
            found.extend(DrivenLots(spec, context, peers, everyone, lots, Csprng().bytes(SALT_BYTES)).rows())
        lost = table.rows - sum(map(len, found))
        if lost:
            raise RowsDiffer(
                f"{lost} of the {table.rows} rows are not known to every party", "predict for people whom all know"
            )
        positions = np.concatenate(found)
        aligned = table.take(positions)
        margin = predict_joint(self.part, aligned.columns, aligned.rows, peers)
        back = np.empty_like(margin)
        back[:, positions] = margin
        return back


def load_rows(source: object, data: DataSettings, columns: tuple[ColumnInfo, ...]) -> PartyTable:
    """The rows of a file or frame as a trained party's columns; the label may be absent."""
    if columns:
        return load_table(
            source,
            id=data.id,
            features=[column.name for column in columns],
            categorical=[column.name for column in columns if column.categories is not None],
            rules=KEEP,
        ).without_label()
    # A party that has labels only: its new rows are ids and nothing else.
    selection = Selection(id=data.id, features=())
    read = read_source(source, selection)
    check_present(read.table.column_names, selection)
    check_size(read.table.num_rows, 0, has_label=True)
    if data.id is None:
        raise ImpossibleSetting("neither an id nor a column is known of new rows", "name the id under [data]")
    return PartyTable(id_values(data.id, read.table.column(data.id), typed=read.typed), ())
