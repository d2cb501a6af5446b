"""Feature importance by column and by party, and a summary of a model."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from veilboost.errors import InvalidParameter
from veilboost.model.joined import JoinedModel
from veilboost.types import Float64Array, Int32Array, PartyName

IMPORTANCE_KINDS = ("gain", "total_gain", "cover", "total_cover", "weight")


class ColumnImportance(NamedTuple):
    """`column` is masked if its owner does not share names."""

    party: PartyName
    column: str
    value: float


PartyImportance: TypeAlias = tuple[PartyName, float]


def importance(joined: JoinedModel, kind: str = "gain", normalise: bool = True) -> list[ColumnImportance]:
    """The importance of each column, in descending order.

    Parameters
    ----------
    joined
        The model.
    kind
        As in XGBoost: weight is the number of splits by a column, total_gain and total_cover are the sums of their
        loss reductions and hessian sums, gain and cover are the means of these.
    normalise
        Divide by the sum, so that values add up to 1.

    Returns
    -------
    list
        (party, column, value) for every column, 0 for columns without a split.
    """
    values = _by_group(joined, kind, normalise, np.arange(len(joined.columns), dtype=np.int32))
    names = joined.shown_names
    return [
        ColumnImportance(joined.skeleton.parties[joined.column_owner[feature]], names[feature], float(values[feature]))
        for feature in np.argsort(-values, kind="stable")
    ]


def importance_by_party(joined: JoinedModel, kind: str = "gain", normalise: bool = True) -> list[PartyImportance]:
    """The same per party, over all splits that a party owns, in descending order."""
    values = _by_group(joined, kind, normalise, joined.column_owner, groups=len(joined.skeleton.parties))
    return [(joined.skeleton.parties[party], float(values[party])) for party in np.argsort(-values, kind="stable")]


def _by_group(
    joined: JoinedModel, kind: str, normalise: bool, group_of: Int32Array, groups: int | None = None
) -> Float64Array:
    """Importance of groups of columns; column f belongs to `group_of[f]`."""
    if kind not in IMPORTANCE_KINDS:
        raise InvalidParameter(f"kind={kind!r} is not one of {', '.join(IMPORTANCE_KINDS)}", "use one of these names")
    count = len(group_of) if groups is None else groups
    splits = np.zeros(count)
    totals = np.zeros(count)
    for tree in joined.trees:
        inner = tree.inner
        group = group_of[tree.feature[inner]]
        splits += np.bincount(group, minlength=count)
        counted = tree.cover if kind.endswith("cover") else tree.gain
        totals += np.bincount(group, weights=counted[inner], minlength=count)
    if kind == "weight":
        values = splits
    elif kind.startswith("total_"):
        values = totals
    else:
        values = totals / np.maximum(splits, 1)
    whole = values.sum()
    return values / whole if normalise and whole > 0 else values


def describe(joined: JoinedModel) -> dict[str, Any]:
    """A summary for JSON, without any column's name, threshold or category."""
    owners = np.concatenate([tree.owner[tree.inner] for tree in joined.trees] or [np.empty(0, dtype=np.int32)])
    splits = np.bincount(owners, minlength=len(joined.skeleton.parties))
    return {
        "protocol": joined.skeleton.protocol,
        "objective": joined.skeleton.objective,
        "classes": None if joined.skeleton.classes is None else list(joined.skeleton.classes),
        "trees": len(joined.trees),
        "rounds": len(joined.trees) // joined.skeleton.trees_per_round,
        "trees_per_round": joined.skeleton.trees_per_round,
        "depth": max((tree.depth for tree in joined.skeleton.trees), default=0),
        "leaves": sum(len(tree.leaves) for tree in joined.trees),
        "base_margin": joined.skeleton.base_margin.tolist(),
        "columns": {share.party: len(share.columns) for share in joined.shares},
        "splits": {name: int(count) for name, count in zip(joined.skeleton.parties, splits, strict=True)},
        "sha256": joined.sha256(),
    }
