"""What the active party can do before a job starts: draw its key pair and do the slow part of the first encryption."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.paillier.keys import generate_key
from veilboost.crypto.paillier.prepared import PreparedOwner, PreparedRandomness
from veilboost.engine.api import LOCAL
from veilboost.errors import CheckpointFailed, MissingLabel, UnsupportedCombination
from veilboost.party.settings import JobSettings, PartySettings
from veilboost.protocols.common.paillier_options import options_of
from veilboost.protocols.registry import protocol_named

_FOLDER = "prepared"


@dataclass(frozen=True)
class Prepared:
    """What lies ready, and where."""

    file: Path
    key_bits: int
    encryptions: int


def file_of(runs: Path, job: str) -> Path:
    return runs / _FOLDER / f"{job}.key"


def prepare(settings: PartySettings, job: JobSettings, trees: int = 1) -> Prepared:
    """Encryptions for all rows that we have, times so many trees: common rows are no more than these."""
    protocol_named(job.protocol.name).check(job.training)
    if settings.name != job.active or settings.data is None:
        raise MissingLabel(f"{settings.name} is not the active party of {job.name!r}", f"{job.active} prepares the job")
    if not _encrypts_by_paillier(job):
        raise UnsupportedCombination(
            "only Paillier encryption is slow enough to be done beforehand",
            "start the job; backend='lattice' encrypts in milliseconds",
        )
    if not _encrypts_here(settings):
        raise UnsupportedCombination(
            f"the engine {settings.engine} encrypts at its workers, and what lies ready here is of no use to them",
            "start the job, or use the engine local",
        )
    options = options_of(job.training)
    key = generate_key(options.key_bits, Csprng(), options.allow_insecure_key)
    owner = PreparedOwner.prepare(key, settings.data.load().rows * trees, Csprng())
    file = file_of(settings.runs, job.name)
    partial = file.with_suffix(".partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as kept:
            kept.write(owner.to_bytes())
        os.replace(partial, file)
    except OSError as error:
        raise CheckpointFailed(f"what was prepared cannot be written ({error.strerror})") from None
    return Prepared(file, options.key_bits, owner.left)


def take(settings: PartySettings, job: JobSettings, randomness: JobRandomness) -> JobRandomness:
    """The job's randomness with what was prepared for it, which is removed first: it serves one job, once."""
    file = file_of(settings.runs, job.name)
    if not file.exists() or not _encrypts_here(settings):
        return randomness
    try:
        content = file.read_bytes()
        file.unlink()
    except OSError as error:
        raise CheckpointFailed(f"what was prepared cannot be taken ({error.strerror})") from None
    if not _encrypts_by_paillier(job):
        return randomness
    return PreparedRandomness(randomness.key, PreparedOwner.from_bytes(content))


def _encrypts_here(settings: PartySettings) -> bool:
    return settings.engine == LOCAL.name


def _encrypts_by_paillier(job: JobSettings) -> bool:
    name = job.protocol.name
    return name == "paillier" or (name == "elxgb" and job.training.options.get("backend", "paillier") == "paillier")
