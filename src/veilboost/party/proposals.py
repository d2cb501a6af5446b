"""What a person reads before approving a proposal: who asks for which data, what it would reveal, and what it costs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from veilboost.align.api import alignment_named
from veilboost.config import TrainingConfig
from veilboost.errors import printable
from veilboost.party.coordinator import without_addresses
from veilboost.party.job import Job
from veilboost.party.messages import (
    Accepted,
    BeginAlignment,
    Checkpoint,
    CheckpointStored,
    EndAlignment,
    Finish,
    NextBatch,
)
from veilboost.party.policy import TrainRequest
from veilboost.party.settings import PartySettings
from veilboost.privacy.event import assignments_of
from veilboost.privacy.ledger import Ledger
from veilboost.protocols.spec import ProtocolSpec
from veilboost.wire.message import Message

Kind = Literal["training", "deployment"]
_AROUND = (Accepted, BeginAlignment, NextBatch, EndAlignment, Checkpoint, CheckpointStored, Finish)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is proposed. All texts are printable, whatever the peer has sent.

    Attributes
    ----------
    kind
        "training" or "deployment".
    role
        The role of the party that decides.
    job, protocol
        The name of the job or deployment, and its protocol.
    settings
        All settings by name, as text.
    table, columns, rows
        What would be used of this party. Private set intersection may find fewer rows.
    statements
        The claims of the protocol: `victim`, `data`, `adversary`, `status`, `why`, and the `attack` that decides it.
    reveals
        `what` the receiver `to` (a role) would learn.
    epsilon, delta, epsilon_left
        What the job would spend on this party's data, and what would be left of `epsilon_total`; None without a limit.
    size
        `trees`, `depth`, `bins` and `parties` with a table, to predict time and bytes; None for a deployment.
    assignments, assignments_left
        The left/right assignments of each row that the job may request, and what would be left of `assignments_total`;
        None without a limit, and for a deployment.
    """

    kind: Kind
    role: str
    job: str
    protocol: str
    settings: Mapping[str, str]
    table: str | None
    columns: tuple[str, ...]
    rows: int
    statements: tuple[Mapping[str, str | None], ...] = ()
    reveals: tuple[Mapping[str, str], ...] = ()
    epsilon: float = 0.0
    delta: float = 0.0
    epsilon_left: float | None = None
    size: Mapping[str, int] | None = None
    assignments: int | None = None
    assignments_left: int | None = None


def digest_of(*parts: str) -> str:
    """The digest of the settings of a proposal."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def job_digest(job: Job) -> str:
    """The digest of a job. Parties may have new addresses."""
    return digest_of("training", replace(without_addresses(job), record=job.record).text())


def training_subject(
    settings: PartySettings, job: Job, request: TrainRequest, columns: Sequence[str], rows: int
) -> Subject:
    """A training job in this party's role. `request`: the one that the policy has allowed."""
    spec, total = job.spec, settings.policy.epsilon_total
    most, book = settings.policy.assignments_total, Ledger(settings.ledger_file)
    left = None if total is None else total - book.spent(settings.policy.delta) - request.epsilon
    assignments_left = None if most is None else most - assignments_of(book.events()) - request.assignments
    messages = (*_AROUND, *spec.messages)
    if spec.setting == "vertical":
        messages = (*messages, *alignment_named(job.alignment).messages)
    training = spec.completed(job.training, rows)
    return Subject(
        kind="training",
        role=request.role,
        job=job.name,
        protocol=spec.name,
        settings=_settings_of(job, training),
        table=request.table,
        columns=tuple(columns),
        rows=rows,
        statements=_statements(spec),
        reveals=revealed(messages, {job.role_of(name) for name in job.parties}, request.role),
        epsilon=request.epsilon,
        delta=request.delta,
        epsilon_left=left,
        size={
            "trees": training.n_estimators,
            "depth": training.max_depth,
            "bins": training.max_bin,
            "parties": len(job.owners),
        },
        assignments=request.assignments,
        assignments_left=assignments_left,
    )


def _settings_of(job: Job, training: TrainingConfig) -> dict[str, str]:
    parties = ", ".join(f"{name} ({job.role_of(name)})" for name in job.parties)
    options = vars(job.spec.options.from_dict(training.options))  # also those at their defaults
    about = {} if job.continues is None else {"continues": job.continues}
    values = {**about, "validation": job.validation, "record": job.record, **vars(training), **options}
    if job.spec.setting == "vertical":
        values = {"alignment": job.alignment, "id_hash": job.id_hash, **values}
    del values["options"]
    return {"parties": parties, **{name: printable(str(value)) for name, value in values.items()}}


def _statements(spec: ProtocolSpec) -> tuple[Mapping[str, str | None], ...]:
    attacks = {(each.victim, each.subject): each.attack or "lower bound on epsilon" for each in spec.evidence}
    return tuple(
        {**each.to_dict(), "attack": attacks.get((each.victim, each.subject))} for each in spec.statement.protections
    )


def revealed(messages: Iterable[type[Message]], roles: Iterable[str], own: str) -> tuple[Mapping[str, str], ...]:
    """What messages reveal to these roles, each fact once; what others learn comes before what the `own` role does."""
    known = set(roles)
    found = dict.fromkeys((each.what, each.to) for message in messages for each in message.reveals if each.to in known)
    return tuple({"what": what, "to": to} for what, to in sorted(found, key=lambda fact: fact[1] == own))
