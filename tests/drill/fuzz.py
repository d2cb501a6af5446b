"""Hostile input: changed frames, packets, TOML, certificates, files of a party, and changed messages in jobs.

    python tests/drill/fuzz.py [--inputs 1000000] [--seed 0] [--targets decode packets] [--out FILE]
    python tests/drill/fuzz.py --jobs 200 [--protocols mal secagg]
    python tests/drill/fuzz.py --guided decode --seconds 600      (coverage-guided; needs `pip install atheris`)

Every input is a valid one with a few changes. It must be accepted or refused with a coded error, within a second and
without taking memory. In a job one field of one message is changed; the job must end with a coded error or with a
model. A refused request must leave nothing in the account of the party that refused it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType

import numpy as np
from lies import VARIANTS, change_messages
from outcomes import outcome_of

from veilboost.align.api import all_alignments
from veilboost.align.slots import SlotOwner, SlotTable
from veilboost.boost.booster import Progress, RoundResult
from veilboost.config import TrainingConfig
from veilboost.console.users import Users
from veilboost.crypto.csprng import JobRandomness
from veilboost.errors import VeilBoostError
from veilboost.infer.messages import PREDICTION_MESSAGES
from veilboost.model.share import MembershipChange
from veilboost.model.store import load_share, save_share
from veilboost.party import simulation
from veilboost.party.approvals import (
    APPROVALS,
    CLOSED,
    DECISION,
    PROPOSAL,
    decide,
    find_proposal,
    list_proposals,
    require_approval,
    use_approval,
    verify,
)
from veilboost.party.certs import init_authority, issue
from veilboost.party.deployed import asked_by_day
from veilboost.party.deployment_folder import DeploymentFolder, DeploymentStatus, Trail
from veilboost.party.hub import LINK
from veilboost.party.identity import check_signed, load_identity, peer_identity, sign
from veilboost.party.job import Job, JobParty, read_job
from veilboost.party.lifecycle import about
from veilboost.party.messages import CONTROL_MESSAGES
from veilboost.party.policy import Policy
from veilboost.party.predicting import PREDICTIONS_FILE, spend_daily, spent_today
from veilboost.party.proposals import Subject
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings, load_party
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.privacy.ledger import Ledger
from veilboost.protocols.registry import all_protocols
from veilboost.secure_inference.messages import SECURE_MESSAGES
from veilboost.testing.tables import make_columns, make_labels, split_among
from veilboost.wire.grpc import decode_chunk, encode_chunk
from veilboost.wire.message import Catalogue, Message, _plan, decode_all, encode, join_frames
from veilboost.wire.rpc import Kind, Packet, failure_from, from_chunks, to_chunks

SLOW = 1.0  # seconds that one input may take
MOST_MEGABYTES = 512  # by which all inputs together may raise the peak
SHARES = {
    **{"decode": 50, "packets": 25, "failures": 5, "jobs": 4, "settings": 3, "proofs": 4, "models": 3, "ledgers": 1},
    "states": 5,
}
# Modules whose branches guide atheris.
GUIDED = (
    *(f"veilboost.party.{name}" for name in ("identity", "job", "sections")),
    *(f"veilboost.wire.{name}" for name in ("grpc", "message", "rpc")),
    *("veilboost.fields", "veilboost.model.store", "veilboost.privacy.ledger"),
)
EVERY = sorted(
    {
        *CONTROL_MESSAGES,
        *PREDICTION_MESSAGES,
        *SECURE_MESSAGES,
        *(each for spec in (*all_protocols().values(), *all_alignments().values()) for each in spec.messages),
    },
    key=lambda cls: cls.__name__,
)


@dataclass(frozen=True)
class Target:
    """`read` takes an input as a peer or a file would give it; `seeds` are valid ones."""

    read: Callable[[bytes], object]
    seeds: Sequence[bytes]


# --- inputs ---------------------------------------------------------------------------------------------------------

TOKENS = (
    b"",
    b"\0",
    b"\xff" * 8,
    b"-1",
    b"1e999",
    b"nan",
    b"[" * 2000,
    b"{}",
    b'"',
    b"\n",
    b"true",
    b"9" * 400,
    b"../",
)
TOKENS += tuple(
    number.to_bytes(size, "little") for size in (2, 4, 8) for number in (0, 1, 255, (1 << 8 * size - 1) - 1)
)


def changed(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with a few changes; now and then two of them joined, or noise."""
    data = bytearray(rng.choice(seeds))
    for _ in range(1 + int(rng.expovariate(0.7))):
        at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        match rng.randrange(7):
            case 0 if data:
                data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + rng.randrange(3)] = rng.choice(TOKENS)
            case 2:
                token = rng.choice(TOKENS)
                data[at : at + len(token)] = token
            case 3:
                del data[at : min(end, at + 40)]
            case 4:
                data[at:at] = data[at : min(end, at + 40)]
            case 5:
                data[at:] = rng.choice(seeds)[at:]
            case _:
                data[at : at + 8] = rng.randbytes(rng.randrange(9))
    return bytes(data)


