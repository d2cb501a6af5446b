"""A finished run of the active party, opened to predict with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from veilboost.data.table import PartyTable
from veilboost.errors import (
    ImpossibleSetting,
    MissingPart,
    PeerUnreachable,
    UnsupportedCombination,
)
from veilboost.model.part import ColumnInfo, Skeleton
from veilboost.party.predicting import LivePredictor, Prediction, load_rows
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.service.peers import RollCall, names_of
from veilboost.types import PartyName

Predict = Callable[[PartyTable], Prediction]
ROW_NUMBER = "row"
PRESHARED = "preshared"


@dataclass(frozen=True)
class ModelInfo:
    """What the active party may know of its model without asking anyone."""

    name: str
    party: PartyName
    parties: tuple[PartyName, ...]
    protocol: str
    objective: str
    classes: tuple[str, ...] | None
    columns: tuple[ColumnInfo, ...]
    id_name: str
    trees: int

    @property
    def id_key(self) -> str:
        """What a row's id is called in a request: `id`, unless a column has that name."""
        taken = {column.name for column in self.columns}
        return next(name for name in ("id", self.id_name, "row_id", "__id__") if name not in taken)


def finished_run(folder: Path) -> RunFolder:
    """The run in this folder, whose training has come to its end."""
    folder = folder.resolve()  # the run's name is the folder's, which `.` does not tell
    run = RunFolder.open(folder.parent, folder.name)
    state = run.status.get("state")
    if state != "finished":
        raise MissingPart(f"the run {folder.name!r} is not finished but {state}", "end or resume its training first")
    return run


def class_names(skeleton: Skeleton) -> tuple[str, ...] | None:
    """What the classes are called: by their numbers where the labels had no names."""
    if skeleton.objective == "multiclass" and skeleton.classes is None:
        return tuple(str(number) for number in range(skeleton.trees_per_round))
    return skeleton.classes


class OpenModel:
    """The predictor of a run, and the roll call of its parties."""

    def __init__(self, settings: PartySettings, folder: Path) -> None:
        """Raises what is wrong with the run or the settings; asks nobody yet."""
        run = finished_run(folder)
        self.predictor = LivePredictor(settings, run)
        part, skeleton, job = self.predictor.part, self.predictor.skeleton, self.predictor.job
        if part.party != settings.name:
            raise UnsupportedCombination(f"the run is of {part.party} and the settings are of {settings.name}")
        if settings.data is None:
            raise ImpossibleSetting(f"{settings.name} has no [data] section", "it says which column is the id")
        self.settings, self.data = settings, settings.data
        self.roll_call = RollCall(settings, job, run.job_text)
        self.info = ModelInfo(
            name=run.path.name,
            party=part.party,
            parties=skeleton.parties,
            protocol=skeleton.protocol,
            objective=skeleton.objective,
            classes=class_names(skeleton),
            columns=part.columns,
            id_name=self.data.id or ROW_NUMBER,
            trees=len(skeleton.trees),
        )

    def load(self, source: Path) -> PartyTable:
        """New rows from a file: the id and the columns as trained; whatever else is in it is not read."""
        return load_rows(source, self.data, self.info.columns)

    def predict(self, table: PartyTable, seconds: float | None = None) -> Prediction:
        """Scores in the order of the rows.

        Everyone is called first: if one party is away, no other spends its day's predictions on it.
        """
        wanted = self.settings.limits.connect_seconds if seconds is None else seconds
        away = [name for name, there in self.roll_call.now(wanted).items() if there is False]
        if away:
            raise PeerUnreachable(f"{names_of(away)} cannot be reached")
        return self.predictor.predict(table)

    def check_servable(self) -> None:
        """Single rows find each other by their ids, which the order of whole tables does not allow."""
        if self.predictor.job.alignment == PRESHARED:
            raise UnsupportedCombination(
                f"the run {self.info.name!r} has alignment = {PRESHARED!r}, which knows no single rows",
                "train with another alignment",
            )
