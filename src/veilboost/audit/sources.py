"""Views and truth of a run: from a simulation that kept its messages, or from run folders with payloads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from veilboost.audit.view import Seen, Truth, View
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.keys import generate_key
from veilboost.crypto.paillier.prepared import PreparedOwner
from veilboost.data.table import PartyTable
from veilboost.errors import RowsDiffer, UnknownRun, UnreadableFile
from veilboost.party.horizontal import SERVER, HorizontalSimulation
from veilboost.party.horizontal_settings import load_horizontal_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_job, load_party
from veilboost.party.simulation import Simulation
from veilboost.protocols.paillier.messages import PaillierRound
from veilboost.protocols.paillier.options import options_of
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.protocols.vertical.messages import BeginTraining
from veilboost.types import BoolArray, PartyName
from veilboost.wire.codec import Catalogue, decode
from veilboost.wire.message import Message
from veilboost.wire.transcript import Transcript, read_frames

TRANSCRIPT = "transcript"


def kept_key(protocol: str, config: TrainingConfig) -> PreparedOwner | None:
    """A Paillier key for the active party of a simulation that is to be audited; None where none is needed.

    An active party knows its own key, but `paillier` and `elxgb` leave it nowhere.
    """
    if PaillierRound not in protocol_named(protocol).messages:
        return None
    options = options_of(config)
    return PreparedOwner(generate_key(options.key_bits, Csprng(), options.allow_insecure_key), [], Csprng())


def views_of_simulation(
    run: Simulation,
    tables: Mapping[PartyName, PartyTable],
    held_out: BoolArray | None = None,
) -> tuple[dict[PartyName, View], Truth]:
    """What each party of a vertical simulation saw; it was run with `record="payload"`."""
    skeleton = run.parts[run.active].skeleton
    if skeleton is None:
        raise UnreadableFile("a run without a skeleton has not ended")
    views = {
        name: View(
            name,
            "active" if name == run.active else "passive",
            skeleton.protocol,
            skeleton.config,
            table.rows,
            kept(run.transcripts[name]),
            run.parts[name],
            table,
            run.secrets[name],
            protocol_named(skeleton.protocol).sums,
        )
        for name, table in tables.items()
    }
    return views, Truth(tables, {name: view.role for name, view in views.items()}, skeleton.config, held_out)


def view_of_run(folder: Path) -> View:
    """What one party saw, from the folder of its run; its own table is not in there."""
    run = RunFolder(folder)
    party = run.status.get("party")
    if not isinstance(party, str):
        raise UnknownRun(f"{folder} is not the folder of a run")
    job = load_job(folder / "job.toml")
    spec = protocol_named(job.protocol.name)
    messages = seen_in(folder, spec.messages)
    opening = next((seen.message for seen in messages if isinstance(seen.message, BeginTraining)), None)
    if opening is None:
        raise UnreadableFile(f"the transcript in {folder} holds no training")
    return View(
        party,
        "active" if party == job.active else "passive",
        spec.name,
        TrainingConfig.from_dict(json.loads(opening.config)),
        opening.rows,
        messages,
        run.load_part(),
        sums=spec.sums,
    )


def views_of_runs(folders: Sequence[Path], parties: Sequence[Path]) -> tuple[dict[PartyName, View], Truth]:
    """The views in these run folders, and the tables that the parties' own files (party.toml) name.

    A party's file says where its table and its runs are; the run of the same name there says which rows took part.
    Every view whose party's file is given gets its own table: everybody knows their own.
    """
    views = {view.party: view for view in map(view_of_run, folders)}
    if not views:
        raise UnknownRun("there is no run to audit", "name the folder of a run")
    first = next(iter(views.values()))
    job = load_job(folders[0] / "job.toml")
    tables: dict[PartyName, PartyTable] = {}
    for file in parties:
        settings = load_party(file)
        positions = RunFolder.open(settings.runs, job.name).alignment
        if settings.data is None or positions is None:
            raise UnknownRun(f"{settings.name} has no table, or its run {job.name!r} no common rows")
        tables[settings.name] = settings.data.load().take(positions)
        if len(positions) != first.rows:
            raise RowsDiffer(f"the run of {settings.name} has other rows than the one that is audited")
    views = {name: replace(view, own=tables.get(name)) for name, view in views.items()}
    opening = next(seen.message for seen in first.messages if isinstance(seen.message, BeginTraining))
    held_out = None
    if len(opening.held_out):
        held_out = np.unpackbits(opening.held_out, count=first.rows).astype(np.bool_)
    roles = {name: "active" if name == job.active else "passive" for name in tables}
    return views, Truth(tables, roles, first.config, held_out)


def views_of_horizontal(
    run: HorizontalSimulation, tables: Mapping[PartyName, PartyTable], protocol: str, config: TrainingConfig
) -> tuple[dict[PartyName, View], Truth]:
    """What the server, each participant and each helper of a horizontal simulation saw."""
    completed = settle(protocol_named(protocol, "horizontal"), config)
    every = sum(table.rows for table in tables.values())
    views: dict[PartyName, View] = {}
    for name, transcript in run.transcripts.items():
        role = "server" if name == SERVER else "participant" if name in tables else name
        table = tables.get(name)
        part = run.outcome.part if name == SERVER else run.parts.get(name)
        rows = every if table is None else table.rows
        views[name] = View(name, role, protocol, completed, rows, kept(transcript), part, table)
    return views, Truth(tables, {name: view.role for name, view in views.items()}, completed)


def views_of_horizontal_runs(folders: Sequence[Path], parties: Sequence[Path]) -> tuple[dict[PartyName, View], Truth]:
    """The views in these run folders, and the tables that the participants' own files (party.toml) name.

    Participants train on all of their rows, so there is nothing to align. A helper keeps no run folder.
    """
    job = load_horizontal_job(folders[0] / "job.toml")
    spec = protocol_named(job.protocol, "horizontal")
    config = settle(spec, job.training)
    tables: dict[PartyName, PartyTable] = {}
    for file in parties:
        settings = load_party(file)
        if settings.data is None or settings.name not in job.participants:
            raise UnknownRun(f"{settings.name} is no participant of {job.name!r}, or has no table")
        tables[settings.name] = settings.data.load()
    views: dict[PartyName, View] = {}
    for folder in folders:
        run = RunFolder(folder)
        party = run.status.get("party")
        if not isinstance(party, str) or load_horizontal_job(folder / "job.toml").name != job.name:
            raise UnknownRun(f"{folder} is not the folder of a run of {job.name!r}")
        messages = seen_in(folder, spec.messages)
        if not messages:
            raise UnreadableFile(f"the transcript in {folder} holds no training")
        rows = tables[party].rows if party in tables else sum(table.rows for table in tables.values())
        view = View(party, job.parties[party].role, spec.name, config, rows, messages, run.load_part())
        views[party] = replace(view, own=tables.get(party))
    return views, Truth(tables, dict.fromkeys(tables, "participant"), config)


def seen_in(folder: Path, kinds: Sequence[type[Message]]) -> tuple[Seen, ...]:
    """The messages of these kinds in a run folder's transcript, which was recorded with payloads."""
    known, catalogue = {kind.type_name() for kind in kinds}, Catalogue(kinds)
    return tuple(
        Seen(entry.direction, entry.peer, decode(frame, catalogue))
        for entry, frame in read_frames(folder / TRANSCRIPT)
        if entry.message in known
    )


def kept(transcript: Transcript) -> tuple[Seen, ...]:
    """The messages that a simulation kept."""
    if transcript.entries and not transcript.messages:
        raise UnreadableFile(f"the messages of {transcript.owner} were not kept", 'simulate with record="payload"')
    return tuple(Seen(*each) for each in transcript.messages)