def example(cls: type[Message]) -> Message:
    """Any message of a class."""
    plan = _plan(cls)
    texts = {int: 3, float: 0.5, bool: True, str: "credit"}
    values = {name: texts.get(kind, ("a", "b")) for name, kind in plan.scalars}
    return cls(**values, **{item.name: np.ones((2,) * item.ndim, item.dtype) for item in plan.arrays})


def targets(folder: Path) -> dict[str, Target]:
    """What reads input of others, with valid inputs; `folder` holds their files."""
    catalogue = Catalogue(EVERY)
    frames = [encode(example(cls)) for cls in EVERY]
    chunks = [
        b"".join(len(raw).to_bytes(2, "little") + raw for raw in map(encode_chunk, to_chunks(packet, size)))
        for packet in (Packet(kind, b"s" * 16, 7, frames[0]) for kind in Kind)
        for size in (32, 1 << 16)
    ]
    init_authority(folder)
    issue(folder, "bank", ["localhost"])
    certificate = folder / "bank.crt"
    identity = load_identity(certificate, folder / "bank.key", folder / "ca.crt")
    parties = {"bank": JobParty(role="active"), "shop": JobParty("127.0.0.1:7400")}
    job = Job(name="credit", parties=parties, protocol="lattice", training=TrainingConfig(n_estimators=3))
    certificates = CertificateSettings(certificate, folder / "bank.key", folder / "ca.crt")
    settings = PartySettings(
        name="bank",
        certificates=CertificateSettings(Path("bank.crt"), Path("bank.key"), Path("ca.crt")),
        data=DataSettings(Path("bank.parquet"), id="id", label="late"),
        policy=Policy(protocols=("plain",), epsilon_total=3.0, peers={"shop": ("any",)}),
    )
    texts = [commented_toml(item, "A file.") for item in (job, settings)]
    short = [b"\n".join(line for line in text.encode().splitlines() if not line.startswith(b"#")) for text in texts]
    proof = sign(identity, LINK, b"content").encode()

    def packets(data: bytes) -> None:
        pieces: list[bytes] = []
        while len(data) > 2:
            size = int.from_bytes(data[:2], "little")
            pieces.append(data[2 : 2 + size])
            data = data[2 + size :]
        for packet in from_chunks(map(decode_chunk, pieces), 1 << 20):
            decode_all(packet.body, catalogue)

    def failures(data: bytes) -> None:
        if not str(failure_from("shop", data)).isprintable():
            raise ValueError("a terminal would obey the text of a peer")

    def toml(data: bytes) -> None:
        (folder / "party.toml").write_bytes(data)
        load_party(folder / "party.toml")

    def proofs(data: bytes) -> None:
        if data.startswith(b"-----"):
            peer_identity(data)
        check_signed(data.decode(errors="replace"), "bank", LINK, b"content", identity.ca)

    return {
        "decode": Target(lambda data: decode_all(data, catalogue), [*frames, join_frames(frames[:3])]),
        "packets": Target(packets, chunks),
        "failures": Target(failures, [b"VB-1612\nrefused\nask the owner", b"VB-1409\n\n"]),
        "jobs": Target(lambda data: read_job(data.decode(errors="replace")), [short[0]]),
        "settings": Target(toml, [short[1]]),
        "proofs": Target(proofs, [proof, certificate.read_bytes()]),
        "models": _models(folder / "share"),
        "ledgers": _ledgers(folder / "ledger.sqlite"),
        "states": _states(replace(settings, runs=folder / "state", certificates=certificates)),
    }


