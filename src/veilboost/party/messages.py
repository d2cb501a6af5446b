"""The control messages between parties, around alignment, training and prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

from veilboost.types import Int32Array, UInt8Array
from veilboost.wire.message import ArraySpec, Done, Message, Reveals


@dataclass(frozen=True)
class Propose(Message):
    """Driving party to every other: a job, as TOML. `dry_run`: only check it; the answer is `Checked`.

    `resume`: the job was interrupted; continue from the run folder.
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
    """Other party to driving party: its policy allows the job.

    `batches`: the number of batches into which it needs ids to be partitioned to align its own. `trees` and `digests`
    are those of the checkpoints that it has, if the job resumes; or of its share of the model that the job continues.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that its policy allows the job, and whether its run folder keeps an alignment", "active"),
        Reveals("about how many million rows it has, if it reads its table by shard", "active", given=("batches",)),
        Reveals(
            "how many trees its last checkpoints have, and digests under its own key; or a digest of which nodes it "
            "splits in the model that the job continues, which the active party knows",
            "active",
            given=("trees",),
        ),
        Reveals("that its policy allows the job", "server"),
        Reveals("how many trees its last checkpoints have, and digests under its own key", "server", given=("trees",)),
    )
    release: str
    aligned: bool
    batches: int = 1
    trees: Annotated[Int32Array, ArraySpec("int32", 1)] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checked(Message):
    """Other party to driving party, after a dry run: for each check the code of its error and the public text of it.

    Both are empty if the check passed. `clock` is its time, in seconds since 1970, and `days` those until its
    certificate expires. `batches` as in `Accepted`. `introduction`: that of a participant, encoded.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which checks of the job it passes, the codes of its errors, its clock and certificate", "active"),
        Reveals("which checks of the job it passes, the codes of its errors, its clock and certificate", "server"),
        Reveals("about how many million rows it has, if it reads its table by shard", "active", given=("batches",)),
        Reveals("the introduction that it sends when it joins the job", "server", given=("introduction",)),
    )
    release: str
    checks: tuple[str, ...]
    codes: tuple[str, ...]
    texts: tuple[str, ...]
    clock: float
    days: int
    batches: int = 1
    introduction: Annotated[UInt8Array, ArraySpec("uint8", 1)] = field(default_factory=lambda: np.empty(0, np.uint8))


@dataclass(frozen=True)
class BeginAlignment(Message):
    """Driving party to every other: the messages of the job's alignment follow.

    They concern the ids of batch 0, of `batches` batches partitioned by a hash under `salt`. Only parties with ids
    receive the salt: others must not know which ids may be in a batch.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("about how many million rows the largest party has, if one reads by shard", role, given=("batches",))
        for role in ("passive", "authority", "csp")
    )
    batches: int = 1
    salt: Annotated[UInt8Array, ArraySpec("uint8", 1)] = field(default_factory=lambda: np.empty(0, dtype=np.uint8))


@dataclass(frozen=True)
class NextBatch(Message):
    """Driving party to every other: `rows` rows of the previous batch are common; batch `number` follows.

    Whatever an alignment's messages reveal about a party's rows, such as their number, they reveal for every batch.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows of each batch of ids are common to all parties", "passive"),
    )
    number: int
    rows: int


@dataclass(frozen=True)
class EndAlignment(Message):
    """Driving party to every other: the alignment has ended with this number of common rows."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("how many rows are common to all parties", "passive"),)
    rows: int


PROBE_BYTES = 1 << 20  # the most of a probe


@dataclass(frozen=True)
class Probe(Message):
    """Driving party to every other, and back: random bytes, to measure the line between them. They mean nothing."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()
    padding: Annotated[UInt8Array, ArraySpec("uint8", 1)]


@dataclass(frozen=True)
class Checkpoint(Message):
    """Driving party to every other: the first `trees` trees are finished; store your share of them."""

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("how many trees are finished", role) for role in ("passive", "participant")
    )
    trees: int


