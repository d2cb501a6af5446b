"""How the nodes of a level are encrypted: the interface of layouts. `choice.py` decides which one a level uses.

A layout has an active half, which encrypts the nodes of a level and reads their sums, and a passive half, which answers
with encrypted sums. Its messages are its own. All layouts give the same exact sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level
from veilboost.boost.rows import RowGroups
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.fields import param
from veilboost.protocols.vertical import roles
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import Int32Array, Int64Array, PartyName
from veilboost.wire.message import Message

LAYOUTS = ("auto", "runs", "root", "masks", "expansion")
LAYOUT_HELP = (
    "how the nodes of a level are encrypted: in runs of their rows (runs), with reused masks at the root and in runs "
    "below (root), with reused masks at all nodes (masks), or with reused masks at the root and densely below, to be "
    "expanded by the receiver, where that takes less time than runs (expansion); auto: what takes least time on the "
    "line between the parties, which is measured when the job begins, or fewer bytes where that takes hardly longer"
)
MOST_MASKS = 1 << 28  # bytes of masks that a party receives from another: 10,000 bins and more
BYTES_AT_ONCE = 1 << 24  # of ciphertexts per message, about as many as 150,000 rows in runs need


@dataclass(frozen=True)
class LatticeOptions(ProtocolOptions):
    """How sums are encrypted."""

    layout: str = param("auto", LAYOUT_HELP, choices=LAYOUTS)


def only_runs(config: TrainingConfig) -> str:
    """The layout of a protocol that has no such parameter."""
    return "runs"


@dataclass(frozen=True)
class Asked:
    """What the passive half of a layout is asked for: the number of answers, and their room for noise.

    `content` is everything that the exact sums depend on, except the columns and their bins.
    """

    content: tuple[Any, ...]
    answers: int
    largest_sum: int


LayoutOf: TypeAlias = Callable[[TrainingConfig], str]
Noise: TypeAlias = Callable[[Asked, RoundState], Int64Array | None]  # (answers, families, slots), or None


class ActiveLayout(ABC):
    """The active half of a layout. `blocks` is the most answers about one node of the last level."""

    blocks: int = 1

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:  # noqa: B027 - not all need it
        """The job has started; exchange what is sent once per job."""

    @abstractmethod
    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests, content: bytes) -> roles.Waiting:
        """Encrypt the nodes `level.build` and send them with the requests; `content` is a digest of the gradients."""

    @abstractmethod
    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> Mapping[PartyName, Int64Array]:
        """Return for each party the exact sums (nodes of `level.build`, slots, 2)."""


class PassiveLayout(ABC):
    """The passive half of a layout: answers messages of the types `handles`."""

    handles: tuple[type[Message], ...]

    def __init__(self, context: roles.PassiveContext, noise: Noise | None) -> None:
        self.context, self.noise = context, noise

    def begin_training(self, job: roles.PassiveJob) -> None:
        self.job = job

    @abstractmethod
    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Message:
        """Answer a level's request for these nodes."""

    @abstractmethod
    def other(self, message: Message, state: RoundState | None) -> Message:
        """Answer a message that is not a level's request."""


def slots_of(layout: BinLayout, columns: Int32Array | None) -> Int32Array:
    """The slots of these columns, None for all."""
    every = np.arange(layout.slots, dtype=np.int32)
    if columns is None:
        return every
    return every[np.isin(np.repeat(np.arange(layout.features), layout.widths), columns)]
