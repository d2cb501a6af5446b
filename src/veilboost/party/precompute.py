"""Work that a party does before a job: it hashes its ids, and the active party does the slow part of encryption.

The results are stored under RUNS/prepared, readable only by their owner, and are used once. The authority stores the
key of the hashed ids until the alignment that uses it.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilboost import at_rest, durable
from veilboost.align.api import alignment_named, all_alignments
from veilboost.align.hmac_csp import AlignmentKey, key_in
from veilboost.align.ids import Hashing, PreparedHashing, PreparedIds
from veilboost.crypto.csprng import Csprng, JobRandomness
from veilboost.crypto.fingerprint import KEY_BYTES
from veilboost.durable import keeping
from veilboost.engine.api import LOCAL
from veilboost.errors import (
    AgainstPolicy,
    ImpossibleSetting,
    InvalidParameter,
    JobExists,
    MalformedMessage,
    MissingLabel,
    UnsupportedCombination,
)
from veilboost.party.hub import LinkHub, caller_to
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job, read_job
from veilboost.party.messages import CONTROL_MESSAGES, PrepareAlignment, Propose
from veilboost.party.runs import RunFolder
from veilboost.party.session import SessionContext, TrainingSession
from veilboost.party.settings import PartySettings
from veilboost.protocols.paillier.messages import options_of
from veilboost.protocols.spec import Precomputation
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.wire.channel import Peers
from veilboost.wire.message import Catalogue, Message

IDS, ENCRYPTION = "ids", "encryption"
PREPARED = "prepared"  # the folder, which exists only if this party has prepared a job


def _precomputation(job: Job) -> Precomputation | None:
    """The precomputation of this job's protocol, if it has one that applies."""
    found = job.spec.precompute
    return found if found is not None and found.applies(job.training) else None


@dataclass(frozen=True)
class ReadyIds:
    """A file with hashed ids, and their number of rows."""

    file: Path
    rows: int
    seconds: float


@dataclass(frozen=True)
class ReadyEncryptions:
    """A file with encryptions and the key that made them."""

    file: Path
    key_bits: int
    encryptions: int
    seconds: float


@dataclass(frozen=True)
class Prepared:
    """The prepared results; None if the job, or this party's role in it, does not use them."""

    ids: ReadyIds | None
    encryption: ReadyEncryptions | None


def prepare(settings: PartySettings, job: Job, trees: int = 1, only: str | None = None) -> Prepared:
    """Prepare everything that this party can for the job, or `only` one part. Raises if there is nothing to prepare."""
    if only not in (None, IDS, ENCRYPTION):
        raise InvalidParameter(f"{only!r} cannot be prepared", f"use {IDS} or {ENCRYPTION}")
    validate(ResolvedJob(job.spec, job.training, settings.engine))
    if RunFolder(settings.runs / job.name).status.get("state") == "finished":
        raise JobExists(
            f"{settings.name} has finished the run {job.name!r}, so there is nothing to prepare",
            "change name in the job file to train another model",
        )
    if settings.engine != LOCAL.name:
        raise UnsupportedCombination(
            f"the engine {settings.engine} hashes and encrypts where its rows are and cannot use prepared results",
            "start the job, or use the engine local",
        )
    active, hashes = settings.name == job.driver, alignment_named(job.alignment).hashes_ids
    ids = only == IDS or (only is None and (hashes or not active))
    encryption = only == ENCRYPTION or (only is None and active and (_precomputation(job) is not None or not ids))
    # Ids first: they are fast, and a missing authority is found before the slow part begins.
    return Prepared(
        prepare_ids(settings, job) if ids else None,
        prepare_encryption(settings, job, trees) if encryption else None,
    )


class _Kept:
    """One file of a job under RUNS/prepared: written atomically, used once."""

    def __init__(self, settings: PartySettings, job: Job, kind: str) -> None:
        self.path = settings.runs / PREPARED / f"{job.name}.{kind}"

    def write(self, content: bytes) -> None:
        """Replace the file."""
        with keeping("the prepared results cannot be written"):
            durable.make_folder(self.path.parent)
            durable.sweep(self.path.parent, seconds=3600)  # half a key of a process that was killed
            at_rest.write(self.path, content)

    def read(self) -> bytes | None:
        with keeping("the prepared results cannot be read"), suppress(FileNotFoundError):
            return at_rest.read(self.path)
        return None

    def take(self) -> bytes | None:
        """The content; the file is removed first, so that only one of two concurrent callers gets it."""
        content = self.read()
        with keeping("the prepared results cannot be removed"), suppress(FileNotFoundError):
            self.path.unlink()  # fails for all callers but one
            durable.remove(self.path)
            return content
        return None


def prepare_encryption(settings: PartySettings, job: Job, trees: int = 1) -> ReadyEncryptions:
    """Encrypt for all rows of this party, times `trees`: there are at most as many common rows."""
    if settings.name != job.driver or settings.data is None:
        raise MissingLabel(f"{settings.name} is not the active party of {job.name!r}", f"{job.driver} encrypts")
    precompute = _precomputation(job)
    if precompute is None:
        raise UnsupportedCombination(
            "only Paillier encryption is slow enough to be done beforehand",
            "start the job; backend='lattice' encrypts in milliseconds",
        )
    began = time.perf_counter()
    values, kept = settings.data.load().rows * trees, _Kept(settings, job, "key")
    kept.write(precompute.make(job.training, values))
    return ReadyEncryptions(kept.path, options_of(job.training).key_bits, values, time.perf_counter() - began)


