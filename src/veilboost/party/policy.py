"""The owner's policy: what peers may do with this party's data, and one function that decides about a request.

The text of a refusal is sent to the peer that asked. It names the rule, but never tables, columns, the budget spent
before, or requests of other peers. Where the reason needs one of these, the peer only receives that the policy refuses
the request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from veilboost.errors import AgainstPolicy
from veilboost.fields import param
from veilboost.infer.explaining import LEVELS, NONE, PARTY
from veilboost.party.sections import Section
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.statement import Status
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.vertical.messages import SplitAnswer
from veilboost.types import PartyName, Role

ANY = "any"
EVERY = "*"
UNPROTECTED = (Status.BROKEN, Status.UNPROTECTED)


def plain_fingerprint(text: str) -> str:
    """The fingerprint in the form that is compared: lower case, without colons."""
    return text.replace(":", "").lower()


@dataclass(frozen=True)
class Policy(Section):
    """What an owner allows. Everything else is refused."""

    protocols: tuple[str, ...] = param(
        (), "protocols that may use this table, by name (veilboost protocols lists them)", example='["lattice"]'
    )
    allow_unprotected: tuple[str, ...] = param(
        (),
        "those of these protocols that may run although they leave data of this party without protection (status "
        "broken or unprotected for its role; veilboost protocols lists what is not protected)",
    )
    tables: tuple[str, ...] = param((EVERY,), 'tables that jobs may use, by their name under [data]; "*": all')
    columns: tuple[str, ...] = param((EVERY,), 'columns that jobs may use, including the label; "*": all')
    min_rows: int = param(
        100,
        "minimum number of training rows of a job, and of a round if the job samples rows: sums over few rows reveal "
        "individual rows",
        low=1,
    )
    min_node_rows: int = param(
        1,
        "minimum of the job's own min_node_rows: no sums are computed for a node with fewer rows, or for its sibling",
        low=1,
    )
    max_rows: int = param(100_000_000, "maximum number of training rows of a job", low=1)
    max_trees: int = param(1000, "maximum number of boosting rounds of a job", low=1)
    max_depth: int = param(10, "maximum tree depth of a job", low=1)
    max_classes: int = param(100, "maximum number of trees per boosting round: one for each class", low=1)
    max_rewinds: int = param(
        20,
        "how many rounds of a job may be begun again, and how often the job may start again, after a lost connection "
        "for example: each repetition answers the questions of one more round",
        low=0,
    )
    resume_days: float = param(
        30.0,
        "how many days after it stopped a job may be resumed; then its key and its trees are removed",
        low=0,
        high=36_500,
    )
    assignments_per_job: int | None = param(
        None,
        "maximum number of left/right assignments (bits) that one job may reveal about each row: rounds x trees per "
        "round x depth. If it is set, assignments are limited by this number and no longer count as an infinite "
        "epsilon; unset: no limit",
        low=0,
        example="200",
    )
    assignments_total: int | None = param(
        None, "the same for all jobs on this table together; unset: no limit", low=0, example="1000"
    )
    epsilon_per_job: float | None = param(
        None, "maximum epsilon that one job may spend on this table; unset: no limit", low=0, example="1.0"
    )
    epsilon_total: float | None = param(
        None, "maximum epsilon that all jobs together may spend on this table; unset: no limit", low=0, example="8.0"
    )
    delta: float = param(
        DEFAULT_DELTA,
        "the delta at which a job spends epsilon on this table; its noise is calibrated for it",
        low=0,
        high=1,
    )
    predictions_per_day: int = param(
        100_000, "maximum number of rows per day that this party helps to predict, for all peers together", low=0
    )
    predictions_per_peer: int | None = param(
        None, "maximum number of these rows for each peer; unset: no limit of its own", low=0, example="20000"
    )
    deploy_to: tuple[str, ...] = param(
        (),
        "parties that may keep a model deployed with this party, to score rows at any time (veilboost deploy)",
        form="party",
    )
    deployment_days: float = param(365.0, "maximum lifetime of a deployment, in days", low=0, high=36_500)
    lookups_per_day: int = param(
        1_000_000,
        "maximum number of ids per day that all deployments together may look up in this party's table; each id is "
        "looked up once in a deployment",
        low=0,
    )
    lookups_per_peer: int | None = param(
        None, "maximum number of these ids for each peer; unset: no limit of its own", low=0, example="200000"
    )
    export_to: tuple[str, ...] = param(
        (),
        "parties that may receive this party's model share as a plain file: columns, cuts and categories",
        form="party",
    )
    serve_users: tuple[str, ...] = param(
        (),
        "parties that may serve users with this party's encrypted splits; the users see the names of its columns",
        form="party",
    )
    explanations: str = param(
        NONE,
        "what the active party may learn about this party's columns when it explains scores: none (it explains "
        "nothing), party (only the sum of this party's contributions), columns (a contribution for each column, under "
        "a pseudonym), names (under the column's name). Except for none, this party sends the left/right assignments "
        "of explained rows at all of its splits, which reveal the order of their values",
        choices=LEVELS,
    )
    approval: str = param(
        "auto",
        "who decides about training jobs and deployments that this policy permits: auto (they begin at once) or ask (a "
        "person approves each of them, in the web console or with veilboost jobs approve)",
        choices=("auto", "ask"),
    )
    approval_hours: float = param(
        24.0,
        "with approval = ask: hours within which a person can decide, and within which an approved job must begin; a "
        "refusal holds as long",
        low=0.0,
        high=8760,
        low_open=True,
    )
    peers: Mapping[PartyName, tuple[str, ...]] = param(
        dict,
        "parties that are admitted, and the fingerprints of their certificates (veilboost certs show prints them); "
        '"any": every certificate that the authority issued to that name',
        keys="party",
        form="fingerprint",
        example='shop = ["any"]',
    )

    def admits(self, party: PartyName, fingerprint: str) -> bool:
        """Whether the policy admits this certificate of this party."""
        pinned = {plain_fingerprint(entry) for entry in self.peers.get(party, ())}
        return ANY in pinned or plain_fingerprint(fingerprint) in pinned


@dataclass(frozen=True)
class TrainRequest:
    """A request to take part in a training job.

    `peers` are all other parties, each with the fingerprint of its certificate, or None if it has not connected to this
    party. `role` and `owner` are the role and the name of this party. `rows` is None until alignment has counted the
    rows; decide again then. `round_rows` are those that one round trains on, None for all. `min_node_rows` is that of
    the job, None if no party of the protocol can enforce it. `trees_per_round` is known when training starts, `rewinds`
    and `restarts` count the rounds and the starts that were begun again. `table` is None for a helper without a table
    (an authority, a computing service), which has no data to protect. `epsilon` is what the job would spend on this
    party's data; a protocol without noise spends nothing and is judged by its status. `epsilon_spent` and
    `assignments_spent` are those of earlier jobs, by the ledger. `delta` is the delta that the job's noise on this
    party's data is calibrated for, set by the option `delta_option` of the protocol.
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
    round_rows: int | None = None
    trees_per_round: int = 1
    rewinds: int = 0
    restarts: int = 0
    assignments_spent: int = 0
    epsilon: float = 0.0
    delta: float = 0.0
    delta_option: str = "delta"
    epsilon_spent: float = 0.0
    owner: PartyName = ""

    @property
    def assignments(self) -> int:
        """The most left/right assignments of each row that the job may request of this party."""
        if self.role != Role.PASSIVE or SplitAnswer not in self.protocol.messages:
            return 0
        return (self.trees + self.rewinds) * self.trees_per_round * self.depth


