"""Which session answers: the type of a session's first message decides."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

from veilboost.party.hub import Reach
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import read_job
from veilboost.party.messages import OpenService, PrepareAlignment, Propose, ProposePrediction
from veilboost.party.session import Session, TrainingSession
from veilboost.party.settings import PartySettings
from veilboost.protocols.spec import Setting
from veilboost.wire.message import Catalogue, Message

# Named and not imported: a daemon loads what it is asked for, and sessions may be of packages above this one.
SESSIONS: dict[type[Message], str] = {
    Propose: "veilboost.party.openings:training_session",
    ProposePrediction: "veilboost.party.prediction_session:PredictionSession",
    PrepareAlignment: "veilboost.party.precompute:KeySession",
    OpenService: "veilboost.secure_inference.session:ServiceSession",
}
OPENINGS = Catalogue(tuple(SESSIONS))
TRAINING: dict[Setting, str] = {
    "vertical": "veilboost.party.vertical.session:VerticalSession",
    "horizontal": "veilboost.party.horizontal.session:HorizontalSession",
}


class SessionFactory(Protocol):
    """Raises a coded error where the owner's policy forbids what is proposed."""

    def __call__(
        self, settings: PartySettings, threads: int, reach: Reach, session: bytes, opening: Any, peer: PeerIdentity, /
    ) -> Session: ...


def session_for(opening: Message) -> SessionFactory:
    """Makes the session that this message opens."""
    return _named(SESSIONS[type(opening)])


def training_session(
    settings: PartySettings, threads: int, reach: Reach, session: bytes, proposal: Propose, peer: PeerIdentity
) -> TrainingSession:
    """The session of a training job, as its protocol's setting needs it."""
    job = read_job(proposal.job)
    return _named(TRAINING[job.spec.setting])(settings, threads, reach, session, job, proposal, peer)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
