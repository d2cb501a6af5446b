"""Standing deployments at the active party: propose, open, score, withdraw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from veilboost.data.table import PartyTable
from veilboost.infer.scores import ModelInfo
from veilboost.party.predicting import Presence
from veilboost.party.settings import PartySettings
from veilboost.types import AnyArray, Float64Array

Unknown = Literal["error", "skip", "default"]
KNOWN = "known"


@dataclass(frozen=True)
class Scored:
    """`scores` as in `Prediction`. `status`, for each row: `known`, or `unknown at shop, telecom`."""

    ids: AnyArray
    scores: Float64Array
    classes: tuple[str, ...] | None
    status: tuple[str, ...]


class Deployment:
    """The active party's open handle of a deployment. Threads may share it."""

    info: ModelInfo
    version: int

    def load(self, source: object) -> PartyTable:
        raise NotImplementedError

    def score(self, table: PartyTable, unknown: Unknown = "error", seconds: float = 3.0) -> Scored:
        raise NotImplementedError

    def presence(self, seconds: float, age: float = 0.0) -> Presence:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_deployment(settings: PartySettings, folder: Path) -> Deployment:
    """The newest live deployment of the run in this folder."""
    raise NotImplementedError


def deploy(settings: PartySettings, folder: Path, days: float = 90.0, name: str | None = None) -> Deployment:
    """Propose a deployment of a finished run to all passive parties. Returns it, opened."""
    raise NotImplementedError