def _models(folder: Path) -> Target:
    """A share: the manifest, a separator, the arrays. With a first byte of 0 the checksum is made right again."""
    tables = split_among(make_columns(3, 60, 3, 1), make_labels(3, make_columns(3, 60, 3, 1)), 2)
    shares = simulation.simulate_training(tables, "p0", "plain", TrainingConfig(n_estimators=2, max_depth=2)).shares
    seeds: list[bytes] = []
    for share in shares.values():
        save_share(share, folder)
        (arrays,) = (path for path in folder.iterdir() if path.suffix == ".npz")
        manifest = (folder / "manifest.json").read_bytes()
        seeds += [first + manifest + b"\0\0\0\0" + arrays.read_bytes() for first in (b"0", b"1")]
    name = arrays.name

    def read(data: bytes) -> None:
        manifest, _, content = data[1:].partition(b"\0\0\0\0")
        if data[:1] == b"0":
            known = hashlib.sha256(content).hexdigest().encode()
            at = manifest.find(b'arrays_sha256": "') + 17
            manifest = manifest[:at] + known + manifest[at + 64 :] if at > 16 else manifest
        (folder / "manifest.json").write_bytes(manifest)
        (folder / name).write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_share(folder)

    return Target(read, seeds)


def _ledgers(path: Path) -> Target:
    """A ledger: the database, a separator, the head beside it."""
    ledger, mark = Ledger(path), b"\0head\0"
    ledger.reserve("credit/1", 1.0, 1e-6, lambda: None)
    about = {"what": "sums", "adjacency": Adjacency.RECORD, "adversary": "shop", "protocol": "plain"}
    ledger.append("credit/1", *(ExactRelease(**about, release=f"round {n}", rows=300) for n in range(3)))
    ledger.close("credit/1")
    head = path.with_name(path.name + ".head")
    seed = path.read_bytes() + mark + (head.read_bytes() if head.exists() else b"")

    def read(data: bytes) -> None:
        content, _, stored = data.rpartition(mark)
        for journal in path.parent.glob(f"{path.name}-*"):
            journal.unlink()
        path.write_bytes(content)
        head.write_bytes(stored)
        ledger.verify()
        ledger.totals(1e-6)
        ledger.exact()

    return Target(read, [seed])


def _states(settings: PartySettings) -> Target:
    """A file of a run, a deployment, an approval or the console: the number of its reader, and its content."""
    run, tables = RunFolder.create(settings.runs, "credit"), make_columns(3, 60, 3, 1)
    trained = simulation.simulate_training(
        split_among(tables, make_labels(3, tables), 2), "p0", "plain", TrainingConfig(n_estimators=2, max_depth=2)
    )
    run.note(party="bank", state="parked", membership=[vars(MembershipChange("shop", "lost", 1, 0, "gone"))])
    history, margin = [RoundResult(0, 0.1, 0.5, None)], np.zeros((1, 60))
    progress = Progress(list(trained.shares["p0"].skeleton.trees), margin, history)
    run.checkpoints.save(trained.shares["p0"], 2, JobRandomness(), {"shop": "ab"}, progress)
    now = time.time()
    status = DeploymentStatus("credit", 1, "credit", "bank", ("shop",), now, now + 1e6, 2)
    deployed = DeploymentFolder.create(settings, "1" * 32, status)
    slots, _ = SlotOwner(deployed.key).updated(SlotTable.of(None), np.arange(5))
    deployed.save_index(vars(slots))
    trail = Trail(deployed)
    trail.add(peer="bank", what="scored", rows=1, slots=[2])
    trail.close()
    peer = peer_identity(settings.certificates.cert.read_bytes())
    about_it = {"settings": {"n_estimators": "3"}, "table": "main", "columns": ("a",), "rows": 60}
    subject = Subject(kind="training", role="active", job="credit", protocol="plain", **about_it)
    with suppress(VeilBoostError):  # a person decides first
        require_approval(replace(settings, policy=replace(settings.policy, approval="ask")), peer, "d", lambda: subject)
    (held,) = list_proposals(settings)
    decide(settings, held.id, True, by="anna", reason="contract")
    use_approval(settings, find_proposal(settings, held.id))
    approval = settings.runs / APPROVALS / held.id
    users = Users(settings.runs / "console.json")
    users.add("anna", "approver", "a long password")
    spend_daily(settings, PREDICTIONS_FILE, "bank", 5)
    file_of_index, checkpoint = deployed.path / "index.npz", run.path / "checkpoint" / "2.checkpoint"

    def proposals() -> None:
        for each in list_proposals(settings):
            verify(settings, each)
            each.to_dict()

    def checkpoints() -> None:
        for each in run.checkpoints.kept():
            each.progress()

    readers: list[tuple[Path, Callable[[], object]]] = [
        (run.path / "status.json", lambda: about(run, settings)),
        (checkpoint, checkpoints),
        (deployed.status_file, deployed.about),
        (file_of_index, lambda: deployed.load_index(SlotTable.of)),
        (deployed.trails[0], lambda: asked_by_day(deployed)),
        *((approval / name, proposals) for name in (PROPOSAL, DECISION, CLOSED)),
        (settings.runs / "console.json", lambda: Users(settings.runs / "console.json").all),
        (settings.runs / PREDICTIONS_FILE, lambda: spent_today(settings, PREDICTIONS_FILE)),
    ]
    whole = {file: file.read_bytes() for file, _ in readers}

    def read(data: bytes) -> None:
        file, reader = readers[data[0] % len(readers) if data else 0]
        file.write_bytes(data[1:])
        try:
            reader()
        finally:
            file.write_bytes(whole[file])

    return Target(read, [bytes([number]) + whole[file] for number, (file, _) in enumerate(readers)])


