"""A party hashes its ids before a job runs, and uses the digests when it does."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from veilboost.align.hashing import Hashing
from veilboost.align.hmac_csp.hashed import key_in
from veilboost.align.hmac_csp.messages import AlignmentKey
from veilboost.align.hmac_csp.prepared import PreparedHashing, PreparedIds
from veilboost.align.hmac_csp.spec import SPEC
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.keyed_hash import HASHES
from veilboost.errors import AgainstPolicy, ImpossibleSetting, MalformedMessage, UnsupportedCombination
from veilboost.party.commented import commented_toml
from veilboost.party.hub import LinkHub, own_identity
from veilboost.party.job import Job
from veilboost.party.messages import CONTROL_MESSAGES, PrepareAlignment
from veilboost.party.prepared_files import keep, place_of, take
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings
from veilboost.wire.channel import Peers
from veilboost.wire.codec import Catalogue
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript


@dataclass(frozen=True)
class ReadyIds:
    """So many rows' ids lie hashed in this file."""

    file: Path
    rows: int
    seconds: float


def hashes_ids(job: Job) -> bool:
    return job.alignment == SPEC.name


def prepare_ids(settings: PartySettings, job: Job) -> ReadyIds:
    """Ask the authority for the key of the job's next alignment, and hash with it. ELXGB 6.1, offline."""
    if not hashes_ids(job):
        raise UnsupportedCombination(
            f"alignment = {job.alignment!r} hashes no ids beforehand", f"align by {SPEC.name}, or start the job"
        )
    if settings.name not in job.owners or settings.data is None:
        raise AgainstPolicy(f"{settings.name} has no table in {job.name!r}", "those whose rows align prepare ids")
    began = time.perf_counter()
    ids = settings.data.load().ids
    hashed = Hashing().begin(ids)
    ready = PreparedIds.make(ids, hashed, _ask_key(settings, job), HASHES[0])
    file = _file(settings, job)
    keep(file, ready.to_bytes())
    return ReadyIds(file, len(ids), time.perf_counter() - began)


def hashing_for(settings: PartySettings, job: Job, run: RunFolder) -> Hashing:
    """How ids are hashed in this run: with what lies ready, which is removed. The run's status says what was done."""
    content = take(_file(settings, job))
    if not hashes_ids(job):
        return Hashing()
    if content is None:
        run.note(ids="hashed in the job")
        return Hashing()
    try:
        return PreparedHashing(PreparedIds.from_bytes(content), lambda how: run.note(ids=how))
    except MalformedMessage:
        run.note(ids="hashed anew: what was prepared cannot be read")
        return Hashing()


def _file(settings: PartySettings, job: Job) -> Path:
    return place_of(settings.runs, job.name, "ids")


def _ask_key(settings: PartySettings, job: Job) -> bytes:
    [authority] = (name for name, party in job.parties.items() if party.role == "authority")
    own = settings.peers.get(authority)
    address = (own and own.address) or job.parties[authority].address
    if address is None:
        raise ImpossibleSetting(f"{settings.name} has no address of {authority}", f"add it under [peers.{authority}]")
    limits, hub = settings.limits, LinkHub(own_identity(settings), settings.limits)
    caller = Caller(
        authority,
        lambda seconds: hub.open(authority, address, seconds),
        Csprng().bytes(16),
        Catalogue({*CONTROL_MESSAGES, AlignmentKey}),
        Transcript(settings.name),
        limits.connect_seconds,
        silence=limits.connect_seconds,
    )
    try:
        asked = PrepareAlignment(commented_toml(job.shared(), f"The job {job.name}."))
        return key_in(Peers({authority: caller}).ask({authority: asked}, AlignmentKey)[authority])
    finally:
        caller.close()
        hub.close()
