"""The authority's keys for alignments to come: given to the parties beforehand, used once when the job runs."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, cast

from veilboost.crypto.csprng import Csprng
from veilboost.crypto.keyed_hash import KEY_BYTES
from veilboost.party.job import Job
from veilboost.party.prepared_files import keep, kept, place_of, take
from veilboost.party.settings import PartySettings

_making = threading.Lock()  # all parties of a job get the same key, also those that ask at the same time


def key_for(settings: PartySettings, job: Job) -> bytes:
    """The key of this job's next alignment, made when the first party asks for it."""
    file = _file(settings, job)
    with _making:
        key = _read(kept(file), job)
        if key is None:
            key = Csprng().bytes(KEY_BYTES)
            keep(file, json.dumps({"parties": _parties(job), "key": key.hex()}).encode())
        return key


def take_key(settings: PartySettings, job: Job) -> bytes | None:
    """The key that the parties of this alignment may have, which from now on is not kept; None: there is none."""
    return _read(take(_file(settings, job)), job)


def _file(settings: PartySettings, job: Job) -> Path:
    return place_of(settings.runs, job.name, "alignment")


def _parties(job: Job) -> dict[str, Any]:
    """Who aligns, and in which role: a key is never used among others than those it was made for."""
    return {"active": job.driver, "roles": {name: party.role for name, party in job.parties.items()}}


def _read(content: bytes | None, job: Job) -> bytes | None:
    """The key, if it was made for these parties. A file that is damaged holds none."""
    try:
        found = cast("dict[str, Any]", json.loads(content or b"{}"))
        key = bytes.fromhex(found["key"])
        return key if found["parties"] == _parties(job) and len(key) == KEY_BYTES else None
    except (ValueError, KeyError, TypeError):
        return None
