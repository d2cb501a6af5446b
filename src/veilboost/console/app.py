"""The web console of a party, which uvicorn runs: routes, forms, and the stream of live updates."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from veilboost import __version__
from veilboost.console import views
from veilboost.console.data import ConsoleData
from veilboost.console.guard import EVENTS, VISITOR, ConsoleGuard, Visitor, visitor_of
from veilboost.console.sessions import Attempts, Sessions
from veilboost.console.users import Users
from veilboost.errors import (
    AgainstPolicy,
    InvalidParameter,
    LimitReached,
    MalformedMessage,
    OversizedMessage,
    TableBusy,
    UnknownDeployment,
    UnknownMessage,
    UnknownProposal,
    UnknownRun,
    VeilBoostError,
)
from veilboost.logs import EventLogger
from veilboost.party.approvals import decide
from veilboost.party.deployment_folder import DeploymentFolder
from veilboost.party.deployments import withdraw
from veilboost.party.job import run_name
from veilboost.party.lifecycle import cancel
from veilboost.party.runs import RunFolder
from veilboost.report.pages import TEMPLATES as REPORT_TEMPLATES
from veilboost.report.runs import make_report

STATIC = Path(__file__).parent / "static"
LARGEST_FORM = 16_384  # bytes
LOOK_SECONDS = 2.0  # between two looks at the files
BEAT_LOOKS = 10  # looks after which a line is sent in any case, which tells whether the browser is there
MOST_STREAMS = 64
_STATUS = {
    UnknownRun: 404,
    UnknownProposal: 404,
    UnknownDeployment: 404,
    UnknownMessage: 404,
    AgainstPolicy: 403,
    LimitReached: 429,
}
_LOG = EventLogger(__name__)


class Console:
    """The state of a running console."""

    def __init__(self, data: ConsoleData, users: Users, sessions: Sessions | None = None, secure: bool = False) -> None:
        self.data, self.users, self.secure = data, users, secure
        self.sessions, self.attempts = sessions or Sessions(), Attempts()
        self.party = data.settings.name
        self.cookie = f"veilboost-{self.party}"  # cookies of a host are shared by its ports
        self.streams = 0
        self.stopping = False

    def stop(self) -> None:
        """End the streams of live updates."""
        self.stopping = True


def make_app(console: Console, hosts: Collection[str] | None = None) -> FastAPI:
    """The application. `hosts`: names under which it is reached, without ports; None: any."""
    data = console.data
    app = FastAPI(
        title="VeilBoost console",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(
        ConsoleGuard,
        users=console.users,
        sessions=console.sessions,
        cookie=console.cookie,
        secure=console.secure,
        hosts=hosts,
    )

    @app.exception_handler(VeilBoostError)
    async def refused(request: Request, error: VeilBoostError) -> Response:  # pyright: ignore[reportUnusedFunction]
        status = next((number for kind, number in _STATUS.items() if isinstance(error, kind)), 400)
        return views.error_page(error, status, request.scope.get(VISITOR), console.party)

    @app.exception_handler(HTTPException)
    async def not_found(request: Request, error: HTTPException) -> Response:  # pyright: ignore[reportUnusedFunction]
        what = UnknownMessage("the console has no such page", "use the links at the top")
        return views.error_page(what, error.status_code, request.scope.get(VISITOR), console.party)

    _add_login(app, console)
    _add_pages(app, console)
    _add_actions(app, console)

    @app.get(EVENTS)
    async def events(request: Request, job: str | None = None) -> Response:  # pyright: ignore[reportUnusedFunction]
        if job is not None:
            run_name(job)
        if console.streams >= MOST_STREAMS:
            raise TableBusy(f"{MOST_STREAMS} pages are already open", "close some of them")
        visitor: Visitor = request.scope[VISITOR]
        return StreamingResponse(_changes(console, visitor.key, job), media_type="text/event-stream")

    @app.get("/static/{name}")
    async def static(name: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        found = _static().get(name)
        if found is None:
            raise UnknownMessage("the console has no such file", "use the links at the top")
        return Response(found[1], media_type=found[0])

    @app.get("/ledger/export")
    def export() -> Response:  # pyright: ignore[reportUnusedFunction]
        content = json.dumps(data.book.export(), indent=2)
        return _file(content, "application/json", f"ledger-{console.party}.json")

    @app.get("/jobs/{name}/report")
    def report(name: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        run = RunFolder.open(data.settings.runs, run_name(name))
        return _file(make_report([run.path]).html, "text/html", f"{name}.html")

    return app


def _add_login(app: FastAPI, console: Console) -> None:
    @app.get("/login")
    def login_page() -> Response:  # pyright: ignore[reportUnusedFunction]
        return views.page("login.html", None, console.party, failed=None, known=bool(console.users.all))

    @app.post("/login")
    async def login(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        form = await _form(request)
        name, password = form.get("name", ""), form.get("password", "")
        address = request.client.host if request.client else ""
        try:
            console.attempts.count(address, name)
            user = await run_in_threadpool(console.users.admit, name, password)
        except LimitReached as error:
            _LOG.warning("console_refused", "too many attempts to log in to the console")
            return views.page("login.html", None, console.party, 429, failed=error, known=True)
        if user is None:
            _LOG.warning("console_refused", "a wrong name or password for the console")
            wrong = AgainstPolicy("the name or the password is wrong", "try again")
            return views.page("login.html", None, console.party, 403, failed=wrong, known=bool(console.users.all))
        _LOG.info("console_login", f"{name} logged in to the console", user=name)
        answer = RedirectResponse("/", 303)
        console.sessions.close(request.cookies.get(console.cookie, ""))  # of whoever used this browser before
        key = console.sessions.open(name, user.hash)
        answer.set_cookie(console.cookie, key, path="/", httponly=True, samesite="strict", secure=console.secure)
        return answer

    @app.post("/logout")
    async def logout(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
        visitor, _ = await _checked_form(request)
        console.sessions.close(visitor.key)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(console.cookie, path="/", httponly=True, samesite="strict", secure=console.secure)
        return answer


def _add_pages(app: FastAPI, console: Console) -> None:
    data = console.data

    def show(request: Request, template: str, given: Mapping[str, Any], live: str | None = EVENTS) -> Response:
        return views.page(template, request.scope[VISITOR], console.party, events=live, **given)

    @app.get("/")
    def front() -> Response:  # pyright: ignore[reportUnusedFunction]
        return RedirectResponse("/inbox", 303)

    @app.get("/jobs")
    def jobs(request: Request, page: str = "1", state: str = "") -> Response:  # pyright: ignore[reportUnusedFunction]
        number = int(page[:6]) if page[:6].isdecimal() else 1
        return show(request, "jobs.html", views.jobs(data, number, state))

    @app.get("/jobs/{name}")
    def job(request: Request, name: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        return show(request, "job.html", views.job(data, run_name(name)), f"{EVENTS}?job={name}")

    simple: Mapping[str, Callable[[ConsoleData], Mapping[str, Any]]] = {
        "inbox": views.inbox,
        "ledger": views.ledger,
        "peers": views.peers,
        "tables": views.tables,
        "models": views.models,
        "policy": views.policy,
        "words": views.words,
    }

    def add(path: str, view: Callable[[ConsoleData], Mapping[str, Any]]) -> None:
        @app.get(f"/{path}")
        def one(request: Request) -> Response:  # pyright: ignore[reportUnusedFunction]
            return show(request, f"{path}.html", view(data))

    for path, view in simple.items():
        add(path, view)

    @app.get("/inbox/{id}")
    def proposal(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        return show(request, "proposal.html", views.proposal(data, id))

    @app.get("/errors/{code}")
    def code(request: Request, code: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        return show(request, "code.html", views.code_page(code), None)


def _add_actions(app: FastAPI, console: Console) -> None:
    data = console.data

    async def approver(request: Request, what: str) -> tuple[Visitor, Mapping[str, str]]:
        visitor, form = await _checked_form(request)
        if not visitor.user.approves:
            raise AgainstPolicy(f"{visitor.name} is a viewer, and may not {what}", "ask an approver")
        return visitor, form

    def acted(visitor: Visitor, what: str, **about: Any) -> None:
        _LOG.info("console_action", f"{visitor.name} {what}", user=visitor.name, **about)

    @app.post("/inbox/{id}")
    async def decide_proposal(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        visitor, form = await approver(request, "decide about proposals")
        words = {"approve": True, "refuse": False}
        if form.get("decision") not in words:
            raise MalformedMessage("the form has no decision", "approve or refuse")
        await run_in_threadpool(views.proposal, data, id)  # the whole id
        approved, reason = words[form["decision"]], form.get("reason", "").strip()
        if not approved and not reason:
            raise InvalidParameter("a refusal needs a reason", "go back and write one; it stays at this party")
        await run_in_threadpool(decide, data.settings, id, approved, by=visitor.name, reason=reason)
        acted(visitor, f"{'approved' if approved else 'refused'} the proposal {id}")
        return RedirectResponse(f"/inbox/{id}", 303)

    @app.post("/jobs/{name}/cancel")
    async def cancel_job(request: Request, name: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        visitor, _ = await approver(request, "cancel jobs")
        await run_in_threadpool(cancel, data.settings, run_name(name))
        acted(visitor, "cancelled a job", job=name)
        return RedirectResponse(f"/jobs/{name}", 303)

    @app.post("/jobs/{name}/audit")
    async def audit_job(request: Request, name: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        visitor, _ = await approver(request, "start audits")
        data.audits.start(run_name(name))
        acted(visitor, "started an audit", job=name)
        return RedirectResponse(f"/jobs/{name}#audit", 303)

    @app.post("/models/{id}/withdraw")
    async def withdraw_model(request: Request, id: str) -> Response:  # pyright: ignore[reportUnusedFunction]
        visitor, _ = await approver(request, "withdraw deployments")
        await run_in_threadpool(withdraw, data.settings, DeploymentFolder.at(data.settings, id))
        acted(visitor, "withdrew a deployment")
        return RedirectResponse("/models", 303)


# --- forms ----------------------------------------------------------------------------------------------------------


async def _form(request: Request) -> dict[str, str]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise MalformedMessage("the request is not a form of this console", "use the forms of the console")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            raise OversizedMessage(f"the form is larger than {LARGEST_FORM} bytes", "write less")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=bool(body), max_num_fields=20))
    except ValueError:
        raise MalformedMessage("the request is not a form of this console", "use the forms of the console") from None


async def _checked_form(request: Request) -> tuple[Visitor, dict[str, str]]:
    """The form of a person with a session, if it has the token of the session."""
    visitor: Visitor = request.scope[VISITOR]
    form = await _form(request)
    if not hmac.compare_digest(form.get("csrf", "").encode(), visitor.login.csrf.encode()):
        raise AgainstPolicy("the form does not belong to this session", "reload the page and try again")
    return visitor, form


def _file(content: str, kind: str, name: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@cache
def _static() -> Mapping[str, tuple[str, bytes]]:
    style = (REPORT_TEMPLATES / "style.css").read_bytes() + (STATIC / "console.css").read_bytes()
    return {
        "console.css": ("text/css", style),
        "console.js": ("text/javascript", (STATIC / "console.js").read_bytes()),
        "icon.svg": ("image/svg+xml", (STATIC / "icon.svg").read_bytes()),
    }


# --- live updates ---------------------------------------------------------------------------------------------------


async def _changes(console: Console, key: str, job: str | None) -> AsyncGenerator[str]:
    """Server-sent events: the version of what a page shows, when it changes. The page then loads itself again."""
    console.streams += 1
    try:
        last, silent = None, 0
        while not console.stopping and visitor_of(console.users, console.sessions, key, in_use=False) is not None:
            version = await run_in_threadpool(console.data.version, job)
            if version != last or silent >= BEAT_LOOKS:
                yield f"data: {version}\n\n" if version != last else ": beat\n\n"
                last, silent = version, 0
            silent += 1
            await asyncio.sleep(LOOK_SECONDS)
        yield "event: over\ndata: over\n\n"
    finally:
        console.streams -= 1
