"""A deployment that contacts nobody, for tests of the service: the score of a row is its first column."""

from __future__ import annotations

import threading

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.errors import RowsDiffer
from veilboost.infer.scores import ModelInfo
from veilboost.model.explanation import Explanation
from veilboost.party.deployments import KNOWN, Scored, Unknown
from veilboost.party.predicting import Presence
from veilboost.types import Float64Array


class FakeDeployment:
    """Rows whose id begins with `u` are unknown at the shop. `asked` keeps all tables; `go` lets answers pass."""

    version = 3

    def __init__(self, info: ModelInfo, error: Exception | None = None, peers: Presence | None = None) -> None:
        self.info, self.error = info, error
        self.peers = {"shop": True, "telecom": None} if peers is None else peers
        self.asked: list[PartyTable] = []
        self.busy, self.go = threading.Event(), threading.Event()
        self.go.set()

    def score(self, table: PartyTable, unknown: Unknown = "error", seconds: float = 3.0) -> Scored:
        self.asked.append(table)
        self.busy.set()
        assert self.go.wait(10)
        if self.error is not None:
            raise self.error
        strange = np.char.startswith(table.ids, "u")
        if unknown == "error" and strange.any():
            raise RowsDiffer(f"{strange.sum()} of {table.rows} rows are unknown at shop")
        scores = self.scores(table)
        if unknown == "skip":
            scores[strange] = np.nan
        status = tuple("unknown at shop" if each else KNOWN for each in strange)
        return Scored(table.ids, scores, self.info.classes, status)

    def explain(
        self, table: PartyTable, unknown: Unknown = "error", seconds: float = 3.0
    ) -> tuple[Scored, Explanation]:
        """The expected margin is 0.5. Of the rest of the score, the shop has 1 and the income what is left."""
        scored = self.score(table, unknown, seconds)
        parts = np.stack([scored.scores - 1.5, np.ones_like(scored.scores)], axis=1)
        base = np.full(scored.scores.shape, 0.5)
        skipped = np.isnan(parts).any(axis=1).reshape(table.rows, -1).any(axis=1)
        parts[skipped], base[skipped] = np.nan, np.nan
        classes = self.info.classes if scored.scores.ndim > 1 else None
        found = Explanation(parts, base, np.empty((table.rows, 2)), ("income", "shop"), ("bank", "shop"), classes)
        return scored, found

    def scores(self, table: PartyTable) -> Float64Array:
        income = np.nan_to_num(table.columns[0].values.astype(float), nan=-1.0)
        classes = len(self.info.classes or ())
        return income if classes < 3 else income[:, None] / 100 * np.arange(1, classes + 1)

    def presence(self, seconds: float, age: float = 0.0) -> Presence:
        return self.peers
