"""Who is logged in, and how often passwords are tried. Both are in memory: a restart logs everyone out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from limits import RateLimitItemPerHour, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from veilboost.console.users import random_token
from veilboost.errors import LimitReached

IDLE_SECONDS = 30 * 60.0
LONGEST_SECONDS = 12 * 3600.0  # after which everyone has to log in again
MOST_SESSIONS = 1000
LONGEST_NAME = 64
# Attempts to log in: from one address, and for one name from all addresses.
OF_AN_ADDRESS, FOR_A_NAME = RateLimitItemPerMinute(10, 15), RateLimitItemPerHour(30)


@dataclass
class Login:
    """One session of a browser. `csrf` is the token that its forms must send, `hash` that of the user's password."""

    user: str
    hash: str
    began: float
    seen: float
    csrf: str = field(default_factory=random_token)


class Sessions:
    """The sessions of all browsers. The server stores a hash of a session's key, which only the browser has."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, Login] = {}

    def open(self, user: str, hash: str) -> str:
        """Log in; returns the key of the session."""
        now, key = self._clock(), random_token()
        for old in [each for each, login in self._open.items() if self._is_over(login, now)]:
            del self._open[old]
        if len(self._open) >= MOST_SESSIONS:
            del self._open[min(self._open, key=lambda each: self._open[each].seen)]
        self._open[_hashed(key)] = Login(user, hash, now, now)
        return key

    def find(self, key: str, *, in_use: bool) -> Login | None:
        """The session with this key. `in_use`: a person does something, so the idle time starts again."""
        login, now = self._open.get(_hashed(key)), self._clock()
        if login is None or self._is_over(login, now):
            return None
        if in_use:
            login.seen = now
        return login

    def close(self, key: str) -> None:
        self._open.pop(_hashed(key), None)

    def _is_over(self, login: Login, now: float) -> bool:
        return now - login.seen > IDLE_SECONDS or now - login.began > LONGEST_SECONDS


def _hashed(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class Attempts:
    """Limits how often passwords are tried, so that they cannot be guessed."""

    def __init__(self) -> None:
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def count(self, address: str, name: str) -> None:
        """Count an attempt. Raises if there were too many from this address or for this name."""
        if not (
            self._limiter.hit(OF_AN_ADDRESS, "address", address)
            and self._limiter.hit(FOR_A_NAME, "name", name[:LONGEST_NAME])
        ):
            raise LimitReached("too many attempts to log in", "wait for 15 minutes, or up to an hour, and try again")
