"""The log of a party: events with their job and peer, as text or JSON lines, and never with the content of a table.

Code logs through an `EventLogger`. What a record concerns is bound once, by `bound` or `bind`, for all records of the
thread. Files and rotation are the operator's: the log goes to stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from math import isfinite
from types import MappingProxyType
from typing import Any

from veilboost.errors import VeilBoostError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
MOST_TEXT = 1000  # characters of a reason, in which a peer may have a part
EVENTS: Mapping[str, str] = {
    "party_started": "the daemon listens; its release, address and certificate",
    "party_stopped": "the daemon stops",
    "peer_connected": "a peer was admitted (debug)",
    "peer_refused": "a peer was refused before its first request: unknown, revoked, expired, another release, a limit",
    "peer_unreachable": "this party dials a peer that cannot be reached or refuses; once per code until it answers",
    "job_proposed": "a job was proposed, by this party or to it; a dry run is logged at debug",
    "check_failed": "a check of a dry run failed at this party: which one, with the code and the full reason",
    "job_accepted": "this party takes part in a job",
    "job_refused": "this party refused a job, prediction or service, with the code and the full reason",
    "job_held": 'a proposal waits until a person decides about it (approval = "ask"); its id',
    "job_decided": "a person decided about a proposal; its id",
    "job_begun": "all parties have accepted; an earlier attempt is removed",
    "layout_chosen": "how the driver encrypts, and the line for which it chose that: round trip and throughput",
    "categories_dropped": "columns with very many categories: a job uses the frequent ones; how many columns",
    "job_resumed": "an interrupted job continues",
    "job_finished": "the job is complete, and the share of this party is stored",
    "job_cancelled": "the driver stopped the job; it can be resumed",
    "job_failed": "the job ended with an error",
    "job_parked": "the driver is gone, or the daemon stops; the job can be resumed",
    "job_ended": "the owner of the table ended the job; it cannot be resumed",
    "job_expired": "the job stopped longer ago than the policy allows; it cannot be resumed",
    "round_finished": "a boosting round ended, at the driver (debug)",
    "request_refused": "a request within a session failed or was refused, with the code and the full reason",
    "ledger_reserved": "budget was reserved in the privacy ledger: epsilon and delta",
    "ledger_spent": "a release was booked in the privacy ledger: its kind, its receiver, how many",
    "ledger_closed": "the reservation of a job ended; its releases count",
    "prediction_accepted": "a joint prediction began: number of rows",
    "prediction_answered": "a joint prediction was answered: number of rows",
    "deployment_accepted": "this party keeps a model deployed: its name and version, for how many days",
    "deployment_refreshed": "a deployment uses a table that has changed",
    "deployment_outdated": "the table of a deployment has changed and cannot be used; the rows loaded before still are",
    "deployment_damaged": "the status of a deployment cannot be read; it is left out",
    "deployment_withdrawn": "a deployment was withdrawn, by its owner or by the active party",
    "deployment_expired": "the lifetime of a deployment is over",
    "certificate_expires": "a certificate expires within 30 days, or has expired; once a day",
    "certificate_changed": "the files of the certificate have changed, and new connections use them",
    "certificate_unusable": "the files of the certificate have changed and cannot be used; the old ones still are",
    "file_deleted": "the daemon deleted files that [retention] no longer keeps",
    "console_login": "a person logged in to the web console",
    "console_refused": "a wrong name or password for the web console, or too many attempts",
    "console_action": "a person decided, cancelled a job, withdrew a deployment or started an audit in the web console",
    "request": "a request to the HTTP service was answered: method, route, status, time",
    "internal_error": "an unexpected error: its type and place, never its text",
}

_BOUND: ContextVar[Mapping[str, str]] = ContextVar("veilboost_log", default=MappingProxyType({}))


@contextmanager
def bound(**fields: str) -> Generator[None]:
    """Records of this thread concern this job, peer or session until the block ends."""
    token = _BOUND.set({**_BOUND.get(), **fields})
    try:
        yield
    finally:
        _BOUND.reset(token)


def bind(**fields: str) -> None:
    """The same, until the innermost `bound` block ends."""
    _BOUND.set({**_BOUND.get(), **fields})


def is_bound(field: str) -> bool:
    return field in _BOUND.get()


def reason(error: BaseException) -> str:
    """Why something failed, in one line: full, except for text that may name columns or quote values of a table.

    That text is in the status of the run, which only the owner reads.
    """
    if isinstance(error, VeilBoostError):
        short = f"{error.code}: {error.summary} (veilboost jobs show has the details)"
        return short if error.names_data else " ".join(str(error).split())[:MOST_TEXT]
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    system = f" ({os.strerror(error.errno)})" if isinstance(error, OSError) and error.errno else ""
    return f"{type(error).__name__}{place}{system}"


class EventLogger:
    """Logs events of `EVENTS`. `fields` are numbers and names that are no data; `error` adds its code."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, text: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, text, fields)

    def info(self, event: str, text: str, error: BaseException | None = None, **fields: Any) -> None:
        self._log(logging.INFO, event, text, fields | _code(error))

    def warning(self, event: str, text: str, error: BaseException | None = None, **fields: Any) -> None:
        self._log(logging.WARNING, event, text, fields | _code(error))

    def _log(self, level: int, event: str, text: str, fields: Mapping[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(
                level, "%s", text, extra={"event": event, "fields": {**_BOUND.get(), **fields}}, stacklevel=3
            )


def _code(error: BaseException | None) -> dict[str, str]:
    return {"code": error.code} if isinstance(error, VeilBoostError) else {}


# --- output ---------------------------------------------------------------------------------------------------------


class TextFormatter(logging.Formatter):
    """`2026-01-31T09:30:00.123Z WARNING job_refused job=credit peer=bank: why`"""

    def format(self, record: logging.LogRecord) -> str:
        told = _content(record)
        time, level, event = told.pop("time"), told.pop("level"), told.pop("event")
        logger, message = told.pop("logger"), told.pop("message")
        about = "".join(f" {key}={value}" for key, value in told.items())
        line = f"{time} {level.upper()} {event or logger}{about}: {message}"
        return "".join(letter if letter.isprintable() else "?" for letter in line)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        told = _content(record)  # JSON has no infinity
        infinite = {key: str(value) for key, value in told.items() if isinstance(value, float) and not isfinite(value)}
        return json.dumps(told | infinite, default=str)


def _content(record: logging.LogRecord) -> dict[str, Any]:
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    message = record.getMessage()
    if record.exc_info and record.exc_info[1] is not None:  # without its text, which may quote a table
        message = f"{message}: {reason(record.exc_info[1])}"
    event, fields = getattr(record, "event", None), getattr(record, "fields", {})
    about = {"time": time, "level": record.levelname.lower(), "logger": record.name, "event": event}
    first = {name: fields[name] for name in ("job", "peer", "session") if name in fields}
    return {**about, **first, **fields, "message": message}


class _Stderr(logging.StreamHandler[Any]):
    """Writes to what `sys.stderr` is now: a live view on a terminal replaces it for a time."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return sys.stderr


@contextmanager
def logging_to_stderr(level: str, format: str) -> Generator[None]:
    """Write records to stderr: those of this package from `level` on, and warnings of the libraries that it uses.

    Errors that end a thread are logged too, by type and place.
    """
    handler, root, logger = _Stderr(), logging.getLogger(), logging.getLogger("veilboost")
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    before, hook = logger.level, threading.excepthook

    def log_uncaught(raised: threading.ExceptHookArgs) -> None:
        if raised.exc_value is not None and not isinstance(raised.exc_value, SystemExit):
            EventLogger(__name__).warning("internal_error", f"a thread ended: {reason(raised.exc_value)}")

    root.addHandler(handler)
    logger.setLevel(level.upper())
    threading.excepthook = log_uncaught
    try:
        yield
    finally:
        threading.excepthook = hook
        logger.setLevel(before)
        root.removeHandler(handler)
