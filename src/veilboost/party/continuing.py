"""Jobs that continue the model of a finished run: each party starts from its own share of it.

Nothing about rows is sent for that: the active party keeps the margins of the finished run, and every party checks that
it has the same rows in the same order. Keys and noise are fresh, and only new rounds are booked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from veilboost.data.table import PartyTable
from veilboost.errors import NothingToResume, StateDiffers
from veilboost.model.continued import extended, with_columns_of
from veilboost.model.share import ModelShare, Skeleton
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job
from veilboost.party.messages import Accepted
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.types import Float64Array, PartyName

_NEW = "train a new model, without continues"


@dataclass(frozen=True)
class EarlierRun:
    """The finished run that a job continues, at one party."""

    run: RunFolder
    share: ModelShare
    trees: int

    @staticmethod
    def of(settings: PartySettings, job: Job, peer: PeerIdentity | None = None) -> EarlierRun | None:
        """The run that the job continues, if any. `peer` drives the job, and must have driven that run; None: we do."""
        if job.continues is None:
            return None
        if peer is not None:
            run = RunFolder.finished_with(settings.runs, job.continues, peer)
        else:
            run = RunFolder.open(settings.runs, job.continues)
            if run.status.get("state") != "finished" or not run.drives:
                raise NothingToResume(
                    f"{settings.name} has no finished run {job.continues!r} that it drove",
                    "set continues to a run that veilboost jobs lists as finished here",
                )
        trees = run.status.get("trees")
        if not isinstance(trees, int):
            raise NothingToResume(
                f"the run {job.continues!r} was made by an earlier release, and cannot be continued",
                "train a new model, without continues",
                public=True,
            )
        return EarlierRun(run, run.load_share(), trees)

    @property
    def digest(self) -> str:
        """A digest of which nodes this party splits. The active party can compute it too."""
        return self.share.records.digest(self.trees)

    def settle(self, table: PartyTable) -> PartyTable:
        """The table as the earlier run trained on it. Raises if its rows, their order or their values have changed."""
        if not self.run.has_table(table):
            raise StateDiffers(
                f"the rows of {self.share.party}, their order or their values are not those of the run "
                f"{self.run.path.name!r}",
                "continue it with the same tables, or " + _NEW,
                public="the party's rows are not those of the run that the job continues; "
                "train a new model, without continues",
            )
        return with_columns_of(self.share, table)

    def with_new(self, share: ModelShare) -> ModelShare:
        """The share of the whole model, given that of the new trees."""
        return extended(self.share, share, self.trees)

    # --- at the active party ------------------------------------------------------------------------------

    @property
    def skeleton(self) -> Skeleton:
        return cast(Skeleton, self.share.skeleton)

    def check_digests(self, accepted: Mapping[PartyName, Accepted]) -> None:
        """Raise unless every party continues its share of this very model."""
        for name, answer in accepted.items():
            if answer.digests != (self.skeleton.digest(name),):
                raise StateDiffers(
                    f"the share that {name} has of the run {self.run.path.name!r} is of another model", _NEW
                )

    def margins(self) -> Float64Array:
        """The margins of all rows under the earlier model. Raises if they were not kept."""
        kept = self.run.checkpoints.kept()
        if not kept or self.run.status.get("earlier_trees", 0) + kept[0].trees != self.trees:
            raise NothingToResume(
                f"the run {self.run.path.name!r} stopped early or has no checkpoint, so the margins of its model are "
                "not stored",
                _NEW,
            )
        return np.array(kept[0].progress()[0].margin)
