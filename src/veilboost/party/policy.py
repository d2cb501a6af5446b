"""The owner's word: who may do what with this party's data, as data and one function that decides.

What a refusal says goes to the peer that asked. So it names the rule, but never tables, columns, what was spent
before, or what other peers did; where it cannot say what is wrong without them, the peer is not told more than that
the policy forbids it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from veilboost.errors import AgainstPolicy
from veilboost.fields import param
from veilboost.party.sections import Section
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.statement import Status
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import PartyName

ANY = "any"
EVERY = "*"
UNPROTECTED = (Status.BROKEN, Status.UNPROTECTED)


def plain_fingerprint(text: str) -> str:
    """As it is compared: lower case, no colons."""
    return text.replace(":", "").lower()


@dataclass(frozen=True)
class Policy(Section):
    """What an owner allows. What is not named is refused."""

    protocols: tuple[str, ...] = param(
        (), "protocols that may run on this table, by name (veilboost protocols)", example='["lattice"]'
    )
    allow_unprotected: tuple[str, ...] = param(
        (), "those of them that may run although they do not protect this party's data (broken or open)"
    )
    tables: tuple[str, ...] = param((EVERY,), 'tables that may be used, by their name under [data]; "*" is every one')
    columns: tuple[str, ...] = param((EVERY,), 'columns that may be used, the label too; "*" is every one')
    min_rows: int = param(100, "fewest rows a job may train on: sums over few people speak of each", low=1)
    min_node_rows: int = param(
        1, "least min_node_rows of a job: no sums are made of a node with fewer rows, or next to one", low=1
    )
    max_rows: int = param(100_000_000, "most rows a job may train on", low=1)
    max_trees: int = param(1000, "most boosting rounds of a job", low=1)
    max_depth: int = param(10, "deepest trees of a job", low=1)
    epsilon_per_job: float | None = param(
        None, "most epsilon a job may spend on this table; unset: no limit", low=0, example="1.0"
    )
    epsilon_total: float | None = param(
        None, "most epsilon that all jobs together may spend on this table; unset: no limit", low=0, example="8.0"
    )
    delta: float = param(
        DEFAULT_DELTA, "the delta at which a job spends epsilon on this table; its noise is made for it", low=0, high=1
    )
    predictions_per_day: int = param(100_000, "most rows to help predict in a day, for all peers together", low=0)
    export_to: tuple[str, ...] = param(
        (),
        "parties that may have this party's part of a model as a plain file: columns, cuts, categories",
        form="party",
    )
    serve_users: tuple[str, ...] = param(
        (),
        "parties that may serve users with this party's splits, encrypted; names of its columns are shown to the users",
        form="party",
    )
    peers: Mapping[PartyName, tuple[str, ...]] = param(
        dict,
        "parties that may take part, and the fingerprints of their certificates (veilboost certs show); "
        '"any" is every certificate that our authority issued to that name',
        keys="party",
        form="fingerprint",
        example='shop = ["any"]',
    )

    def admits(self, party: PartyName, fingerprint: str) -> bool:
        """Whether this certificate may speak for this party."""
        pinned = {plain_fingerprint(entry) for entry in self.peers.get(party, ())}
        return ANY in pinned or plain_fingerprint(fingerprint) in pinned


@dataclass(frozen=True)
class TrainRequest:
    """A training job, as this owner is asked to take part in it.

    `peers` are all other parties, each with the fingerprint of the certificate it showed here, or None where it has
    not connected. `role` is this owner's. `rows` is None until alignment has counted them; decide again when it
    has. `min_node_rows` is the job's, None where nobody in the protocol could honour it. `table` is None for an
    owner that helps without one (an authority, a computing service): it has nothing to be exposed. `epsilon` is
    what the job would spend on this owner's data, `epsilon_spent` what its ledger says was spent before; a protocol
    without noise spends nothing and is judged by its status. `delta` is what the job's noise on this owner's data is
    made for, by the option of the protocol that `delta_option` names.
    """

    peers: Mapping[PartyName, str | None]
    protocol: ProtocolSpec
    role: str
    table: str | None
    columns: tuple[str, ...]
    trees: int
    depth: int
    min_node_rows: int | None = 1
    rows: int | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    delta_option: str = "delta"
    epsilon_spent: float = 0.0


@dataclass(frozen=True)
class PredictRequest:
    """So many rows to help predict, after so many today."""

    peers: Mapping[PartyName, str | None]
    rows: int
    predicted_today: int


@dataclass(frozen=True)
class ExportRequest:
    """This owner's part of a model is to be handed to a party as a plain file."""

    peers: Mapping[PartyName, str | None]
    to: PartyName


@dataclass(frozen=True)
class ServeRequest:
    """A party wants to serve users with this owner's splits, encrypted."""

    peers: Mapping[PartyName, str | None]
    by: PartyName


Request: TypeAlias = TrainRequest | PredictRequest | ExportRequest | ServeRequest


@dataclass(frozen=True)
class Objection:
    """A rule of the policy that a request breaks, what the owner would change to allow it, and what else would do."""

    rule: str
    what: str
    change: str
    instead: str = ""
    public: bool = True  # whether it holds nothing of the owner's data

    @property
    def fix(self) -> str:
        return "; ".join(filter(None, (self.instead, f"the owner can {self.change}")))


