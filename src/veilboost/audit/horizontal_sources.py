"""Views and truth of a horizontal run: from a simulation that kept its messages, or from run folders with payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from veilboost.audit.sources import kept, seen_in
from veilboost.audit.view import Truth, View
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import UnknownRun, UnreadableFile
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import SERVER, Simulation
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.types import PartyName


def views_of_horizontal(
    run: Simulation, tables: Mapping[PartyName, PartyTable], protocol: str, config: TrainingConfig
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
    job = load_job(folders[0] / "job.toml")
    spec = protocol_named(job.protocol, "horizontal")
    config = settle(spec, job.training)
    tables: dict[PartyName, PartyTable] = {}
    for file in parties:
        settings = load_party(file)
        if settings.data is None or settings.name not in job.owners:
            raise UnknownRun(f"{settings.name} is no participant of {job.name!r}, or has no table")
        tables[settings.name] = settings.data.load()
    views: dict[PartyName, View] = {}
    for folder in folders:
        run = RunFolder(folder)
        party = run.status.get("party")
        if not isinstance(party, str) or load_job(folder / "job.toml").name != job.name:
            raise UnknownRun(f"{folder} is not the folder of a run of {job.name!r}")
        messages = seen_in(folder, spec.messages)
        if not messages:
            raise UnreadableFile(f"the transcript in {folder} holds no training")
        rows = tables[party].rows if party in tables else sum(table.rows for table in tables.values())
        view = View(party, job.role_of(party), spec.name, config, rows, messages, run.load_part())
        views[party] = replace(view, own=tables.get(party))
    return views, Truth(tables, dict.fromkeys(tables, "participant"), config)
