"""A finished run over rows in different hands, opened to predict with: the model is whole, and nobody is asked."""

from __future__ import annotations

from pathlib import Path

from veilboost.data.load import load_table
from veilboost.data.table import PartyTable
from veilboost.errors import MissingPart
from veilboost.model.joined import join
from veilboost.party.predicting import KEEP, Prediction
from veilboost.party.settings import PartySettings
from veilboost.service.model import ROW_NUMBER, ModelInfo, class_names, finished_run


class WholeModel:
    """The model of a horizontal job, at its server or at any participant."""

    def __init__(self, settings: PartySettings, folder: Path) -> None:
        run = finished_run(folder)
        part = run.load_part()
        if part.skeleton is None:
            raise MissingPart(f"the run {run.path.name!r} holds no whole model", "predict where the job was trained")
        self._model, self._skeleton = join({part.party: part}), part.skeleton
        self._id = None if settings.data is None else settings.data.id
        self.info = ModelInfo(
            name=run.path.name,
            party=settings.name,
            parties=(settings.name,),
            protocol=part.skeleton.protocol,
            objective=part.skeleton.objective,
            classes=class_names(part.skeleton),
            columns=part.columns,
            id_name=self._id or ROW_NUMBER,
            trees=len(part.skeleton.trees),
        )

    def load(self, source: Path) -> PartyTable:
        """New rows from a file: the id, where the settings name one, and the columns as trained."""
        return load_table(
            source,
            id=self._id,
            features=[column.name for column in self.info.columns],
            categorical=[column.name for column in self.info.columns if column.categories is not None],
            rules=KEEP,
        ).without_label()

    def predict(self, table: PartyTable) -> Prediction:
        """Scores in the order of the rows."""
        skeleton = self._skeleton
        return Prediction(table.ids, skeleton.loss.predict(self._model.margins(table.columns)), skeleton.classes)
