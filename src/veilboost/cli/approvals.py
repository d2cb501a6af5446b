"""`veilboost jobs proposals`, `approve` and `refuse`: decide about the proposals of other parties."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import (
    AsJson,
    bytes_text,
    epsilon_text,
    indented,
    make_pairs,
    make_table,
    print_json,
    seconds_text,
    status_text,
    stdout,
    tell,
)
from veilboost.cli.party import Config

if TYPE_CHECKING:
    from veilboost.party.approvals import Proposal
    from veilboost.party.settings import PartySettings

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the proposal, or how it begins.")]
STATE_STYLES = {"pending": "yellow", "approved": "green", "refused": "bold red", "expired": "dim"}


def proposals(
    config: Config,
    id: Annotated[str | None, typer.Argument(metavar="ID", help="Show all of this proposal.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the proposals of other parties that a person decides about, newest first.

    With approval = "ask" under \\[policy], a training job or a deployment that the
    policy permits waits here until you approve or refuse it. With an ID: who
    asks, which table, columns and rows, all settings, what would be revealed to
    whom, the protection status with the attack that decides it, the epsilon it
    would spend and what would be left, and the predicted time and bytes.

    Examples:

        [bold]veilboost jobs proposals --config shop.toml[/]

        [bold]veilboost jobs proposals 3f0c --config shop.toml[/]
    """
    from veilboost.party.approvals import find_proposal, list_proposals
    from veilboost.party.settings import load_party

    settings = load_party(config)
    if id is not None:
        proposal = find_proposal(settings, id)
        print_json(_facts(settings, proposal)) if as_json else _show(settings, proposal)
        return
    found = list_proposals(settings)
    if as_json:
        print_json({"party": settings.name, "proposals": [_facts(settings, each) for each in found]})
        return
    if not found:
        stdout().print(f"{escape(settings.name)} has no proposals; approval is {settings.policy.approval}")
        return
    table = make_table("id", "state", "what", "name", "asked by", "protocol", "epsilon", "asked", "decided by")
    for each in found:
        table.add_row(
            f"[bold]{each.id}[/]",
            f"[{STATE_STYLES[each.state]}]{each.state}[/]",
            each.kind,
            escape(each.job),
            escape(each.asked_by),
            escape(each.protocol),
            epsilon_text(each.epsilon) if each.epsilon else "-",
            _when(each.asked_at),
            "" if each.decision is None else escape(each.decision.by),
        )
    stdout().print(table)


def approve(
    id: Id,
    config: Config,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; stored here, and not sent.")] = "",
    as_json: AsJson = False,
) -> None:
    """Approve a proposal: the asking party can start exactly this job, once.

    Read it first: veilboost jobs proposals ID. The decision is signed with the
    key of this party, under your user name, and is stored with the run. The
    daemon needs no restart. The job must begin within approval_hours; it can be
    resumed later without a new approval.

    Example:

        [bold]veilboost jobs approve 3f0c --config shop.toml --reason "contract 17"[/]
    """
    _decide(id, config, True, reason, as_json)


def refuse(
    id: Id,
    config: Config,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; stored here, and not sent.")],
    as_json: AsJson = False,
) -> None:
    """Refuse a proposal: the asking party receives VB-1416, and no reason.

    Repeated proposals of the same job are refused for approval_hours.

    Example:

        [bold]veilboost jobs refuse 3f0c --config shop.toml --reason "too many trees"[/]
    """
    _decide(id, config, False, reason, as_json)


def _decide(id: str, config: Path, approved: bool, reason: str, as_json: bool) -> None:
    import pwd  # not on all systems

    from veilboost.party.approvals import decide, find_proposal
    from veilboost.party.settings import load_party

    settings = load_party(config)
    proposal = find_proposal(settings, id)
    decide(settings, proposal.id, approved, by=pwd.getpwuid(os.getuid()).pw_name, reason=reason)
    found = find_proposal(settings, proposal.id)
    what = f"{found.kind} {escape(found.job)} of {escape(found.asked_by)}"
    tell(_facts(settings, found), as_json, f"{found.state}: {what} ({found.id})")


def _facts(settings: PartySettings, proposal: Proposal) -> dict[str, Any]:
    from veilboost.party.approvals import verify
    from veilboost.plan.proposals import predicted

    cost = predicted(proposal)
    return {
        **proposal.to_dict(),
        "verified": None if proposal.decision is None else verify(settings, proposal),
        "seconds": None if cost is None else cost.seconds,
        "bytes": None if cost is None else cost.bytes_sent + cost.bytes_answered,
    }


def _show(settings: PartySettings, proposal: Proposal) -> None:
    from veilboost.party.approvals import decision_text

    facts, console = _facts(settings, proposal), stdout()
    left = "" if proposal.epsilon_left is None else f", then {proposal.epsilon_left:g} left"
    cost = "unknown: run veilboost plan --calibrate on this machine"
    if facts["seconds"] is not None:
        cost = f"about {seconds_text(facts['seconds'])} and {bytes_text(facts['bytes'])}"
    shown = {
        "proposal": f"{proposal.id}, {proposal.state}",
        "asked by": f"{proposal.asked_by}, certificate {proposal.fingerprint}",
        "asked": f"{_when(proposal.asked_at)}; decide until {_when(proposal.until)}",
        "what": f"{proposal.kind} {proposal.job}, protocol {proposal.protocol}; {proposal.party} is {proposal.role}",
        "table": f"{proposal.table}, {proposal.rows} rows",
        "columns": ", ".join(proposal.columns),
        "epsilon": f"{proposal.epsilon:g}{left}" if proposal.epsilon else "none is spent: releases have no noise",
    }
    if proposal.assignments is not None:
        left = "" if proposal.assignments_left is None else f", then {proposal.assignments_left} left"
        shown["assignments"] = f"{proposal.assignments} of each row{left}"
    if proposal.kind == "training":
        shown["cost"] = cost
    if (decision := proposal.decision) is not None:
        shown["decision"] = f"{decision_text(proposal, settings)}{f': {decision.reason}' if decision.reason else ''}"
    if proposal.used_at is not None:
        shown["used"] = _when(proposal.used_at)
    console.print(make_pairs(shown))
    console.print("\n[bold]What each role would learn[/]\n")
    table = make_table("to", "what")
    for each in proposal.reveals:
        table.add_row(each["to"], escape(each["what"]))
    indented(console, table)
    if proposal.statements:
        console.print("\n[bold]Protection[/]\n")
        table = make_table("whose", "data", "against", "status", "decisive attack", "why")
        for one in proposal.statements:
            told = {name: value or "-" for name, value in one.items()}
            texts = (escape(told[name]) for name in ("victim", "data", "adversary"))
            table.add_row(*texts, status_text(told["status"]), escape(told["attack"]), escape(told["why"]))
        indented(console, table)
    console.print("\n[bold]Settings[/]\n")
    indented(console, make_pairs(proposal.settings))
    if proposal.state == "pending":
        console.print(f"\nto decide: veilboost jobs approve {proposal.id} --config FILE, or veilboost jobs refuse")


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).isoformat(" ", "minutes")
