"""What a page tells of a model: its shape, and on whom and on which columns it leans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veilboost.errors import MissingPart
from veilboost.model.explain import describe, importance, importance_by_party
from veilboost.model.joined import JoinedModel, join
from veilboost.model.part import Part
from veilboost.types import PartyName

KIND = "total_gain"  # of all kinds the one that adds up: shares of parties are sums of those of columns


def model_facts(joined: JoinedModel) -> dict[str, Any]:
    """All parts are at hand."""
    about = describe(joined)
    return {
        **{name: about[name] for name in ("trees", "depth", "leaves", "sha256", "splits")},
        "importance_by_party": dict(importance_by_party(joined, KIND)),
        "importance_by_column": [item._asdict() for item in importance(joined, KIND)],
    }


def part_facts(parts: Mapping[PartyName, Part]) -> dict[str, Any] | None:
    """As much as the parts at hand tell: everything, the shape of trees, or how often own columns split."""
    if not parts:
        return None
    try:
        return model_facts(join(parts))
    except MissingPart:
        pass
    found: dict[str, Any] = {"splits_by_column": [each for part in parts.values() for each in _splits(part)]}
    skeleton = next((part.skeleton for part in parts.values() if part.skeleton is not None), None)
    if skeleton is None:
        return found
    gains, splits = np.zeros(len(skeleton.parties)), np.zeros(len(skeleton.parties), dtype=np.int64)
    for tree in skeleton.trees:
        inner = np.flatnonzero(tree.owner >= 0)
        np.add.at(gains, tree.owner[inner], tree.gain[inner])
        np.add.at(splits, tree.owner[inner], 1)
    shares = gains / gains.sum() if gains.sum() > 0 else gains
    return found | {
        "trees": len(skeleton.trees),
        "depth": max((tree.depth for tree in skeleton.trees), default=0),
        "leaves": sum(int((tree.owner < 0).sum()) for tree in skeleton.trees),
        "splits": dict(zip(skeleton.parties, splits.tolist(), strict=True)),
        "importance_by_party": dict(zip(skeleton.parties, shares.tolist(), strict=True)),
    }


def _splits(part: Part) -> list[dict[str, Any]]:
    counts = np.bincount(part.records.feature, minlength=len(part.columns))
    return [
        {
            "party": part.party,
            "column": info.name if part.share_names else f"{part.party}#{at + 1}",
            "splits": int(counts[at]),
        }
        for at, info in enumerate(part.columns)
    ]