class SpentToday(NamedTuple):
    """What today's earlier requests asked for: those of all peers, and those of the peer that asks."""

    by_all: int
    by_peer: int


@dataclass(frozen=True)
class PredictRequest:
    """A request to help predict rows; `predicted` counts the rows of earlier requests."""

    peers: Mapping[PartyName, str | None]
    rows: int
    predicted: SpentToday


@dataclass(frozen=True)
class ExplainRequest:
    """A request to help explain scores, which reveals `assignments` of each row, the splits of this party."""

    peers: Mapping[PartyName, str | None]
    assignments: int = 0
    assignments_spent: int = 0


@dataclass(frozen=True)
class ExportRequest:
    """A request to hand this party's model share to another party as a plain file."""

    peers: Mapping[PartyName, str | None]
    to: PartyName


@dataclass(frozen=True)
class ServeRequest:
    """A request to serve users with this party's encrypted splits."""

    peers: Mapping[PartyName, str | None]
    by: PartyName


@dataclass(frozen=True)
class DeployRequest:
    """A request to keep a model deployed for this many days."""

    peers: Mapping[PartyName, str | None]
    by: PartyName
    days: float


@dataclass(frozen=True)
class LookUpRequest:
    """A request to look up ids; `looked_up` counts the ids of earlier requests."""

    peers: Mapping[PartyName, str | None]
    ids: int
    looked_up: SpentToday


Request: TypeAlias = (
    TrainRequest | PredictRequest | ExplainRequest | DeployRequest | LookUpRequest | ExportRequest | ServeRequest
)


@dataclass(frozen=True)
class Objection:
    """A rule of the policy that a request breaks, the change that would allow it, and an alternative."""

    rule: str
    what: str
    change: str
    instead: str = ""
    public: bool = True  # whether the text may be sent to the peer: it holds nothing of the owner's data

    @property
    def fix(self) -> str:
        return "; ".join(filter(None, (self.instead, f"the owner can {self.change}")))


