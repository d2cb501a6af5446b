"""The roles of a job on horizontally partitioned data: the same columns, different rows.

The server drives the job and has no table. Participants hold rows with labels. A participant that joins a job sends an
introduction, which describes its columns and contains no row. Then it answers requests. Helpers (a comparer, an
authority) also answer requests; every participant has its own channels to them, because the server must not see what
it sends them. An answer that depends on other parties is a callable that waits for them. No role holds a connection, so
the same code runs in a test, a simulation and a daemon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from veilboost.boost.booster import RoundResult, Watcher
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.data.table import PartyTable
from veilboost.errors import (
    PeerBroken,
    PeerUnreachable,
    StaleSession,
    UnexpectedMessage,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.share import MembershipChange, ModelShare, TrainingOutcome
from veilboost.privacy.event import Account, MemoryAccount
from veilboost.types import BoolArray, Float64Array, PartyName
from veilboost.wire.channel import Peers, Pending, Reply
from veilboost.wire.message import Message

Introduction = TypeVar("Introduction", bound=Message)
LOST = (PeerUnreachable, StaleSession, PeerBroken)  # errors that mean that a peer was lost


class Returned(NamedTuple):
    """A participant that joined again: its introduction, the trees of its last checkpoint, and how to restore that."""

    introduction: Message
    trees: int
    restore: Message | None


class Keeper(Protocol):
    """Stores the progress of a job at its server and its participants."""

    def resumed(self) -> tuple[ModelShare, Sequence[RoundResult]] | None:
        """The trees and the history of an interrupted job; None if no tree is finished."""
        ...

    def restore(self) -> None:
        """Let every participant restore its checkpoint of these trees. The opening of the job comes before."""
        ...

    def store(self, trees: int) -> None:
        """Let every participant store a checkpoint of `trees` trees; sent together with the next request."""
        ...

    def keep(self, share: ModelShare, history: Sequence[RoundResult]) -> None:
        """Store the server's checkpoint, once every participant has answered `store`."""
        ...

    def readmit(self, party: PartyName) -> Returned | None:
        """Let a lost participant join again; None if it cannot be reached now. Raises if it refuses."""
        ...


@dataclass(frozen=True)
class ServerContext:
    """The inputs of a server: its channels to the participants, and the introduction of each.

    `dropped` are participants that could not be reached when the job started, with the reason. `changed` is called when
    a participant is lost, or returns, and the others train on.
    """

    party: PartyName
    participants: Peers
    introductions: Mapping[PartyName, Message]
    config: TrainingConfig
    threads: int = 1
    watcher: Watcher | None = None
    keeper: Keeper | None = None
    dropped: Mapping[PartyName, str] = field(default_factory=dict[PartyName, str])
    changed: Callable[[MembershipChange], None] | None = None


class Signer(Protocol):
    """Signs content, and verifies signatures of others on content that a third party forwards."""

    def sign(self, content: bytes) -> str:
        """Return evidence that `content` is from this party."""
        ...

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        """Return if `content` is from `party`; raise a coded error otherwise."""
        ...


class Trusting:
    """No signatures, for roles in one process, where no third party forwards messages."""

    def sign(self, content: bytes) -> str:
        return ""

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        pass


@dataclass(frozen=True)
class ParticipantContext:
    """The inputs of a participant: its rows, its channels to the helpers, and the job that its owner agreed to.

    `participants` are those that this job names. `attempt` is random: a job that resumes has another one, and with it
    other keys of masks. `session` is that of the server, in which a participant may join again.
    """

    party: PartyName
    participants: tuple[PartyName, ...]
    table: PartyTable
    helpers: Peers
    config: TrainingConfig
    threads: int = 1
    randomness: JobRandomness = field(default_factory=JobRandomness)
    account: Account = field(default_factory=MemoryAccount)
    signer: Signer = field(default_factory=Trusting)
    held_out: BoolArray | None = None  # rows for validation only
    attempt: bytes = b""
    session: bytes = b""


