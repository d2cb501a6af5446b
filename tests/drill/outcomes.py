"""What came of one input: accepted, refused with a code, or anything worse."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from veilboost.errors import VeilBoostError


@contextmanager
def within(seconds: float) -> Iterator[None]:
    def over(*_: object) -> None:
        raise TimeoutError(f"no end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome_of(read: Callable[[], object], seconds: float) -> str:
    """ "accepted", a code, or "bad: " and what happened."""
    try:
        with within(seconds):
            read()
    except VeilBoostError as error:
        return error.code if error.code != "VB-1707" else f"bad: {error}"
    except Exception as error:
        where = error.__traceback__
        while where and where.tb_next:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
        return f"bad: {type(error).__name__}: {error} at {place}"[:300]
    return "accepted"
