"""What parties say to each other around alignment, training and prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from veilboost.types import UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals


@dataclass(frozen=True)
class Propose(Message):
    """Driving party to every other: a job, as TOML. `dry_run`: say whether you would, and do nothing.

    `resume`: the job was interrupted here or there; go on from what its run folder keeps.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("the job: its name, parties, protocol, alignment and parameters", "passive"),
        Reveals("the job: its name, parties, roles, protocol and parameters", "participant"),
    )
    job: str
    dry_run: bool
    resume: bool


@dataclass(frozen=True)
class Accepted(Message):
    """The other to the driving party: the owner's policy allows the job.

    `batches`: into how many batches it needs ids to be dealt, so that it can align its own.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that its policy allows the job, and whether its run folder keeps an alignment", "active"),
        Reveals("about how many million rows it has, where its engine reads its table by shard", "active"),
    )
    release: str
    aligned: bool
    batches: int = 1


@dataclass(frozen=True)
class BeginAlignment(Message):
    """Driving party to every other: what follows are the messages of the alignment that the job names.

    They are about the ids of batch 0, of `batches` batches into which a hash under `salt` deals them. Only parties with
    ids are told the salt: others must not know which ids may be in a batch.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("about how many million rows the largest party has, where a table is read by shard", role)
        for role in ("passive", "authority", "csp")
    )
    batches: int = 1
    salt: Annotated[UInt8Array, ArraySpec("uint8", 1)] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))


@dataclass(frozen=True)
class NextBatch(Message):
    """Driving party to every other: `rows` rows of the batch before are common; what follows is about batch `number`.

    What the messages of an alignment tell of a party's rows, such as their number, they tell of every batch by itself.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows of each batch of ids are common to all parties", "passive"),
    )
    number: int
    rows: int


@dataclass(frozen=True)
class EndAlignment(Message):
    """Driving party to every other: alignment is over, so many rows are common."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows are common to all parties", "passive"),)
    rows: int


@dataclass(frozen=True)
class Checkpoint(Message):
    """Driving party to every other: the first `trees` trees are finished; keep what you know of them."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many trees are finished", "passive"),)
    trees: int


@dataclass(frozen=True)
class Finish(Message):
    """Driving party to every other: all is done; write your part and let the table go. `completed`: or give it up."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("whether the job was completed", "passive"),)
    completed: bool


@dataclass(frozen=True)
class ProposePrediction(Message):
    """Driving party to every passive one: help predict so many rows with the model of the run `run`.

    `job` is the job's TOML, whose alignment finds the rows.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that so many rows are to be predicted, with which model", "passive"),
    )
    run: str
    job: str
    rows: int


@dataclass(frozen=True)
class PrepareAlignment(Message):
    """A party with a table to the authority, before a job runs: the key of its next alignment, please.

    `job` is the job's TOML. The answer is an `AlignmentKey`.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which job a party prepares: its name, parties, protocol, alignment and parameters", "authority"),
    )
    job: str


@dataclass(frozen=True)
class OpenService(Message):
    """Anyone to a daemon that has a role in secure inference: what follows is about the model of the run `run`.

    `authority` and `csp` are the parties that number attributes and that decide directions.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("which model is used, and who its authority and CSP are", role)
        for role in ("active", "passive", "authority", "csp")
    )
    run: str
    authority: str
    csp: str


CONTROL_MESSAGES: tuple[type[Message], ...] = (
    Propose,
    ProposePrediction,
    PrepareAlignment,
    OpenService,
    Accepted,
    BeginAlignment,
    NextBatch,
    EndAlignment,
    Checkpoint,
    Finish,
    Done,
)
