"""What a party can do before a job starts: hash its ids, and as the active one do the slow part of encrypting."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from veilboost.crypto.csprng import JobRandomness
from veilboost.engine.api import LOCAL
from veilboost.errors import ImpossibleParameter, JobExists, MissingLabel, UnsupportedCombination
from veilboost.party import prepared_files
from veilboost.party.prepared_ids import ReadyIds, hashes_ids, prepare_ids
from veilboost.party.runs import RunFolder
from veilboost.party.settings import JobSettings, PartySettings
from veilboost.protocols.paillier.options import options_of
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import Precomputation
from veilboost.protocols.validation import ResolvedJob, validate

IDS, ENCRYPTION = "ids", "encryption"


@dataclass(frozen=True)
class ReadyEncryptions:
    """So many encryptions lie in this file, with the key that made them."""

    file: Path
    key_bits: int
    encryptions: int
    seconds: float


@dataclass(frozen=True)
class Prepared:
    """What lies ready; None is what this job, or this party's role in it, has no use for."""

    ids: ReadyIds | None
    encryption: ReadyEncryptions | None


def prepare(settings: PartySettings, job: JobSettings, trees: int = 1, only: str | None = None) -> Prepared:
    """All that this party can do for the job, or `only` one part of it. Raises where that is nothing."""
    if only not in (None, IDS, ENCRYPTION):
        raise ImpossibleParameter(f"{only!r} is nothing to prepare", f"use {IDS} or {ENCRYPTION}")
    validate(ResolvedJob(protocol_named(job.protocol.name), job.training, settings.engine))
    if RunFolder(settings.runs / job.name).status.get("state") == "finished":
        raise JobExists(f"{settings.name} has a finished run {job.name!r}")
    if settings.engine != LOCAL.name:
        raise UnsupportedCombination(
            f"the engine {settings.engine} hashes and encrypts where its rows are, and what lies ready here is of no "
            "use to it",
            "start the job, or use the engine local",
        )
    active = settings.name == job.active
    ids = only == IDS or (only is None and (hashes_ids(job) or not active))
    encryption = only == ENCRYPTION or (only is None and active and (_precomputation(job) is not None or not ids))
    # Ids first: they are quick, and an authority that is not there is found before the slow part begins.
    return Prepared(
        prepare_ids(settings, job) if ids else None,
        prepare_encryption(settings, job, trees) if encryption else None,
    )


def prepare_encryption(settings: PartySettings, job: JobSettings, trees: int = 1) -> ReadyEncryptions:
    """Encryptions for all rows that we have, times so many trees: common rows are no more than these."""
    if settings.name != job.active or settings.data is None:
        raise MissingLabel(f"{settings.name} is not the active party of {job.name!r}", f"{job.active} encrypts")
    precompute = _precomputation(job)
    if precompute is None:
        raise UnsupportedCombination(
            "only Paillier encryption is slow enough to be done beforehand",
            "start the job; backend='lattice' encrypts in milliseconds",
        )
    began = time.perf_counter()
    values, file = settings.data.load().rows * trees, _file(settings, job)
    prepared_files.keep(file, precompute.make(job.training, values))
    return ReadyEncryptions(file, options_of(job.training).key_bits, values, time.perf_counter() - began)


def take(settings: PartySettings, job: JobSettings, randomness: JobRandomness) -> JobRandomness:
    """The job's randomness with what was prepared for it, which is removed first: it serves one job, once."""
    if settings.engine != LOCAL.name:
        return randomness
    content = prepared_files.take(_file(settings, job))
    precompute = _precomputation(job)
    return randomness if content is None or precompute is None else precompute.load(randomness, content)


def _file(settings: PartySettings, job: JobSettings) -> Path:
    return prepared_files.place_of(settings.runs, job.name, "key")


def _precomputation(job: JobSettings) -> Precomputation | None:
    """What this job's protocol can do before it, if anything."""
    found = protocol_named(job.protocol.name).precompute
    return found if found is not None and found.applies(job.training) else None
