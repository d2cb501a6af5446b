"""Middleware around every request of the console: limits, hosts, origin, session, headers and error pages."""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import FixedWindowRateLimiter
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veilboost.console.sessions import Login, Sessions
from veilboost.console.users import User, Users
from veilboost.console.views import error_page
from veilboost.errors import AgainstPolicy, LimitReached, PeerBroken, UnknownPeer, VeilBoostError
from veilboost.logs import EventLogger

PER_MINUTE = 600  # requests of one address
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
OPEN = frozenset({"/login", "/static/console.css", "/static/console.js", "/static/icon.svg"})  # without a session
LIVE = "x-live-update"  # the header of requests that a script makes without a person
EVENTS = "/events"  # the stream of live updates
VISITOR = "veilboost.visitor"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send the origin of a form as null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_LOG = EventLogger(__name__)


@dataclass(frozen=True)
class Visitor:
    """The person behind a request that has a session."""

    name: str
    user: User
    login: Login
    key: str


class ConsoleGuard:
    """ASGI middleware. Only requests with a session pass, except to the page to log in."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        users: Users,
        sessions: Sessions,
        cookie: str,
        secure: bool,
        hosts: Collection[str] | None,
    ) -> None:
        """`hosts`: the names under which the console is reached; None: any. `secure`: it has TLS."""
        self._app, self._users, self._sessions, self._cookie, self._secure = app, users, sessions, cookie, secure
        self._hosts = hosts
        self._rate, self._rates = RateLimitItemPerMinute(PER_MINUTE), FixedWindowRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, begun = Request(scope), False

        async def add_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if self._secure:
                    headers["Strict-Transport-Security"] = "max-age=31536000"
            await send(message)

        try:
            answer = await self._refusal(request)
            await (answer or self._app)(scope, receive, add_headers)
        except Exception as error:
            # The text of an exception may contain data: only its type and location are logged.
            where = traceback.extract_tb(error.__traceback__)[-1]
            _LOG.warning(
                "internal_error", f"the console failed: {type(error).__name__} at {where.filename}:{where.lineno}"
            )
            if not begun:
                broken = PeerBroken(f"internal error of the console ({type(error).__name__})", "read its log")
                await error_page(broken, 500)(scope, receive, add_headers)

    async def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that may not pass. The session of one that may is noted in its scope."""
        client = request.client.host if request.client else ""
        if not await self._rates.hit(self._rate, client):
            return error_page(LimitReached(f"more than {PER_MINUTE} requests in a minute", "wait a minute"), 429)
        host = _host(request.headers.get("host", ""))
        if self._hosts is not None and host not in self._hosts:
            wrong = UnknownPeer(
                "the request is for another host", "open the address that the console printed, or add --host NAME"
            )
            return error_page(wrong, 400)
        if request.method not in ("GET", "HEAD") and not _same_origin(request):
            return error_page(AgainstPolicy("the request comes from another web site", "log in and try again"), 403)
        visitor = self._visitor(request)
        request.scope[VISITOR] = visitor
        if visitor is not None or request.url.path in OPEN:
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/login", 303)
        return error_page(UnknownPeer("the request has no session of this console", "log in"), 401)

    def _visitor(self, request: Request) -> Visitor | None:
        key = request.cookies.get(self._cookie, "")
        in_use = LIVE not in request.headers and request.url.path != EVENTS
        return visitor_of(self._users, self._sessions, key, in_use=in_use)


def visitor_of(users: Users, sessions: Sessions, key: str, *, in_use: bool) -> Visitor | None:
    """The person whose session has this key; None if it is over, or if the user was removed or changed since."""
    login = sessions.find(key, in_use=in_use)
    if login is None:
        return None
    try:
        user = users.all.get(login.user)
    except VeilBoostError:
        return None
    return Visitor(login.user, user, login, key) if user is not None and user.hash == login.hash else None


def _host(value: str) -> str:
    try:
        return urlsplit(f"//{value}").hostname or ""
    except ValueError:
        return ""


def _same_origin(request: Request) -> bool:
    """Browsers state where a request comes from; a form of another site is refused before its token is looked at."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")