def decide(policy: Policy, request: Request) -> None:
    """Return if the policy allows the request; otherwise raise an error with the first broken rule and its fix."""
    for found in objections(policy, request):
        raise AgainstPolicy(f"the policy rule {found.rule} refuses it: {found.what}", found.fix, found.public)


def objections(policy: Policy, request: Request) -> Iterator[Objection]:
    """All rules that a request breaks, for a dry run."""
    yield from _peers(policy, request.peers)
    if isinstance(request, TrainRequest):
        yield from _protocol(policy, request)
        yield from _data(policy, request)
        yield from _size(policy, request)
        yield from _assignments(policy, request)
        yield from _budget(policy, request)
    elif isinstance(request, PredictRequest):
        yield from _daily(policy, "predictions", request.rows, "rows", request.predicted)
    elif isinstance(request, DeployRequest):
        yield from _deployment(policy, request)
    elif isinstance(request, LookUpRequest):
        yield from _daily(policy, "lookups", request.ids, "ids", request.looked_up)
    elif isinstance(request, ExplainRequest):
        if policy.explanations == NONE:
            yield Objection(
                "explanations",
                "this party does not help to explain scores",
                f'set explanations = "{PARTY}" under [policy]',
                "predict without an explanation",
            )
        yield from _assignments_total(policy, request, "the explanation")
    elif isinstance(request, ServeRequest):
        if request.by not in policy.serve_users:
            yield Objection(
                "serve_users",
                f"{request.by} is not allowed to serve users with this party's splits",
                f'add "{request.by}" to serve_users under [policy]',
            )
    elif request.to not in policy.export_to:
        yield Objection(
            "export_to",
            f"{request.to} is not allowed to receive this party's model share",
            f'add "{request.to}" to export_to under [policy]',
        )


def _deployment(policy: Policy, request: DeployRequest) -> Iterator[Objection]:
    if request.by not in policy.deploy_to:
        yield Objection(
            "deploy_to",
            f"{request.by} is not allowed to keep a model deployed with this party",
            f'add "{request.by}" to deploy_to under [policy]',
        )
    if not 0 < request.days <= policy.deployment_days:
        yield Objection(
            "deployment_days",
            f"{request.days:g} days are more than {policy.deployment_days:g}, or none",
            "raise deployment_days under [policy]",
            f"deploy with --days {policy.deployment_days:g} or less",
        )


def _peers(policy: Policy, peers: Mapping[PartyName, str | None]) -> Iterator[Objection]:
    for name, fingerprint in peers.items():
        if name not in policy.peers:
            yield Objection("peers", f"{name} is not admitted", f'add {name} = ["any"] under [policy.peers]')
        elif fingerprint is not None and not policy.admits(name, fingerprint):
            yield Objection(
                "peers",
                f"the certificate {plain_fingerprint(fingerprint)[:16]}... of {name} is not admitted",
                f"add its fingerprint to {name} under [policy.peers]",
            )


def unprotected_for(spec: ProtocolSpec, role: str) -> tuple[str, ...]:
    """The data of a role that the protocol leaves without protection, each with its status and the adversary."""
    own = [each for each in spec.statement.protections if each.victim == role]
    if not own:  # the statement makes no claim for this role
        return ("any data",)
    return tuple(f"{each.data} ({each.status}, against {each.adversary})" for each in own if each.status in UNPROTECTED)