@dataclass(frozen=True)
class CheckpointStored(Message):
    """Other party to driving party: the share is stored. The driver returns the digest if the job resumes."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("whether its splits equal those of another checkpoint, by a digest under its own key", "active"),
        Reveals("whether its margins equal those of another checkpoint, by a digest under its own key", "server"),
    )
    digest: str


@dataclass(frozen=True)
class Rejoin(Message):
    """Server to participant, when the job resumes: join it again. The answer is the introduction of the protocol."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("that the job was interrupted", "participant"),)


@dataclass(frozen=True)
class Restore(Message):
    """Server to participant: continue after the first `trees` trees, from the checkpoint with this digest."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("that the job was interrupted, and after which tree", "participant"),
    )
    trees: int
    digest: str


@dataclass(frozen=True)
class Finish(Message):
    """Driving party to every other: the job has ended. `completed`: store your share; otherwise stop the job.

    The model has `trees` trees; `digest` is that of the nodes that the receiver splits (`Skeleton.digest`). A party
    with other splits refuses.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("whether the job was completed, and how many trees the model has", "passive"),
    )
    completed: bool
    trees: int = 0
    digest: str = ""


@dataclass(frozen=True)
class ProposePrediction(Message):
    """Driving party to every passive party: help predict this number of rows with the model of the run `run`.

    `job` is the job's TOML, whose alignment finds the rows. `explain`: the scores are explained, if the owner's policy
    allows it.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("how many rows are to be predicted, and with which model", "passive"),
        Reveals("that the scores are explained", "passive", given=("explain",)),
    )
    run: str
    job: str
    rows: int
    explain: bool = False


@dataclass(frozen=True)
class PrepareAlignment(Message):
    """A party with a table to the authority, before a job: request the key of its next alignment.

    `job` is the job's TOML. The answer is an `AlignmentKey`.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which job a party prepares: its name, parties, protocol, alignment and parameters", "authority"),
    )
    job: str


@dataclass(frozen=True)
class OpenService(Message):
    """Any party to a daemon with a role in secure inference: the messages that follow concern the model of run `run`.

    `authority` numbers the attributes and `csp` decides the directions.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("which model is used, and who its authority and CSP are", role)
        for role in ("active", "passive", "authority", "csp")
    )
    run: str
    authority: str
    csp: str


@dataclass(frozen=True)
class ProposeDeployment(Message):
    """Active to passive: keep your share of the model of the run `run` ready for `days` days.

    `id` is random; `name` and `version` are for people. `digest` is that of the nodes that the receiver splits, in a
    model of `trees` trees. The answer is `Done`; the messages of the deployment may follow.
    """

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals("which model is deployed, under which name and version, and for how long", "passive"),
    )
    id: str
    name: str
    version: int
    run: str
    days: float
    trees: int
    digest: str


@dataclass(frozen=True)
class OpenDeployment(Message):
    """Active to passive: the messages that follow belong to this deployment. The answer is `Done`."""

    reveals: ClassVar[tuple[Reveals, ...]] = ()
    id: str


@dataclass(frozen=True)
class WithdrawDeployment(Message):
    """Active to passive: the deployment ends. The answer is `Done`."""

    reveals: ClassVar[tuple[Reveals, ...]] = (Reveals("that a deployment ends", "passive"),)
    id: str


@dataclass(frozen=True)
class Ping(Message):
    """Any party to any daemon that admits it: are you there?"""

    reveals: ClassVar[tuple[Reveals, ...]] = ()


@dataclass(frozen=True)
class Pong(Message):
    """The answer to a ping. `clock`: seconds since 1970."""

    reveals: ClassVar[tuple[Reveals, ...]] = tuple(
        Reveals("its release, and its clock in whole seconds", role)
        for role in ("active", "passive", "authority", "csp", "server", "participant", "comparer")
    )
    release: str
    clock: int


CONTROL_MESSAGES: tuple[type[Message], ...] = (
    Propose,
    ProposePrediction,
    PrepareAlignment,
    OpenService,
    ProposeDeployment,
    OpenDeployment,
    WithdrawDeployment,
    Accepted,
    Checked,
    BeginAlignment,
    NextBatch,
    EndAlignment,
    Probe,
    Checkpoint,
    CheckpointStored,
    Rejoin,
    Restore,
    Finish,
    Ping,
    Pong,
    Done,
)
