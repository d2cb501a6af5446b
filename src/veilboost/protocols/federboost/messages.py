"""What `federboost` sends beside the common messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from veilboost.protocols.vertical.messages import BeginRound, Ints
from veilboost.wire.message import ArraySpec, Message, Reveals


@dataclass(frozen=True)
class BucketsRequest(Message):
    """Active to passive: send the buckets of all rows."""

    reveals = ()


@dataclass(frozen=True)
class Buckets(Message):
    """Passive to active: the bucket of every row in every column, (rows, columns), under randomized response."""

    reveals = (
        Reveals("for every row and column the bucket of its value, or by randomized response another one", "active"),
    )
    buckets: Annotated[NDArray[np.uint16], ArraySpec("uint16", 2)]


@dataclass(frozen=True)
class BucketRound(BeginRound):
    """Active to passive: a round starts. Which rows it samples nobody else needs to know: `fit` is empty."""

    reveals = (Reveals("which columns the round samples", "passive"),)


@dataclass(frozen=True)
class BucketSplits(Message):
    """Active to passive: node `node[i]` of tree `tree[i]` splits by your candidate `handles[i]`; keep its threshold."""

    reveals = (Reveals("which of its columns and buckets split which node of which tree", "passive", exact=True),)
    tree: Ints
    node: Ints
    handles: Ints
