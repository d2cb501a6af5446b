"""What a horizontal protocol is: the same columns, different people.

A server drives and has no table. Participants hold rows with labels and answer requests, a message in and a message
out. Helpers (a comparer, an authority) answer too; every participant reaches them by channels of its own, because what
it sends them is not for the server. None of the sides holds a socket, so the same code runs in a test, a simulation and
a daemon.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast

from veilboost.boost.booster import RoundResult, Watcher
from veilboost.config import ProtocolOptions, TrainingConfig
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.data.table import PartyTable
from veilboost.errors import (
    MalformedMessage,
    PeerBroken,
    PeerUnreachable,
    StaleSession,
    UnexpectedMessage,
    UnsupportedCombination,
)
from veilboost.model.part import Part
from veilboost.privacy.account import Account, MemoryAccount
from veilboost.privacy.event import Event
from veilboost.privacy.statement import Statement
from veilboost.types import PartyName
from veilboost.wire.channel import Peers, Pending
from veilboost.wire.message import Message

Answer = TypeVar("Answer", bound=Message)
LOST = (PeerUnreachable, StaleSession, PeerBroken)  # how a peer that was there before is found to be gone


@dataclass(frozen=True)
class ServerContext:
    """What a server is given: its ways to the participants and, by their roles, to the helpers."""

    party: PartyName
    participants: Peers
    helpers: Peers
    config: TrainingConfig
    threads: int = 1
    watcher: Watcher | None = None


@dataclass(frozen=True)
class ParticipantContext:
    """What a participant is given: its own rows, its own ways to the helpers, and what its owner agreed to, if any."""

    party: PartyName
    table: PartyTable
    helpers: Peers
    threads: int = 1
    agreed: TrainingConfig | None = None
    randomness: JobRandomness = field(default_factory=JobRandomness)
    account: Account = field(default_factory=MemoryAccount)


@dataclass(frozen=True)
class HelperContext:
    """What a helper is given: who drives, who takes part, who the other helpers are, and its own ways to these."""

    server: PartyName
    participants: tuple[PartyName, ...]
    helpers: Mapping[str, PartyName]
    ways: Peers
    config: TrainingConfig
    random: Csprng = field(default_factory=Csprng)


@dataclass(frozen=True)
class HorizontalOutcome:
    """What the server has when training ends.

    `reports` is what participants tell of how they protected their rows; `dropped` are those that were lost on the way,
    with the reason.
    """

    part: Part
    history: Sequence[RoundResult]
    reports: Mapping[PartyName, Mapping[str, Any]]
    dropped: Mapping[PartyName, str]


class ServerSide(ABC):
    """The side that drives."""

    @abstractmethod
    def train(self) -> HorizontalOutcome:
        """The whole job, from the first message to the model at every participant."""


class ParticipantSide(ABC):
    """A side with rows."""

    @abstractmethod
    def handle(self, message: Message) -> Message:
        """Answer a request of the server, or raise a coded error and stay as before."""

    @property
    @abstractmethod
    def part(self) -> Part | None:
        """The model, once the job has ended."""


class HelperSide(ABC):
    """A third party. Who asks is what the channel says, not what a message claims."""

    @abstractmethod
    def handle(self, party: PartyName, message: Message) -> Message:
        """Answer a party's request, or raise a coded error and stay as before."""


@dataclass(frozen=True)
class HorizontalSpec:
    """A horizontal protocol: its name, what it claims, and how to make its sides.

    `exact`: without noise the model equals that of `plain` on pooled rows. `fixed` are training parameters that the
    protocol does not leave open. `plan` tells what a participant would release of so many columns.
    """

    name: str
    summary: str
    source: str
    exact: bool
    statement: Statement
    messages: tuple[type[Message], ...]
    server: Callable[[ServerContext], ServerSide]
    participant: Callable[[ParticipantContext], ParticipantSide]
    helpers: Mapping[str, Callable[[HelperContext], HelperSide]] = field(default_factory=dict[str, Any])
    options: type[ProtocolOptions] = ProtocolOptions
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    refuse: Callable[[TrainingConfig], None] | None = None
    plan: Callable[[TrainingConfig, int], Sequence[Event]] | None = None
    setting: Literal["horizontal"] = "horizontal"

    @property
    def roles(self) -> tuple[str, ...]:
        return ("server", "participant", *self.helpers)

    def completed(self, config: TrainingConfig) -> TrainingConfig:
        """The parameters with those that this protocol fixes; what it cannot do is refused here, at the door."""
        config = replace(config, **self.fixed)
        self.options.from_dict(config.options)
        if self.refuse is not None:
            self.refuse(config)
        return config


def read_config(text: str, agreed: TrainingConfig | None) -> TrainingConfig:
    """The parameters in a server's first message, which must be those that the participant's owner agreed to."""
    try:
        config = TrainingConfig.from_dict(cast(Mapping[str, Any], json.loads(text)))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedMessage("the job's parameters cannot be read") from error
    if agreed is not None and config != agreed:
        raise UnexpectedMessage("the server uses other parameters than this participant agreed to")
    return config


def refuse_sampling(config: TrainingConfig, protocol: str) -> None:
    """Rows are in many hands and nobody numbers them, so none are sampled, weighted or held out."""
    if config.scale_pos_weight != 1.0 or config.weighted_bins:
        raise UnsupportedCombination(f"{protocol} takes every row alike", "leave weights out")
    if config.subsample < 1.0 or config.sampling != "uniform":
        raise UnsupportedCombination(f"{protocol} takes every row of every participant", "leave row sampling out")
    if config.early_stopping_rounds is not None:
        raise UnsupportedCombination(
            f"{protocol} has no validation rows, and early_stopping_rounds needs them", "set n_estimators alone"
        )


def ask_those_there(
    peers: Peers, messages: Mapping[PartyName, Message], kind: type[Answer], dropped: dict[PartyName, str]
) -> dict[PartyName, Answer]:
    """Ask all at once; a peer that is gone is noted in `dropped` with the reason, a refusal is raised."""
    pending: dict[PartyName, Pending] = {}
    answers: dict[PartyName, Answer] = {}
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
        if not isinstance(answer, kind):
            raise UnexpectedMessage(f"{name} answered {answer.type_name()} where {kind.type_name()} was expected")
        answers[name] = answer
    return answers