# --- outcomes -------------------------------------------------------------------------------------------------------


def fuzz(names: Sequence[str], inputs: int, seed: int) -> tuple[dict[str, Counter[str]], list[dict[str, str]]]:
    """The number of inputs of each outcome by target, and every bad input."""
    counts: dict[str, Counter[str]] = {}
    bad: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        every = targets(Path(folder))
        total = sum(SHARES[name] for name in names)
        for name in names:
            rng, target, counts[name] = random.Random(f"{seed} {name}"), every[name], Counter()
            for _ in range(max(1, inputs * SHARES[name] // total)):
                data = changed(rng, target.seeds)
                found = outcome_of(lambda read=target.read, data=data: read(data), SLOW)
                counts[name][found.split(":")[0]] += 1
                if found.startswith("bad"):
                    bad.append({"target": name, "outcome": found, "input": data.hex()})
    return counts, bad


def guided(name: str, seconds: float) -> None:
    """Coverage-guided, until the time is over; atheris prints an input that ends in an uncoded error."""
    import atheris

    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        target = targets(Path(folder))[name]
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(target.seeds):
            (corpus / str(number)).write_bytes(seed)

        def one(data: bytes) -> None:
            with suppress(VeilBoostError):
                target.read(data)

        for module in GUIDED:
            for item in list(vars(sys.modules[module]).values()):
                for function in [item, *(vars(item).values() if isinstance(item, type) else ())]:
                    if isinstance(function, FunctionType) and function.__module__ == module:
                        atheris.instrument_func(function)
        atheris.Setup([sys.argv[0], f"-max_total_time={seconds:g}", "-max_len=4096", str(corpus)], one)
        atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=0, help="jobs of each protocol with a changed message")
    parser.add_argument("--targets", nargs="+", default=list(SHARES), choices=list(SHARES))
    parser.add_argument("--protocols", nargs="+", default=[*all_protocols(), *VARIANTS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--guided", choices=list(SHARES))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.guided:
        guided(given.guided, given.seconds)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if given.jobs:
        counts, bad = dict[str, Counter[str]](), list[dict[str, str]]()
        for protocol in given.protocols:
            counts[protocol], found = change_messages(protocol, given.jobs, given.seed)
            bad += found
            print(protocol, dict(counts[protocol].most_common()), file=sys.stderr, flush=True)
    else:
        counts, bad = fuzz(given.targets, given.inputs, given.seed)
    megabytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    told = {"counts": counts, "seconds": time.monotonic() - began, "megabytes": megabytes, "bad": bad}
    if given.out:
        given.out.write_text(json.dumps(told, indent=1))
    print(json.dumps(told | {"bad": bad[:20], "bad inputs": len(bad)}, indent=1))
    return 1 if bad or megabytes > MOST_MEGABYTES else 0


if __name__ == "__main__":
    sys.exit(main())
