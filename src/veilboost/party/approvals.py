"""Proposals that wait for a person, with `approval = "ask"` under [policy], and the signed decisions about them.

A proposal that the policy permits is held in the folder `approvals/ID` of the runs folder. Each file in it is written
once: `proposal.json` when a peer asks, `decision.json` when a person decides, `closed.json` when the approval is used
or the peer was told that its time is over. The decision is signed with the key of the party's certificate and covers
the whole proposal. The daemon reads it at the peer's next proposal, so it needs no restart.

For commands and web pages: `list_proposals` and `find_proposal` return `Proposal` objects (pending and decided ones,
newest first), `decide` stores a `Decision`, and `verify` checks its signature. `run_approval` is the approval under
which a run began. `veilboost.plan.proposals.predicted` predicts time and bytes of a proposal.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from veilboost import durable
from veilboost.durable import keeping, reading
from veilboost.errors import (
    ApprovalPending,
    ApprovalRefused,
    DamagedState,
    InvalidDecision,
    InvalidParameter,
    LimitReached,
    StateUnavailable,
    UnknownProposal,
    VeilBoostError,
    printable,
)
from veilboost.logs import EventLogger
from veilboost.party.hub import own_identity, revoked_at
from veilboost.party.identity import PeerIdentity, check_signed, read_public, sign
from veilboost.party.proposals import Subject, digest_of
from veilboost.party.runs import APPROVAL, RunFolder, date_text
from veilboost.party.settings import PartySettings
from veilboost.types import PartyName

APPROVALS = "approvals"  # in the runs folder
PROPOSAL, DECISION, CLOSED = "proposal.json", "decision.json", "closed.json"
PURPOSE = "decision about a proposal"  # of the signatures
LONGEST = 1 << 16  # bytes of a proposal
LONGEST_REASON, LONGEST_NAME = 1000, 100  # characters
HOUR = 3600.0
State = Literal["pending", "approved", "refused", "expired"]
_ID = re.compile(r"[0-9a-f]{16}-[0-9]{1,9}")
_LOG = EventLogger(__name__)
_holding = threading.Lock()  # so that proposals that come at once cannot exceed the limit of their peer


@dataclass(frozen=True)
class Decision:
    """What a person decided. `at` and `until`: seconds since 1970; an approval that was not used by then has expired.

    `reason` stays at this party: the asking party receives only a code.
    """

    approved: bool
    by: str
    reason: str
    at: float
    until: float
    signature: str = ""


@dataclass(frozen=True, kw_only=True)
class Proposal(Subject):
    """A proposal of a peer.

    Attributes
    ----------
    id
        Its name in commands.
    party
        The party that decides.
    asked_by, fingerprint
        The asking party, as TLS authenticated it, and the fingerprint of its certificate.
    asked_at, until
        When it was proposed, and until when a person can decide, in seconds since 1970.
    digest
        The digest of all settings. A proposal with other settings has another one and needs its own decision.
    """

    id: str
    party: PartyName
    asked_by: PartyName
    fingerprint: str
    asked_at: float
    until: float
    digest: str
    decision: Decision | None = None
    used_at: float | None = None

    @property
    def state(self) -> State:
        """`expired`: nobody decided in time, or an approval was not used in time."""
        now = time.time()
        if self.decision is None:
            return "pending" if now < self.until else "expired"
        if not self.decision.approved:
            return "refused"
        return "approved" if self.used_at is not None or now < self.decision.until else "expired"

    @property
    def ended_at(self) -> float | None:
        """When it was used, refused, or expired; None if it can still be decided or used."""
        if self.used_at is not None or self.state in ("pending", "approved"):
            return self.used_at
        return self.until if self.decision is None else self.decision.until

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state}


# --- a peer asks ----------------------------------------------------------------------------------------------------


def require_approval(
    settings: PartySettings, peer: PeerIdentity, digest: str, describe: Callable[[], Subject]
) -> Proposal | None:
    """The approval of this proposal of the peer; None if the policy does not ask a person.

    `describe` is called if the proposal is new: it is held from now on.

    Raises
    ------
    ApprovalPending
        Nobody has decided yet.
    ApprovalRefused
        A person has refused it, or the time to decide or to use the approval is over. After that, it can be proposed
        again.
    InvalidDecision
        The decision was not signed with this party's key, or was changed.
    """
    if settings.policy.approval == "auto":
        return None
    key = digest_of(peer.party, peer.fingerprint, digest)[:16]
    with _holding:
        known = next((each for each in _of_key(settings, key) if _is_open(settings, each)), None)
        if known is None:
            _hold(settings, peer, digest, key, describe)
            raise _pending(settings)
    if (known.asked_by, known.fingerprint, known.digest) != (peer.party, peer.fingerprint, digest):
        raise InvalidDecision(f"the proposal {known.id} was changed after it was stored")
    if known.decision is not None and not verify(settings, known):
        raise InvalidDecision(f"the decision about the proposal {known.id} is not signed by {settings.name}")
    if known.state == "pending":
        raise _pending(settings)
    if known.state == "refused":
        raise ApprovalRefused(f"the owner of {settings.name} has refused this proposal", public=True)
    if known.state == "expired":
        _close(settings, known, "expired", time.time())
        raise ApprovalRefused(
            f"{settings.name} did not decide in time, or its approval was not used in time",
            "run the command again to ask again",
            public=True,
        )
    return known


def use_approval(settings: PartySettings, approval: Proposal) -> Proposal:
    """The job begins: its approval allows no other start. Raises if another one has used it."""
    now = time.time()
    if approval.state != "approved" or not _close(settings, approval, "used", now):
        raise ApprovalRefused(
            f"the approval of {settings.name} was used for another start of this job, or its time is over",
            "run the command again to ask again",
            public=True,
        )
    return replace(approval, used_at=now)


def _pending(settings: PartySettings) -> ApprovalPending:
    hours = settings.policy.approval_hours
    return ApprovalPending(
        f"a person at {settings.name} decides about this proposal within {hours:g} hours",
        "run the same command again later, or train with --wait",
        public=True,
    )


def _hold(settings: PartySettings, peer: PeerIdentity, digest: str, key: str, describe: Callable[[], Subject]) -> None:
    most = settings.limits.max_proposals
    undecided = [each for each in list_proposals(settings) if each.asked_by == peer.party and each.decision is None]
    if sum(each.state == "pending" for each in undecided) >= most:
        raise LimitReached(
            f"{peer.party} has {most} proposals that nobody has decided about",
            public="as many proposals of this peer wait for a decision as the party allows",
        )
    now, folders = time.time(), (settings.runs / APPROVALS).glob(f"{key}-*")
    number = max((int(each.name.rpartition("-")[2]) for each in folders), default=0) + 1
    proposal = Proposal(
        id=f"{key}-{number}",
        party=settings.name,
        asked_by=peer.party,
        fingerprint=peer.fingerprint,
        asked_at=now,
        until=now + settings.policy.approval_hours * HOUR,
        digest=digest,
        **vars(describe()),
    )
    content = _encoded(_facts(proposal))
    if len(content) > LONGEST:
        raise LimitReached(
            f"the proposal has {len(content)} bytes, and {LONGEST} are stored at most",
            public="the proposal is too long to be stored for a decision",
        )
    folder = settings.runs / APPROVALS / proposal.id
    with keeping("the proposal cannot be stored"):
        durable.make_folder(folder)
        durable.replace_file(folder / PROPOSAL, content)
        for each in undecided[most - 1 :]:  # expired ones that a peer leaves must not fill the disk
            if each.state == "expired":
                shutil.rmtree(settings.runs / APPROVALS / each.id)
    _LOG.info("job_held", f"the proposal {proposal.id} waits for a decision: veilboost jobs approve {proposal.id}")


def _is_open(settings: PartySettings, proposal: Proposal) -> bool:
    """Whether it answers a repeated proposal. A refusal does so until its time is over."""
    if (settings.runs / APPROVALS / proposal.id / CLOSED).exists():
        return False
    decision = proposal.decision
    return decision is None or decision.approved or time.time() < decision.until


def _close(settings: PartySettings, proposal: Proposal, why: str, at: float) -> bool:
    """Whether this call closed the proposal: only one does."""
    return _write_once(settings.runs / APPROVALS / proposal.id / CLOSED, {"why": why, "at": at})


# --- a person decides -----------------------------------------------------------------------------------------------


def list_proposals(settings: PartySettings) -> list[Proposal]:
    """All proposals, newest first. One that cannot be read does not hide the others."""
    found: list[Proposal] = []
    for file in (settings.runs / APPROVALS).glob(f"*/{PROPOSAL}"):
        try:
            found.append(_load(file.parent))
        except (DamagedState, StateUnavailable) as error:
            _LOG.warning("internal_error", error.what, error)
    return sorted(found, key=lambda each: -each.asked_at)


def find_proposal(settings: PartySettings, id: str) -> Proposal:
    """The proposal with this id, or with the only id that starts like this."""
    folder = settings.runs / APPROVALS / id
    if _ID.fullmatch(id) and (folder / PROPOSAL).exists():
        return _load(folder)
    found = [each for each in list_proposals(settings) if len(id) >= 4 and each.id.startswith(id)]
    if len(found) != 1:
        raise UnknownProposal(
            f"{settings.name} has {len(found) or 'no'} proposals whose id starts with {printable(id)!r}"
        )
    return found[0]


def decide(settings: PartySettings, id: str, approved: bool, *, by: str, reason: str) -> Decision:
    """Approve or refuse a pending proposal, as the person `by`, and sign the decision with this party's key."""
    proposal = find_proposal(settings, id)
    if proposal.state != "pending":
        raise InvalidParameter(f"the proposal {proposal.id} is {proposal.state}", "choose one that is pending")
    for what, text, most in (("name", by, LONGEST_NAME), ("reason", reason, LONGEST_REASON)):
        if len(text) > most or (what == "name" and not text.strip()):
            raise InvalidParameter(f"the {what} has {len(text)} characters", f"use at most {most}, and at least a name")
    now = time.time()
    until = now + settings.policy.approval_hours * HOUR
    decision = Decision(approved, printable(by), printable(reason), now, until)
    signature = sign(own_identity(settings), PURPOSE, _signed(proposal, decision))
    decision = replace(decision, signature=signature)
    if not _write_once(settings.runs / APPROVALS / proposal.id / DECISION, asdict(decision)):
        raise InvalidParameter(
            f"somebody else has decided about the proposal {proposal.id}", "list the proposals to see the decision"
        )
    _LOG.info("job_decided", f"the proposal {proposal.id} was {'approved' if approved else 'refused'}")
    return decision


