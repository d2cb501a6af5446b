"""Which value is whose: rows stand node after node, and within a node shard after shard."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.types import AnyArray, Int64Array


def dealt(values: AnyArray, by_shard: Int64Array) -> list[AnyArray]:
    """One value per row, node after node, dealt out to the shards; `by_shard` (shards, nodes) counts their rows."""
    if len(by_shard) == 1:
        return [values]
    pieces = np.split(values, by_shard.T.ravel().cumsum()[:-1])
    return [np.concatenate(pieces[shard :: len(by_shard)]) for shard in range(len(by_shard))]


def collected(parts: Sequence[AnyArray], by_shard: Int64Array) -> AnyArray:
    """The inverse: what shards tell of their rows, node after node."""
    if len(parts) == 1:
        return parts[0]
    pieces = [np.split(part, counts.cumsum()[:-1]) for part, counts in zip(parts, by_shard, strict=True)]
    return np.concatenate([own[node] for node in range(by_shard.shape[1]) for own in pieces])