def _protocol(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    name = request.protocol.name
    if name not in policy.protocols:
        yield Objection("protocols", f"{name} is not allowed", f'add "{name}" to protocols under [policy]')
    exposed = unprotected_for(request.protocol, request.role)
    if request.table is not None and exposed and name not in policy.allow_unprotected:
        where = f"the settings of {request.owner}" if request.owner else "this party's settings"
        yield Objection(
            "allow_unprotected",
            f"{name} does not protect these data of the {request.role} party: {'; '.join(exposed)}",
            f'add "{name}" to allow_unprotected under [policy] in {where}, if these data may be exposed',
        )


def _data(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    if request.table is None:
        return
    if EVERY not in policy.tables and request.table not in policy.tables:
        yield Objection(
            "tables",
            f"the table {request.table} is not allowed",
            f'add "{request.table}" to tables under [policy]',
            public=False,
        )
    refused = 0 if EVERY in policy.columns else len(set(request.columns) - set(policy.columns))
    if refused:
        yield Objection(
            "columns",
            f"{refused} of the {len(set(request.columns))} features under [data] are not allowed",
            "add them to columns under [policy], or remove them from features under [data]",
            public=False,
        )


def _size(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    least = policy.min_node_rows
    if request.table is not None and least > (request.min_node_rows or 1):
        counted = request.min_node_rows is not None
        yield Objection(
            "min_node_rows",
            f"the job's min_node_rows is {request.min_node_rows}, and the policy requires {least}"
            if counted
            else f"{request.protocol.name} does not count the rows of a node, and the policy requires {least}",
            "lower min_node_rows under [policy]",
            f"set min_node_rows = {least} under [training] in the job file" if counted else "use another protocol",
        )
    fewest, sampled = request.rows, ""
    if request.rows is not None and request.round_rows is not None and request.round_rows < request.rows:
        fewest, sampled = request.round_rows, "lower validation, or sample more rows, in the job file"
    if fewest is not None and not policy.min_rows <= fewest:
        yield Objection(
            "min_rows",
            f"{fewest} training rows{' of a round' if sampled else ''} are fewer than {policy.min_rows}",
            f"lower min_rows under [policy] to {fewest} or less",
            sampled,
        )
    for rule, value, noun, key in (
        ("max_rows", request.rows, "training rows", ""),
        ("max_trees", request.trees, "boosting rounds", "n_estimators"),
        ("max_depth", request.depth, "levels", "max_depth"),
        ("max_classes", request.trees_per_round, "trees per round", ""),
        ("max_rewinds", max(request.rewinds, request.restarts), "rounds or starts that are repeated", ""),
    ):
        most: int = getattr(policy, rule)
        fewer = f"set {key} = {most} under [training] in the job file" if key else ""
        if value is not None and value > most:
            yield Objection(
                rule, f"{value} {noun} are more than {most}", f"raise {rule} under [policy] to {value} or more", fewer
            )


def _daily(policy: Policy, what: str, asked: int, noun: str, spent: SpentToday) -> Iterator[Objection]:
    for rule, before in ((f"{what}_per_day", spent.by_all), (f"{what}_per_peer", spent.by_peer)):
        most: int | None = getattr(policy, rule)
        if most is not None and not 0 <= asked <= most - before:  # a negative or NaN count is refused too
            yield Objection(
                rule,
                f"{asked} {noun} exceed what is left of today's limit of {most}",
                f"raise {rule} under [policy]",
                f"ask again tomorrow, or for fewer {noun}",
            )


def _assignments(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    job, asked = policy.assignments_per_job, request.assignments
    fewer = "lower n_estimators or max_depth under [training] in the job file"
    if job is not None and asked > job:
        yield Objection(
            "assignments_per_job",
            f"the job may request {asked} left/right assignments of each row, and the limit is {job}",
            f"raise assignments_per_job under [policy] to {asked} or more",
            fewer,
        )
    yield from _assignments_total(policy, request, "the job", fewer)


def _assignments_total(
    policy: Policy, request: TrainRequest | ExplainRequest, who: str, fewer: str = ""
) -> Iterator[Objection]:
    total, asked = policy.assignments_total, request.assignments
    if total is not None and asked > total - request.assignments_spent:
        yield Objection(
            "assignments_total",
            f"{who} may request {asked} left/right assignments of each row, which exceeds what is left of {total}",
            "raise assignments_total under [policy]; what was sent cannot be taken back",
            fewer,
        )


def _budget(policy: Policy, request: TrainRequest) -> Iterator[Objection]:
    # Each comparison is written so that a negative or NaN epsilon is refused.
    job, total = policy.epsilon_per_job, policy.epsilon_total
    if request.epsilon != 0 and request.delta != policy.delta:  # first: at another delta, epsilon is another number
        yield Objection(
            "delta",
            f"the job's {request.delta_option} is {request.delta!r}, and the policy's delta is {policy.delta!r}",
            f"set delta = {request.delta!r} under [policy]",
            f"set {request.delta_option} = {policy.delta!r} under [training.options] in the job file",
        )
    if job is not None and not 0 <= request.epsilon <= job:
        yield Objection(
            "epsilon_per_job",
            f"the job would spend epsilon {request.epsilon:g}, and the limit is {job:g}",
            _without_noise(policy, request, "epsilon_per_job") or "raise epsilon_per_job under [policy]",
        )
    if total is not None and not 0 <= request.epsilon <= total - request.epsilon_spent:
        yield Objection(
            "epsilon_total",
            f"the job would spend epsilon {request.epsilon:g}, which exceeds what is left of {total:g}",
            _without_noise(policy, request, "epsilon_total")
            or "raise epsilon_total under [policy]; epsilon that was spent cannot be recovered",
        )


def _without_noise(policy: Policy, request: TrainRequest, rule: str) -> str:
    """What to change if no finite limit allows the job, because it sends something without noise; else nothing."""
    if request.epsilon != math.inf:
        return ""
    if request.assignments and policy.assignments_per_job is None and policy.assignments_total is None:
        return (
            f"set assignments_per_job = {request.assignments} under [policy], which limits left/right assignments "
            "apart from epsilon: they have no noise"
        )
    return f"remove {rule} under [policy], because what the job sends without noise has no finite epsilon"
