"""A protocol's statement and a run's transcripts, as a person or a program wants to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from veilboost.model.part import Skeleton
from veilboost.privacy.statement import Statement, Status
from veilboost.types import PartyName
from veilboost.wire.message import Message
from veilboost.wire.transcript import Transcript, by_type

EXPOSED = (Status.BROKEN, Status.OPEN)


def statement_of(skeleton: Skeleton) -> Statement:
    """What the protocol of a model claims, as far as it holds for this model's noise."""
    from veilboost.protocols.registry import protocol_named

    spec = protocol_named(skeleton.protocol)
    return spec.statement.given(skeleton.noise)


def status_of(statement: Statement) -> dict[str, str]:
    """The worst status of each victim."""
    victims = dict.fromkeys(protection.victim for protection in statement.protections)
    return {victim: str(statement.worst_for(victim)) for victim in victims}


def directions_of(protocol: str, statement: Statement) -> list[dict[str, str | None]]:
    """For each victim and what it is about: the worst status, and the attack that this rests on, if one does."""
    from veilboost.audit.attacks import name_of
    from veilboost.protocols.registry import protocol_named

    attacks = {(each.victim, each.subject): name_of(each) for each in protocol_named(protocol).evidence}
    return [
        {
            "victim": victim,
            "subject": subject,
            "status": str(statement.worst_for(victim, subject)),
            "decisive_attack": attacks.get((victim, subject)),
        }
        for victim, subject in statement.directions
    ]


def protections_of(statement: Statement) -> list[dict[str, str]]:
    return [protection.to_dict() for protection in statement.protections]


def learned_by(
    transcripts: Mapping[PartyName, Transcript], messages: Iterable[type[Message]]
) -> dict[PartyName, list[str]]:
    """What each party was shown: the messages it received, joined with what their classes reveal."""
    reveals = {message.type_name(): [item.what for item in message.reveals] for message in messages}
    learned: dict[PartyName, list[str]] = {}
    for name, transcript in transcripts.items():
        received = [kind for direction, _, kind in by_type(transcript.entries) if direction == "received"]
        learned[name] = list(dict.fromkeys(what for kind in received for what in reveals[kind]))
    return learned
