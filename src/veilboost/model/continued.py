"""Continuing a finished model: a later training adds its trees to those of an earlier one.

The later training is a job of its own, with fresh keys and noise. Its rows start from the margins of the earlier model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from veilboost.config import LOSS_PARAMETERS, TrainingConfig
from veilboost.data.categories import with_categories
from veilboost.data.table import PartyTable
from veilboost.errors import ForeignColumns, UnsupportedCombination
from veilboost.model.share import ModelShare, Skeleton, SplitRecords
from veilboost.privacy.statement import Noise
from veilboost.types import PartyName

_FIX = "continue it with the same settings, or train a new model"


def check_continues(
    earlier: Skeleton,
    protocol: str,
    objective: str,
    classes: Sequence[str] | None,
    parties: Sequence[PartyName],
    config: TrainingConfig,
) -> None:
    """Raise if a training with these settings cannot add trees to the earlier model."""
    before = (earlier.protocol, earlier.objective, earlier.classes, tuple(earlier.parties))
    after = (protocol, objective, None if classes is None else tuple(classes), tuple(parties))
    for name, old, new in zip(("protocol", "objective", "classes", "parties"), before, after, strict=True):
        if old != new:
            raise UnsupportedCombination(f"the {name} of the earlier model differ from those of this training", _FIX)
    name = LOSS_PARAMETERS.get(objective)
    if name is not None and getattr(earlier.config, name) != getattr(config, name):
        raise UnsupportedCombination(f"{name} of the earlier model differs from that of this training", _FIX)


def with_columns_of(earlier: ModelShare, table: PartyTable) -> PartyTable:
    """The table with the categories of the earlier model. Raises if it has other columns, or other categories."""
    if [column.name for column in table.columns] != [info.name for info in earlier.columns]:
        raise ForeignColumns(
            f"{earlier.party} has other columns than in the earlier model", "give the same columns in the same order"
        )
    columns = list(table.columns)
    for at, (column, info) in enumerate(zip(table.columns, earlier.columns, strict=True)):
        if (column.categories is None) != (info.categories is None):
            raise ForeignColumns(f"a column of {earlier.party} changed between number and category")
        unknown = set(column.categories or ()) - set(info.categories or ())
        if unknown:
            raise ForeignColumns(
                f"column {at + 1} of {earlier.party} has {len(unknown)} categories that are not in the earlier model",
                "train a new model, or replace them by missing values",
            )
        if info.categories is not None and info.categories != column.categories:
            columns[at] = with_categories(column, info.categories)
    return replace(table, columns=tuple(columns))


def extended(earlier: ModelShare, later: ModelShare, trees: int) -> ModelShare:
    """One party's share of both trainings; `trees` is the number of trees of the earlier one."""
    moved = {(tree + trees, node): rule for (tree, node), rule in later.records.rules().items()}
    skeleton = None
    if later.skeleton is not None and earlier.skeleton is not None:
        skeleton = _extended(earlier.skeleton, later.skeleton)
    return ModelShare(
        later.party,
        earlier.columns,
        SplitRecords.of(earlier.records.rules() | moved),
        skeleton,
        earlier.share_names and later.share_names,
    )


def _extended(earlier: Skeleton, later: Skeleton) -> Skeleton:
    every = (*earlier.trees, *later.trees)
    config = replace(
        later.config,
        n_estimators=max(1, len(every) // later.trees_per_round),
        max_depth=max(earlier.config.max_depth, later.config.max_depth),
    )
    noise = later.noise if earlier.noise is Noise.SYSTEM else earlier.noise
    return replace(later, trees=every, base_margin=np.array(earlier.base_margin), config=config, noise=noise)
