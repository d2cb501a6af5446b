"""The pages of the console: what each template receives."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from starlette.responses import HTMLResponse

from veilboost.boost.metrics import METRIC_INFO
from veilboost.console.data import ConsoleData, LedgerFacts
from veilboost.console.words import WORDS
from veilboost.errors import UnknownProposal, UnknownRun, VeilBoostError, coded_errors
from veilboost.fields import info_of
from veilboost.party.approvals import Proposal, approval_text, decision_text, find_proposal
from veilboost.party.deployed import asked_by_day
from veilboost.party.deployment_folder import LIVE, list_deployments
from veilboost.party.hub import revoked_at
from veilboost.party.identity import describe
from veilboost.party.lifecycle import JobDetails, about
from veilboost.party.ping import PeerStatus
from veilboost.party.policy import Policy
from veilboost.party.predicting import LOOKUPS_FILE, PREDICTIONS_FILE, spent_today
from veilboost.party.progress import RunProgress
from veilboost.party.runs import ENDED, JOB, RESUMABLE, RUNNING, RunFolder, date_text
from veilboost.party.settings import PartySettings
from veilboost.party.status import STATES, JobStatus, count_by_state
from veilboost.plan.proposals import predicted
from veilboost.privacy.ledger import Row
from veilboost.report.facts import share_facts, training_facts
from veilboost.report.pages import grouped, render
from veilboost.report.plots import line_chart
from veilboost.report.runs import AUDIT, read_findings
from veilboost.report.values import alike, bytes_text, seconds_text
from veilboost.wire.transcript import Exchange, shown_to

if TYPE_CHECKING:
    from veilboost.console.guard import Visitor

TEMPLATES = Path(__file__).parent / "templates"
JOBS_PER_PAGE = 50
WIDE, HIGH = 560, 300  # of a chart
_ROLES = {"active": "active party", "passive": "passive parties", "participant": "participants"}
_PLACES = {
    "active": "the active party, which has the labels",
    "passive": "a passive party, which has columns and no labels",
    "participant": "a participant, which has rows",
    "server": "the server, which has no rows",
}
_CODE = re.compile(r"\bVB-\d{4}\b")


def page(
    template: str, visitor: Visitor | None, party: str, status: int = 200, events: str | None = None, **given: Any
) -> HTMLResponse:
    """One page. `events`: the address of its live updates."""
    approves, csrf = (False, "") if visitor is None else (visitor.user.approves, visitor.login.csrf)
    about = {"party": party, "visitor": visitor, "approves": approves, "csrf": csrf, "events": events}
    about["zone"] = datetime.now().astimezone().tzname()
    return HTMLResponse(render(template, TEMPLATES, **about, **given), status)


def error_page(error: VeilBoostError, status: int, visitor: Visitor | None = None, party: str = "") -> HTMLResponse:
    return page("error.html", visitor, party, status, error=error)


def code_in(text: str | None) -> str | None:
    """The code of an error in its text."""
    found = _CODE.search(text or "")
    return None if found is None else found[0]


def code_page(code: str) -> dict[str, Any]:
    """What an error code means."""
    for kind in coded_errors():
        if kind.code == code:
            return {"code": code, "summary": kind.summary, "fix": kind.fix, "name": kind.__name__}
    raise UnknownRun(f"there is no error {code[:16]!r}", "check the code")


# --- inbox ----------------------------------------------------------------------------------------------------------


def inbox(data: ConsoleData) -> dict[str, Any]:
    """Proposals that wait for a decision, and the last ones that were decided."""
    every = data.proposals()
    pending = [each for each in every if each.state == "pending"]
    decided = [each for each in every if each.state != "pending"][:JOBS_PER_PAGE]
    return {
        "pending": [(each, date_text(each.asked_at), date_text(each.until)) for each in pending],
        "decided": [(each, date_text(each.asked_at), _decision(data, each)) for each in decided],
        "asks": data.settings.policy.approval == "ask",
        "hours": data.settings.policy.approval_hours,
    }


def proposal(data: ConsoleData, id: str) -> dict[str, Any]:
    """All that a person needs to decide about one proposal."""
    found = find_proposal(data.settings, id)
    if found.id != id:  # commands accept the beginning of an id
        raise UnknownProposal(f"{data.settings.name} has no such proposal")
    cost, learned = predicted(found), dict[str, list[str]]()
    for each in found.reveals:
        learned.setdefault(_receivers(found, each["to"]), []).append(_with_settings(each["what"], found))
    own_first = sorted(found.statements, key=lambda each: each["victim"] != found.role)
    return {
        "proposal": found,
        "place": _PLACES.get(found.role, found.role),
        "claims": [_claim(each, found) for each in own_first],
        "asked": date_text(found.asked_at),
        "until": date_text(found.until),
        "seconds": None if cost is None else seconds_text(cost.seconds),
        "bytes": None if cost is None else bytes_text(cost.bytes_sent + cost.bytes_answered),
        "learned": learned,
        "decision": _decision(data, found),
    }


def _receivers(found: Proposal, role: str) -> str:
    """Who has this role in what is proposed, for a heading."""
    if role in ("active", "server"):
        return f"{found.asked_by}, the {_ROLES.get(role, role)}"
    return f"{_ROLES.get(role, role)}{', among them this party' if role == found.role else ''}"


def _claim(claim: Mapping[str, str | None], found: Proposal) -> dict[str, str]:
    """A claim of the protocol, with the names of those whose data it is about."""
    told = {name: value or "–" for name, value in claim.items()}
    victim = told["victim"]
    names = {found.role: f"this party ({victim})", "active": f"{found.asked_by} ({victim})"}
    return {
        **told,
        "victim": names.get(victim, victim),
        "data": _with_settings(told["data"], found),
        "attack": told["attack"].replace("_", " "),
    }


def _with_settings(text: str, found: Proposal) -> str:
    """A text that depends on settings by name, with their values in what is proposed."""
    ends = {name: r"\b" if "_" in name else "=" for name in found.settings}  # "order" is a word, too
    named = (f"{name} is {found.settings[name]}" for name, end in ends.items() if re.search(rf"\b{name}{end}", text))
    here = ", ".join(named)
    return f"{text} (in this job {here})" if here else text


def _decision(data: ConsoleData, found: Proposal) -> str:
    if found.decision is None:
        return "nobody decided in time" if found.state == "expired" else "not decided"
    why = found.decision.reason
    return f"{decision_text(found, data.settings)}{f': {why}' if why else ''}"


# --- jobs -----------------------------------------------------------------------------------------------------------


def jobs(data: ConsoleData, number: int, state: str) -> dict[str, Any]:
    """A page of jobs, with the progress of those that run."""
    every = data.jobs()
    counts = count_by_state(every)
    found = [job for job in every if state in ("", job.state)]
    pages = max(1, -(-len(found) // JOBS_PER_PAGE))
    number = min(max(number, 1), pages)
    listed = found[(number - 1) * JOBS_PER_PAGE : number * JOBS_PER_PAGE]
    return {
        "running": [_running(data, job) for job in every if job.running and state in ("", job.state)],
        "jobs": [
            {
                "name": job.job,
                "state": job.state,
                "driver": job.driver or "",
                "since": date_text(job.since) or "",
                "updated": date_text(job.updated) or "",
                "error": job.error or "",
                "code": code_in(job.error),
            }
            for job in listed
            if not job.running
        ],
        "counts": {state: counts[state] for state in STATES if counts[state]},
        "total": len(every),
        "state_filter": state,
        "number": number,
        "pages": pages,
    }


def _running(data: ConsoleData, job: JobStatus) -> dict[str, Any]:
    told = {"name": job.job, "driver": job.driver, "error": job.error, "code": code_in(job.error)}
    try:
        run = RunFolder.open(data.settings.runs, job.job)
        return {**told, "damaged": False, **_progress(run, data.follower(job.job).read())}
    except VeilBoostError as error:
        return {**told, "damaged": True, "state": "damaged", "error": str(error), "code": error.code}


def _progress(run: RunFolder, found: RunProgress) -> dict[str, Any]:
    state = run.state
    measured = [each for each in found.results if each.validation is not None]
    metric = "not measured" if run.drives else "at the driver"
    if measured:
        last = measured[-1]
        metric = f"{_title(last.metric)} {last.validation:.4f}"
    return {
        "state": state,
        "stage": f"{state}, stops soon" if run.cancelled and state in RUNNING else state,
        "round": found.round,
        "rounds": found.rounds,
        "left": None if found.seconds_left is None else seconds_text(found.seconds_left),
        "metric": metric,
        "sent": bytes_text(sum(each["bytes_sent"] for each in found.traffic.values())),
        "received": bytes_text(sum(each["bytes_received"] for each in found.traffic.values())),
        "traffic": found.traffic,
        "protocol": None if found.job is None else found.job.protocol,
    }


def _title(metric: str | None) -> str:
    return METRIC_INFO[metric].title if metric is not None and metric in METRIC_INFO else str(metric)


def job(data: ConsoleData, name: str) -> dict[str, Any]:
    """All about one job."""
    run = RunFolder.open(data.settings.runs, name)
    told, found = about(run, data.settings), data.follower(name).read()
    state, own = told.state, str(told.party)
    others = [] if found.job is None else [each for each in found.job.parties if each != own]
    auditing, audit_error = data.audits.state(name)
    findings = None
    with suppress(VeilBoostError):
        findings = read_findings(run.path / AUDIT) if (run.path / AUDIT).is_file() else None
    return {
        "name": name,
        "told": told,
        "place": _PLACES.get(str(told.role), told.role),
        "reports": _reports(told),
        "code": code_in(told.error),
        "approval": approval_text(run, data.settings),
        "progress": _progress(run, found),
        "drawings": _marked(_charts(found)),
        "learned": [
            (["this party"], shown_to(own, found.exchanges)),
            *alike({each: shown_to(each, found.exchanges) for each in others}),
        ],
        "exchanges": [_exchange(each) for each in _by_direction(own, found.exchanges)],
        "last": [
            (_clock(each.when), each.direction, each.peer, each.message, bytes_text(each.size)) for each in found.last
        ],
        "entries": [_entry(row) for row in data.book.rows(name)],
        "settings": _settings(found),
        "claims": [] if found.job is None else [p.to_dict() for p in found.job.spec.statement.protections],
        "share": _share(run, own) if state == "finished" else None,
        "cancels": state in RUNNING or (state in RESUMABLE and not (state == "cancelled" and run.drives)),
        "drives": run.drives,
        "begun": (run.path / JOB).exists(),
        "ended": state in ENDED,
        "found": findings,
        "auditing": auditing,
        "audit_error": audit_error,
        "trial": bool(data.trial),
    }


def _reports(told: JobDetails) -> tuple[list[str], list[tuple[str, ...]]]:
    """How participants protected their rows, as headers and rows; the driver has the report of each of them."""
    found = told.reports or ({} if told.report is None else {str(told.party): told.report})
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    rows = [(party, *(_reported(each.get(name)) for name in names)) for party, each in found.items()]
    return ["participant", *(name.replace("_", " ") for name in names)], rows


def _reported(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else "–" if value is None else str(value)


def _charts(found: RunProgress) -> list[str]:
    """The learning curve where this party knows it, and the bytes over time."""
    drawings: list[str] = []
    curve = [(float(each.number + 1), each.validation) for each in found.results if each.validation is not None]
    if curve:
        title, lines = _title(found.results[-1].metric), {"validation rows": curve}
        drawings.append(line_chart(f"{title} on validation rows", "rounds", title, lines, width=WIDE, height=HIGH))
    if any(found.volume.values()):
        label = "seconds since the first message"
        drawings.append(line_chart("Bytes over time", label, "bytes", found.volume, width=WIDE, height=HIGH))
    return drawings


def _by_direction(own: str, exchanges: Sequence[Exchange]) -> list[dict[str, Any]]:
    """Messages of one type from or to several parties as one: first those that this party has sent."""
    sent = (each.to_dict() for each in exchanges if each.sender == own)
    received = (each.to_dict() for each in exchanges if each.sender != own)
    return [*grouped(sent), *grouped(received)]


def _exchange(each: Mapping[str, Any]) -> dict[str, Any]:
    what: list[str] = []
    for item in each["reveals"]:  # names the party if it is not the receiver
        what.append(item["what"] if item["to"] in each["receiver"] else f"{item['what']} (to {item['to']})")
    return {**each, "reveals": "; ".join(what) or "nothing"}


def _settings(found: RunProgress) -> list[tuple[str, Any]]:
    job = found.job
    if job is None:
        return []
    parties = ", ".join(f"{name} ({job.role_of(name)})" for name in job.parties)
    known = {"protocol": job.protocol, "parties": parties, "record": job.record}
    if job.continues is not None:
        known["continues the model of"] = job.continues
    if job.spec.setting == "vertical":
        known["alignment"] = job.alignment
    return list((known | training_facts(job.training)).items())


def _share(run: RunFolder, party: str) -> Mapping[str, Any] | None:
    try:
        return share_facts({party: run.load_share()})
    except VeilBoostError:  # a helper has none, and an owner may have removed it
        return None


def _entry(row: Row) -> tuple[Any, ...]:
    body = json.loads(row.body)
    what = body.get("what") or body.get("release") or body.get("kind") or ""
    return (
        row.number,
        date_text(row.at),
        row.entry,
        what,
        body.get("adversary", ""),
        body.get("count", ""),
        row.hash[:12],
    )


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%H:%M:%S")


# --- ledger ---------------------------------------------------------------------------------------------------------


def ledger(data: ConsoleData) -> dict[str, Any]:
    known = data.ledger.get()
    charts = [] if known.value is None else _ledger_charts(known.value)
    table = "none" if data.settings.data is None else data.settings.data.table
    facts = None if known.value is None else known.value.about
    return {
        "known": known,
        "facts": facts,
        "at": None if known.value is None else date_text(known.value.at),
        "drawings": _marked(charts),
        "table_name": table,
        "runs": {each.job for each in data.jobs()},
    }


def _ledger_charts(facts: LedgerFacts) -> list[str]:
    times = [at for each in facts.over_time.values() for at, _ in each.exact]
    if not times:
        return []
    first = min(times)
    unit, size = next(
        ((name, size) for name, size in (("days", 86_400.0), ("hours", 3600.0)) if time.time() - first > 2 * size),
        ("minutes", 60.0),
    )

    def series(kind: str) -> dict[str, list[tuple[float, float]]]:
        lines: dict[str, list[tuple[float, float]]] = {}
        for peer, each in facts.over_time.items():
            steps, before = list[tuple[float, float]](), 0.0
            for at, total in getattr(each, kind):
                steps += [((at - first) / size, before), ((at - first) / size, total)]
                before = total
            if before > 0:
                lines[f"to {peer}"] = [*steps, ((time.time() - first) / size, before)]
        return lines

    drawings: list[str] = []
    label = f"{unit} since the first release"
    for title, y, kind in (("Epsilon spent", "epsilon", "epsilon"), ("Exact releases", "releases", "exact")):
        lines = series(kind)
        if lines:
            total = facts.about.budget if kind == "epsilon" else None
            across = {} if total is None else {"epsilon_total": float(total)}
            drawings.append(
                line_chart(f"{title}, by receiver", label, y, lines, across=across, width=WIDE, height=HIGH)
            )
    return drawings


# --- peers, tables, models, policy ----------------------------------------------------------------------------------


def peers(data: ConsoleData) -> dict[str, Any]:
    settings, known = data.settings, data.peers.get()
    revoked, error = None, None
    try:
        revoked = sorted(f"{serial:x}" for serial in revoked_at(settings))
    except VeilBoostError as found:
        error = found
    status, found = known.value or (None, ())
    seen = {each.peer: each for each in found}
    names = sorted({*settings.policy.peers, *settings.peers})
    last = {each.driver: each for each in reversed(data.jobs()) if each.driver is not None}
    own: list[tuple[str, str, str]] = []
    for what, file in (("own certificate", settings.certificates.cert), ("authority", settings.certificates.ca)):
        with suppress(VeilBoostError):
            info = describe(file)
            own.append((what, f"{info.not_after:%Y-%m-%d}", f"{info.serial:x}"))
    return {
        "known": known,
        "peers": [_peer(name, settings, seen.get(name), last.get(name)) for name in names],
        "own": own,
        "revoked": revoked,
        "has_list": settings.certificates.revoked is not None,
        "revoked_error": error,
        "own_status": status,
    }


def _peer(name: str, settings: PartySettings, seen: PeerStatus | None, last: JobStatus | None) -> tuple[Any, ...]:
    """A row of the table of peers. `last`: the newest job that the peer drove."""
    way, pins = settings.peers.get(name), settings.policy.peers.get(name, ())
    if seen is None:
        texts = {None: "not dialled: it has no address here", "in": "connects to this party", "out": "not known yet"}
        health = {"text": texts[None if way is None else way.connect], "class": ""}
    else:
        health = {"text": "; ".join(seen.problems) or "healthy", "class": "no" if seen.problems else "yes"}
    job = "none" if last is None else f"{last.job}, {date_text(last.updated) or last.state}"
    measured = ("–",) * 4
    if seen is not None and seen.certificate_days is not None:
        until = datetime.now(UTC) + timedelta(days=seen.certificate_days)
        times = f"{seen.round_trip_ms:.1f} ms", f"{seen.clock_difference:+d} s"
        measured = (seen.release, f"until {until:%Y-%m-%d} ({seen.certificate_days:.0f} days)", *times)
    elif last is not None and last.driver_until is not None:
        until = datetime.fromtimestamp(last.driver_until, UTC)
        measured = ("–", f"until {until:%Y-%m-%d}, when it proposed its last job", "–", "–")
    return name, health, *measured, job, ", ".join(pins) or "none"


def tables(data: ConsoleData) -> dict[str, Any]:
    used = data.jobs()
    listed = [(each.job, each.state, each.driver or "", date_text(each.since) or "") for each in used[:JOBS_PER_PAGE]]
    return {
        "table_settings": data.settings.data,
        "known": None if data.table is None else data.table.get(),
        "jobs": listed,
        "more": max(0, len(used) - JOBS_PER_PAGE),
        "allowed": data.settings.policy.columns,
    }


def models(data: ConsoleData) -> dict[str, Any]:
    settings, listed = data.settings, list[dict[str, Any]]()
    for folder in list_deployments(settings):
        told = folder.about()
        listed.append({**told, "live": told["state"] == LIVE, "asked": asked_by_day(folder)[-14:]})
    policy, quotas = settings.policy, list[tuple[str, int, int | str]]()
    for what, file, most, by_peer in (
        ("predictions", PREDICTIONS_FILE, policy.predictions_per_day, policy.predictions_per_peer),
        ("lookups", LOOKUPS_FILE, policy.lookups_per_day, policy.lookups_per_peer),
    ):
        spent, of_peers = spent_today(settings, file)
        quotas.append((f"{what} for all peers", spent, most))
        limit = "no limit of its own" if by_peer is None else by_peer
        quotas += [(f"{what} for {peer}", rows, limit) for peer, rows in sorted(of_peers.items())]
    return {"deployments": listed, "quotas": quotas, "policy": policy}


def words(data: ConsoleData) -> dict[str, Any]:
    return {"words": WORDS}


def policy(data: ConsoleData) -> dict[str, Any]:
    """Every rule with its value, what it means, and whether it is the default."""
    found, usual = data.settings.policy, Policy()
    rules = [(each.name, getattr(found, each.name), info_of(each).help) for each in fields(Policy)]
    return {"rules": [(name, _value(value), help, value != getattr(usual, name)) for name, value, help in rules]}


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        pins = cast(Mapping[str, Sequence[str]], value)
        return "; ".join(f"{name}: {', '.join(each)}" for name, each in pins.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(cast(Sequence[str], value)) or "none"
    if value is None or isinstance(value, str):
        return value or "no limit"
    return f"{value:,}".replace(",", "\N{NO-BREAK SPACE}") if isinstance(value, int) else f"{value:g}"


def _marked(drawings: Sequence[str]) -> list[str]:
    from markupsafe import Markup

    return [Markup(each) for each in drawings]  # noqa: S704 - drawn by us, with all text in them escaped