@dataclass(frozen=True)
class ParticipantState:
    """A participant's state between two rounds: the margins of its rows, and a digest of all that must not change."""

    margin: Float64Array
    digest: bytes


@dataclass(frozen=True)
class HelperContext:
    """The inputs of a helper: the server, the participants, the other helpers, and its channels to these.

    `wait_seconds` is how long it may wait for a participant that others depend on; 0 if all participants have sent
    their messages before the helper answers, as in one process.
    """

    server: PartyName
    participants: tuple[PartyName, ...]
    helpers: Mapping[str, PartyName]
    channels: Peers
    config: TrainingConfig
    random: Csprng = field(default_factory=Csprng)
    wait_seconds: float = 0.0


class ServerRole(ABC):
    """The role that drives the job."""

    def check(self) -> Mapping[PartyName, VeilBoostError]:
        """Which introductions differ from those of most participants, and how. Raises if the job cannot start."""
        return {}

    @abstractmethod
    def train(self) -> TrainingOutcome:
        """Run the whole job, from the first message to the model at every participant."""


class ParticipantRole(ABC):
    """The role of a party with rows."""

    @abstractmethod
    def introduce(self) -> Message:
        """Return the description of its columns for the server, when it joins the job."""

    @abstractmethod
    def handle(self, message: Message) -> Reply:
        """Answer a request of the server, or raise a coded error and keep the state unchanged."""

    @property
    @abstractmethod
    def share(self) -> ModelShare | None:
        """The model, after the job has ended."""

    def state(self, trees: int) -> ParticipantState:
        """The state after this number of trees. Raises unless it is the current one."""
        raise UnexpectedMessage("this protocol has no checkpoints")

    def restore(self, trees: int, state: ParticipantState) -> None:
        """Continue after this number of trees. Raises `StateDiffers` if the job or the table has changed since."""
        raise UnexpectedMessage("this protocol has no checkpoints")

    @property
    def report(self) -> Mapping[str, Any]:
        """How it protected its rows, for its owner and for the server."""
        return {}


class HelperRole(ABC):
    """The role of a third party. The channel identifies the sender of a request, not the message."""

    @abstractmethod
    def handle(self, party: PartyName, message: Message) -> Reply:
        """Answer a party's request, or raise a coded error and keep the state unchanged."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End all waiting: the job has ended."""


def refuse_sampling(config: TrainingConfig, protocol: str) -> None:
    """Raise for row sampling and weighted bins."""
    if config.weighted_bins:
        raise UnsupportedCombination(f"{protocol} does not support weighted_bins", "set weighted_bins to False")
    if config.subsample < 1.0 or config.sampling != "uniform":
        raise UnsupportedCombination(
            f"{protocol} does not support row sampling", "set subsample to 1 and sampling to uniform"
        )


def introduction(found: Message, kind: type[Introduction], party: PartyName) -> Introduction:
    """Return a participant's introduction; raise if it is not of this protocol."""
    if not isinstance(found, kind):
        raise UnexpectedMessage(f"{party} introduced itself with {found.type_name()} instead of {kind.type_name()}")
    return found


def ask_reachable(
    peers: Peers,
    messages: Mapping[PartyName, Message],
    dropped: dict[PartyName, str],
    *kinds: type[Message],
    losses: tuple[type[VeilBoostError], ...] = LOST,
) -> dict[PartyName, Any]:
    """Send all requests at once; add lost peers to `dropped` with the reason, and raise if a peer refuses.

    `losses`: the errors that mean that a peer was lost.
    """
    pending: dict[PartyName, Pending] = {}
    answers: dict[PartyName, Any] = {}
    for name, message in messages.items():
        try:
            pending[name] = peers.request(name, message)
        except losses as error:
            dropped[name] = str(error)
    peers.rounds += 1
    for name, wait in pending.items():
        try:
            answer = wait()
        except losses as error:
            dropped[name] = str(error)
            continue
        if not isinstance(answer, kinds):
            expected = " or ".join(kind.type_name() for kind in kinds)
            raise UnexpectedMessage(f"{name} answered {answer.type_name()} instead of {expected}")
        answers[name] = answer
    return answers
