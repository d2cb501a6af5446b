"""The roles of a horizontal job: the same columns, different people.

A server drives and has no table. Participants hold rows with labels. When one agrees to a job it introduces itself: a
message about its columns, no row yet. Then it answers requests, a message in and a message out. Helpers (a comparer, an
authority) answer too; every participant reaches them by channels of its own, because what it sends them is not for the
server. An answer that depends on what others send is a promise: it is there when it is called for. None of the sides
holds a socket, so the same code runs in a test, a simulation and a daemon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from veilboost.boost.booster import Watcher
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.data.table import PartyTable
from veilboost.errors import PeerBroken, PeerUnreachable, StaleSession, UnexpectedMessage, UnsupportedCombination
from veilboost.model.share import ModelShare, TrainingOutcome
from veilboost.privacy.event import Account, MemoryAccount
from veilboost.types import BoolArray, PartyName
from veilboost.wire.channel import Peers, Pending, Reply
from veilboost.wire.message import Message

Introduction = TypeVar("Introduction", bound=Message)
LOST = (PeerUnreachable, StaleSession, PeerBroken)  # how a peer that was there before is found to be gone


@dataclass(frozen=True)
class ServerContext:
    """What a server is given: its ways to the participants, and what each told of itself when it agreed to the job."""

    party: PartyName
    participants: Peers
    introductions: Mapping[PartyName, Message]
    config: TrainingConfig
    threads: int = 1
    watcher: Watcher | None = None


class Signer(Protocol):
    """Evidence that a party said something, for others who hear it from a third one."""

    def sign(self, content: bytes) -> str:
        """Evidence that this party says `content`."""
        ...

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        """Return if `party` said so; raise a coded error otherwise."""
        ...


class Trusting:
    """Between the sides of one process, where nobody stands in the middle."""

    def sign(self, content: bytes) -> str:
        return ""

    def check(self, party: PartyName, content: bytes, evidence: str) -> None:
        pass


@dataclass(frozen=True)
class ParticipantContext:
    """What a participant is given: its own rows, its own ways to the helpers, and the job that its owner agreed to."""

    party: PartyName
    table: PartyTable
    helpers: Peers
    config: TrainingConfig
    threads: int = 1
    randomness: JobRandomness = field(default_factory=JobRandomness)
    account: Account = field(default_factory=MemoryAccount)
    voucher: Signer = field(default_factory=Trusting)
    held_out: BoolArray | None = None  # rows that are only watched, for validation


@dataclass(frozen=True)
class HelperContext:
    """What a helper is given: who drives, who takes part, who the other helpers are, and its own ways to these.

    `patience` is how many seconds it may wait for a participant that others wait for; none where all have spoken when
    it is asked, as in one process.
    """

    server: PartyName
    participants: tuple[PartyName, ...]
    helpers: Mapping[str, PartyName]
    ways: Peers
    config: TrainingConfig
    random: Csprng = field(default_factory=Csprng)
    patience: float = 0.0


class ServerRole(ABC):
    """The side that drives."""

    @abstractmethod
    def train(self) -> TrainingOutcome:
        """The whole job, from the first message to the model at every participant."""


class ParticipantRole(ABC):
    """A side with rows."""

    @abstractmethod
    def introduce(self) -> Message:
        """What it tells the server of its columns when it agrees to the job."""

    @abstractmethod
    def handle(self, message: Message) -> Reply:
        """Answer a request of the server, or raise a coded error and stay as before."""

    @property
    @abstractmethod
    def share(self) -> ModelShare | None:
        """The model, once the job has ended."""


class HelperRole(ABC):
    """A third party. Who asks is what the channel says, not what a message claims."""

    @abstractmethod
    def handle(self, party: PartyName, message: Message) -> Reply:
        """Answer a party's request, or raise a coded error and stay as before."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """The job is over: nobody need wait any more."""


def refuse_sampling(config: TrainingConfig, protocol: str) -> None:
    """Rows are in many hands and nobody numbers them, so a sample could not be that of pooled rows."""
    if config.weighted_bins:
        raise UnsupportedCombination(f"{protocol} counts every row alike when it looks for cuts", "leave weights out")
    if config.subsample < 1.0 or config.sampling != "uniform":
        raise UnsupportedCombination(f"{protocol} takes every row of every participant", "leave row sampling out")


def introduction(found: Message, kind: type[Introduction], party: PartyName) -> Introduction:
    """What a participant told of itself, which must be of this protocol's kind."""
    if not isinstance(found, kind):
        raise UnexpectedMessage(f"{party} introduced itself by {found.type_name()}, not {kind.type_name()}")
    return found


def ask_those_there(
    peers: Peers, messages: Mapping[PartyName, Message], dropped: dict[PartyName, str], *kinds: type[Message]
) -> dict[PartyName, Any]:
    """Ask all at once; a peer that is gone is noted in `dropped` with the reason, a refusal is raised."""
    pending: dict[PartyName, Pending] = {}
    answers: dict[PartyName, Any] = {}
    for name, message in messages.items():
        try:
            pending.update(peers.send({name: message}))
        except LOST as error:
            dropped[name] = str(error)
    peers.rounds += 1
    for name, wait in pending.items():
        try:
            answer = wait()
        except LOST as error:
            dropped[name] = str(error)
            continue
        if not isinstance(answer, kinds):
            expected = " or ".join(kind.type_name() for kind in kinds)
            raise UnexpectedMessage(f"{name} answered {answer.type_name()} where {expected} was expected")
        answers[name] = answer
    return answers