def decide(policy: Policy, request: Request) -> None:
    """Return if the policy allows the request; the error names the first broken rule and how to change it."""
    for found in objections(policy, request):
        raise AgainstPolicy(f"the owner's rule {found.rule} forbids it: {found.what}", found.fix, found.public)


def objections(policy: Policy, request: Request) -> Iterator[Objection]:
    """All that speaks against a request, for a dry run that tells everything at once."""
    yield from _peers(policy, request.peers)
    if isinstance(request, TrainRequest):
        yield from _protocol(policy, request)
        yield from _data(policy, request)
        yield from _size(policy, request)
        yield from _budget(policy, request)
    elif isinstance(request, PredictRequest):
        # Written so that a negative or not-a-number count cannot pass.
        if not 0 <= request.rows <= policy.predictions_per_day - request.predicted_today:
            yield Objection(
                "predictions_per_day",
                f"{request.rows} rows are more than are left of today's {policy.predictions_per_day}",
                "raise predictions_per_day under [policy]; otherwise ask again tomorrow",
            )
    elif isinstance(request, ServeRequest):
        if request.by not in policy.serve_users:
            yield Objection(
                "serve_users",
                f"{request.by} may not serve users with this party's splits",
                f'add "{request.by}" to serve_users under [policy]',
            )
    elif request.to not in policy.export_to:
        yield Objection(
            "export_to",
            f"{request.to} may not have this party's part of the model",
            f'add "{request.to}" to export_to under [policy]',
        )


def _peers(policy: Policy, peers: Mapping[PartyName, str | None]) -> Iterator[Objection]:
    for name, fingerprint in peers.items():
        if name not in policy.peers:
            yield Objection("peers", f"it does not name {name}", f'add {name} = ["any"] under [policy.peers]')
        elif fingerprint is not None and not policy.admits(name, fingerprint):
            yield Objection(
                "peers",
                f"it does not name the certificate {plain_fingerprint(fingerprint)[:16]}... of {name}",
                f"add the fingerprint to {name} under [policy.peers]",
            )


def _protocol(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    name = request.protocol.name
    if name not in policy.protocols:
        yield Objection("protocols", f"it does not name {name}", f'add "{name}" to protocols under [policy]')
    # A role that the statement does not speak of is promised nothing.
    told = any(protection.victim == request.role for protection in request.protocol.statement.protections)
    status = request.protocol.statement.worst_for(request.role) if told else Status.UNPROTECTED
    if request.table is not None and status in UNPROTECTED and name not in policy.allow_unprotected:
        yield Objection(
            "allow_unprotected",
            f"{name} is {status} for the {request.role} side",
            f'add "{name}" to allow_unprotected under [policy], if this party\'s data may be exposed',
        )


def _data(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    if request.table is None:
        return
    if EVERY not in policy.tables and request.table not in policy.tables:
        yield Objection(
            "tables",
            f"it does not name the table {request.table}",
            f'add "{request.table}" to tables under [policy]',
            public=False,
        )
    refused = 0 if EVERY in policy.columns else len(set(request.columns) - set(policy.columns))
    if refused:
        yield Objection(
            "columns",
            f"{refused} of the {len(set(request.columns))} columns under [data] are not named",
            "add them to columns under [policy], or leave them out of [data]",
            public=False,
        )


def _size(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    least = policy.min_node_rows
    if request.table is not None and least > (request.min_node_rows or 1):
        counted = request.min_node_rows is not None
        yield Objection(
            "min_node_rows",
            f"the job's {request.min_node_rows} is less than {least}"
            if counted
            else f"{request.protocol.name} does not count the rows of a node, of which it wants {least}",
            "lower min_node_rows under [policy]",
            f"put min_node_rows = {least} under [training] in the job" if counted else "",
        )
    if request.rows is not None and not policy.min_rows <= request.rows:
        yield Objection(
            "min_rows", f"{request.rows} rows are fewer than {policy.min_rows}", "lower min_rows under [policy]"
        )
    for rule, value, noun in (
        ("max_rows", request.rows, "rows"),
        ("max_trees", request.trees, "boosting rounds"),
        ("max_depth", request.depth, "levels"),
    ):
        most: int = getattr(policy, rule)
        if value is not None and value > most:
            yield Objection(rule, f"{value} {noun} are more than {most}", f"raise {rule} under [policy]")


def _budget(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    # Each comparison is written so that a negative or not-a-number epsilon cannot pass.
    job, total = policy.epsilon_per_job, policy.epsilon_total
    if request.epsilon != 0 and request.delta != policy.delta:  # first: at another delta, epsilon is another number
        yield Objection(
            "delta",
            f"the job's {request.delta_option} is {request.delta!r}, and the policy's delta {policy.delta!r}",
            f"set delta = {request.delta!r} under [policy]; "
            f"otherwise write {request.delta_option} = {policy.delta!r} under [training.options] of the job",
        )
    if job is not None and not 0 <= request.epsilon <= job:
        yield Objection(
            "epsilon_per_job",
            f"epsilon {request.epsilon:g} is not within {job:g}",
            "raise epsilon_per_job under [policy]",
        )
    if total is not None and not 0 <= request.epsilon <= total - request.epsilon_spent:
        yield Objection(
            "epsilon_total",
            f"epsilon {request.epsilon:g} is more than is left of {total:g}",
            "raise epsilon_total under [policy]; what was spent cannot be taken back",
        )
