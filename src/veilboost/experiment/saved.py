"""Predict with a saved model: the shares of all parties are in one folder, so no other party is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from veilboost.align.clear import align_by_id
from veilboost.errors import MissingColumn, MissingShare, UnsupportedCombination
from veilboost.experiment.problem import files_by_party
from veilboost.infer.scores import ModelInfo
from veilboost.model.joined import join
from veilboost.model.store import load_shares
from veilboost.party.predicting import Prediction, load_rows
from veilboost.types import AnyArray, Column, Int64Array


@dataclass(frozen=True)
class SavedRows:
    """New rows with the columns of all parties.

    `known` are the positions, among `ids`, of the rows of the columns: a row that is not in every file has no score.
    """

    ids: AnyArray
    columns: Sequence[Column]
    known: Int64Array

    @property
    def rows(self) -> int:
        return len(self.ids)

    @property
    def unknown(self) -> int:
        return len(self.ids) - len(self.known)


class SavedPredictor:
    """A model whose shares are all in one folder: of `veilboost simulate --save`, or of an estimator's `save`.

    `id` is the column that matches the rows of several files; None: rows are numbered.
    """

    def __init__(self, folder: Path, id: str | None) -> None:
        try:
            self.model = join(load_shares(folder))
        except MissingShare as error:
            raise MissingShare(
                f"{folder} does not hold the shares of all parties: {error.what}",
                "add --config FILE to predict together with the other parties",
            ) from None
        self._id, skeleton = id, self.model.skeleton
        active = next(share for share in self.model.shares if share.skeleton is not None)
        info = ModelInfo.of(folder.resolve().name, active.party, active, skeleton, id)
        self.info = replace(info, columns=self.model.columns)

    def load(self, data: Sequence[str]) -> SavedRows:
        """Load one file with the columns of all parties, or NAME=FILE for each party."""
        files = files_by_party(data, "--data")
        if None in files:
            table = load_rows(files[None], self._id, self.model.columns)
            return SavedRows(table.ids, table.columns, np.arange(table.rows))
        wanted = {share.party: share for share in self.model.shares if share.columns}
        if set(files) != set(wanted):
            raise UnsupportedCombination(
                f"--data names {', '.join(str(name) for name in files)}, and the model has columns of "
                f"{', '.join(wanted)}",
                "give one file for each of these parties, or one file with all columns",
            )
        if self._id is None:
            raise MissingColumn("there is no id to match the rows of several files", "name the id column with --id")
        tables = {name: load_rows(files[name], self._id, share.columns) for name, share in wanted.items()}
        ids = tables[next(str(name) for name in files)].ids
        aligned = align_by_id(tables)
        order = np.argsort(ids)
        known = order[np.searchsorted(ids, next(iter(aligned.values())).ids, sorter=order)]
        return SavedRows(ids, [column for table in aligned.values() for column in table.columns], known)

    def predict(self, rows: SavedRows) -> Prediction:
        skeleton = self.model.skeleton
        found = skeleton.loss.predict(self.model.margins(rows.columns))
        scores = np.full((rows.rows, *found.shape[1:]), np.nan)
        scores[rows.known] = found
        return Prediction(rows.ids, scores, skeleton.classes)