def verify(settings: PartySettings, proposal: Proposal) -> bool:
    """Whether this party signed the decision about exactly this proposal, with a certificate that was valid then."""
    decision = proposal.decision
    if decision is None or proposal.party != settings.name:
        return False
    try:
        when = datetime.fromtimestamp(decision.at, UTC)
        ca = read_public(settings.certificates.ca)
        signer = check_signed(decision.signature, settings.name, PURPOSE, _signed(proposal, decision), ca, when)
        return signer.serial not in revoked_at(settings)
    except (VeilBoostError, ValueError, OverflowError, OSError):
        return False


def _signed(proposal: Proposal, decision: Decision) -> bytes:
    return _encoded({**asdict(replace(decision, signature="")), "proposal": _facts(proposal)})


# --- files ----------------------------------------------------------------------------------------------------------


def save_approval(folder: Path, approval: Proposal | None) -> None:
    """Copy the proposal and the decision into the folder of the run or deployment, if a person was asked."""
    if approval is not None:
        with keeping(f"{APPROVAL} cannot be written"):
            durable.replace_file(folder / APPROVAL, _encoded(asdict(approval)))


def stored_approval(folder: Path) -> Proposal | None:
    """The approval of the run or deployment in this folder; None if nobody was asked."""
    file = folder / APPROVAL
    return _read(file) if file.exists() else None


