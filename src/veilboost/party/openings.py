"""Which session answers: the type of a session's first message decides."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

from veilboost.party.answering import Reach
from veilboost.party.identity import PeerIdentity
from veilboost.party.messages import OpenService, PrepareAlignment, Propose, ProposeHorizontal, ProposePrediction
from veilboost.party.settings import PartySettings
from veilboost.wire.codec import Catalogue
from veilboost.wire.message import Message

# Named and not imported: a daemon loads what it is asked for, and sessions may be of packages above this one.
SESSIONS: dict[type[Message], str] = {
    Propose: "veilboost.party.job_session:JobSession",
    ProposeHorizontal: "veilboost.party.horizontal_session:HorizontalSession",
    ProposePrediction: "veilboost.party.prediction_session:PredictionSession",
    PrepareAlignment: "veilboost.party.key_session:KeySession",
    OpenService: "veilboost.secure_inference.session:ServiceSession",
}
OPENINGS = Catalogue(tuple(SESSIONS))


class Session(Protocol):
    """What a host needs of a session."""

    catalogue: Catalogue
    last_heard: float
    over: bool

    def handle(self, peer: PeerIdentity, message: Message, frame: bytes) -> bytes:
        """The frame of the answer."""
        ...

    def give_up(self) -> None: ...


class SessionFactory(Protocol):
    """Raises a coded error where the owner's policy forbids what is proposed."""

    def __call__(
        self, settings: PartySettings, threads: int, reach: Reach, session: bytes, opening: Any, peer: PeerIdentity, /
    ) -> Session: ...


def session_for(opening: Message) -> SessionFactory:
    """Makes the session that this message opens."""
    module, _, name = SESSIONS[type(opening)].partition(":")
    return cast(SessionFactory, getattr(import_module(module), name))