def prepared_randomness(settings: PartySettings, job: Job, randomness: JobRandomness) -> JobRandomness:
    """The job's randomness with the prepared results, which are removed first: they are used for one job, once."""
    if settings.engine != LOCAL.name:
        return randomness
    content = _Kept(settings, job, "key").take()
    precompute = _precomputation(job)
    return randomness if content is None or precompute is None else precompute.load(randomness, content)


def prepare_ids(settings: PartySettings, job: Job) -> ReadyIds:
    """Get the key of the job's next alignment from the authority, and hash the ids with it. ELXGB 6.1, offline."""
    if not alignment_named(job.alignment).hashes_ids:
        others = " or ".join(name for name, spec in all_alignments().items() if spec.hashes_ids)
        raise UnsupportedCombination(
            f"alignment = {job.alignment!r} does not hash ids", f"use alignment {others}, or start the job"
        )
    if settings.name not in job.owners or settings.data is None:
        raise AgainstPolicy(
            f"{settings.name} has no table in {job.name!r}", "only parties with a table in the job prepare ids"
        )
    began = time.perf_counter()
    ids = settings.data.load().ids
    hashed = Hashing().begin(ids)
    kept = _Kept(settings, job, "ids")
    kept.write(PreparedIds.make(ids, hashed, _ask_key(settings, job), job.id_hash).to_bytes())
    return ReadyIds(kept.path, len(ids), time.perf_counter() - began)


def prepared_hashing(settings: PartySettings, job: Job, run: RunFolder) -> Hashing:
    """The hashing of this run: with prepared ids, which are removed. The run's status records what was done."""
    content = _Kept(settings, job, "ids").take()
    if not alignment_named(job.alignment).hashes_ids:
        return Hashing()
    if content is None:
        run.note(ids="hashed in the job")
        return Hashing()
    try:
        return PreparedHashing(PreparedIds.from_bytes(content), lambda how: run.note(ids=how))
    except MalformedMessage:
        run.note(ids="hashed again: the prepared ids cannot be read")
        return Hashing()


def _ask_key(settings: PartySettings, job: Job) -> bytes:
    [authority] = (name for name, party in job.parties.items() if party.role == "authority")
    own = settings.peers.get(authority)
    address = (own and own.address) or job.parties[authority].address
    if address is None:
        raise ImpossibleSetting(f"{settings.name} has no address for {authority}", f"add it under [peers.{authority}]")
    seconds, hub = settings.limits.connect_seconds, LinkHub(settings)
    caller = caller_to(
        authority,
        settings,
        lambda name, left: hub.open(name, address, left),
        Catalogue({*CONTROL_MESSAGES, AlignmentKey}),
        seconds=seconds,
        idle_timeout=seconds,
    )
    try:
        request = {authority: PrepareAlignment(job.shared().text())}
        return key_in(Peers({authority: caller}).ask(request, AlignmentKey)[authority])
    finally:
        caller.close()
        hub.close()


# --- the authority's keys ---------------------------------------------------------------------------------

_making = threading.Lock()  # all parties of a job get the same key, even if they ask at the same time


def key_for(settings: PartySettings, job: Job) -> bytes:
    """The key of this job's next alignment, generated at the first request."""
    kept = _Kept(settings, job, "alignment")
    with _making:
        key = _read_key(kept.read(), job)
        if key is None:
            key = Csprng().bytes(KEY_BYTES)
            kept.write(json.dumps({"parties": _parties(job), "key": key.hex()}).encode())
        return key


def take_key(settings: PartySettings, job: Job) -> bytes | None:
    """The key for this alignment's parties, which is no longer stored afterwards; None if there is none."""
    return _read_key(_Kept(settings, job, "alignment").take(), job)


def _parties(job: Job) -> dict[str, Any]:
    """The aligning parties and their roles: a key is only used by the parties that it was made for."""
    return {"active": job.driver, "roles": {name: party.role for name, party in job.parties.items()}}


def _read_key(content: bytes | None, job: Job) -> bytes | None:
    """The key, if it was made for these parties. A damaged file counts as none."""
    try:
        found = cast("dict[str, Any]", json.loads(content or b"{}"))
        key = bytes.fromhex(found["key"])
        return key if found["parties"] == _parties(job) and len(key) == KEY_BYTES else None
    except (ValueError, KeyError, TypeError):
        return None


class KeySession(TrainingSession):
    """A party requests the key of a job's alignment from the authority, to hash its ids before the job.

    One request and its answer. The owner's policy decides as it would about the job itself.
    """

    def __init__(self, context: SessionContext, request: PrepareAlignment) -> None:
        super().__init__(context, read_job(request.job), Propose(request.job, dry_run=True, resume=False))

    def _check_place(self, peer: PeerIdentity) -> None:
        job, me = self.job, self.settings.name
        if not alignment_named(job.alignment).hashes_ids or me not in job.parties or self.role != "authority":
            raise AgainstPolicy(
                f"{me} is not the authority of {job.name!r}", "ask the authority of the job", public=True
            )
        # TLS determines which party asks. The CSP has no table in the job and must never get the key.
        if peer.party not in job.owners:
            raise AgainstPolicy(
                f"{peer.party} has no table in {job.name!r}",
                "the key is only for parties with a table in the job",
                public=True,
            )

    def _open(self) -> None:
        self.catalogue = Catalogue(CONTROL_MESSAGES)

    def _act(self, peer: PeerIdentity, message: Message) -> AlignmentKey:
        self.over = True
        return AlignmentKey(np.frombuffer(key_for(self.settings, self.job), np.uint8))