def run_approval(run: RunFolder) -> Proposal | None:
    """The approval under which a run began; None if nobody was asked."""
    return stored_approval(run.path)


def approval_text(run: RunFolder, settings: PartySettings | None = None) -> str | None:
    """Who approved a run and when; None if nobody was asked. With settings, whether the signature is valid, too."""
    try:
        approval = run_approval(run)
    except (DamagedState, StateUnavailable) as error:
        return error.what
    return None if approval is None else decision_text(approval, settings)


def decision_text(proposal: Proposal, settings: PartySettings | None = None) -> str | None:
    """Who decided what and when; None if nobody has. With settings, whether the signature is valid, too."""
    decision = proposal.decision
    if decision is None:
        return None
    text = f"{'approved' if decision.approved else 'refused'} by {decision.by} on {date_text(decision.at)}"
    if settings is None:
        return text
    return f"{text}, {'signature verified' if verify(settings, proposal) else 'the signature is not valid'}"


def _of_key(settings: PartySettings, key: str) -> list[Proposal]:
    """The proposals of a key, newest first."""
    folders = (settings.runs / APPROVALS).glob(f"{key}-*/{PROPOSAL}")
    return sorted((_load(file.parent) for file in folders), key=lambda each: -each.asked_at)


def _load(folder: Path) -> Proposal:
    proposal = _read(folder / PROPOSAL)
    if proposal.id != folder.name or not _ID.fullmatch(proposal.id):
        raise DamagedState(f"{folder / PROPOSAL} is not the proposal {folder.name}", _FIX)
    if (folder / DECISION).exists():
        proposal = replace(proposal, decision=_decision(_json(folder / DECISION), folder / DECISION))
    if (folder / CLOSED).exists():
        closed = _json(folder / CLOSED)
        proposal = replace(proposal, used_at=closed.get("at") if closed.get("why") == "used" else None)
    return proposal


