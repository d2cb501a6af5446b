"""Messages of `federboost`, in addition to the common messages."""

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

    reveals = (Reveals("the bucket of every row in every column, after randomized response", "active"),)
    buckets: Annotated[NDArray[np.uint16], ArraySpec("uint16", 2)]


@dataclass(frozen=True)
class BucketRound(BeginRound):
    """Active to passive: a round starts. `fit` is empty, because passive parties do not need the sampled rows."""

    reveals = (Reveals("which columns the round samples", "passive"),)


@dataclass(frozen=True)
class BucketSplits(Message):
    """Active to passive: node `node[i]` of tree `tree[i]` splits by your candidate `handles[i]`; keep its threshold."""

    reveals = (
        Reveals("which of the receiver's columns and buckets split which node of which tree", "passive", exact=True),
    )
    tree: Ints
    node: Ints
    handles: Ints