_FIX = "restore it from a backup; or delete its folder, and let the peer propose again"


def _read(file: Path) -> Proposal:
    found = _json(file)
    try:
        decision = found.pop("decision", None)
        for name in {"columns", "statements", "reveals"} & set(found):
            found[name] = tuple(found[name])
        return Proposal(**found, decision=None if decision is None else _decision(decision, file))
    except (TypeError, KeyError) as error:
        raise DamagedState(f"{file} is not a proposal", _FIX) from error


def _decision(found: Mapping[str, Any], file: Path) -> Decision:
    try:
        decision = Decision(**found)
        kinds = (bool, str, str, float, float, str)
        if not all(isinstance(value, kind) for value, kind in zip(vars(decision).values(), kinds, strict=True)):
            raise TypeError("a field has another type")
        return decision
    except TypeError as error:
        raise DamagedState(f"{file} is not a decision", _FIX) from error


def _json(file: Path) -> dict[str, Any]:
    try:
        with reading(file):
            found: Any = json.loads(file.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise DamagedState(f"{file} cannot be read", _FIX) from error
    if not isinstance(found, dict):
        raise DamagedState(f"{file} is not an object", _FIX)
    return found  # pyright: ignore[reportUnknownVariableType]


def _write_once(file: Path, value: Mapping[str, Any]) -> bool:
    """Write a file; False if it exists."""
    with keeping(f"{file.name} cannot be written"):
        try:
            durable.replace_file(file, _encoded(value), overwrite=False)
        except FileExistsError:
            return False
    return True


def _facts(proposal: Proposal) -> dict[str, Any]:
    """The proposal as it was made, without fields at their defaults: later releases may add such fields."""
    made = asdict(replace(proposal, decision=None, used_at=None))
    return {item.name: made[item.name] for item in fields(Proposal) if made[item.name] != item.default}


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode()
