"""Views and true data of a run: from a simulation that recorded its messages, or from run folders with payloads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from veilboost.align.api import alignment_named
from veilboost.audit.view import Seen, Truth, View
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.paillier.keys import PreparedOwner, generate_key
from veilboost.data.table import PartyTable, drawn_rows
from veilboost.engine.tables import with_frequent_categories
from veilboost.errors import RowsDiffer, UnknownRun, UnreadableFile, UnsupportedCombination
from veilboost.party.job import Job, load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import Simulation
from veilboost.protocols.paillier.messages import PaillierRound, options_of
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.validation import settle
from veilboost.protocols.vertical.messages import BeginTraining
from veilboost.types import BoolArray, PartyName
from veilboost.wire.message import Catalogue, Message, decode
from veilboost.wire.transcript import read_frames

TRANSCRIPT = "transcript"


def kept_key(protocol: str, config: TrainingConfig) -> PreparedOwner | None:
    """A Paillier key for the active party of a simulation to be audited; None if the protocol needs none.

    An active party knows its own key, but `paillier` and `elxgb` do not store it.
    """
    if PaillierRound not in protocol_named(protocol).messages:
        return None
    options = options_of(config)
    return PreparedOwner(generate_key(options.key_bits, Csprng(), options.allow_insecure_key), [], Csprng())


def views_of_simulation(
    run: Simulation,
    tables: Mapping[PartyName, PartyTable],
    held_out: BoolArray | None = None,
    fresh: Mapping[PartyName, PartyTable] | None = None,
) -> tuple[dict[PartyName, View], Truth]:
    """The view of each party of a simulation, including helpers. The simulation needs `record="payload"`.

    `fresh` are rows that were not used in training; for a horizontal job a single table, under any name.
    """
    skeleton = run.outcome.share.skeleton
    if skeleton is None:
        raise UnreadableFile("the run has no skeleton, so it has not finished")
    spec = protocol_named(skeleton.protocol)
    all_rows = sum(table.rows for table in tables.values())  # for parties without a table
    views: dict[PartyName, View] = {}
    for name, transcript in run.transcripts.items():
        if transcript.entries and not transcript.messages:
            raise UnreadableFile(f"the messages of {name} were not recorded", 'simulate with record="payload"')
        table = tables.get(name)
        views[name] = View(
            name,
            spec.driver if name == run.driver else spec.data_role if table is not None else name,
            spec.name,
            skeleton.config,
            all_rows if table is None else table.rows,
            tuple(Seen(*each) for each in transcript.messages),
            run.outcome.share if name == run.driver else run.shares.get(name),
            table,
            run.secrets.get(name),
            spec.sums,
        )
    shares = {share.party: share for share in run.model.shares}
    kept = (
        {} if fresh is None else fresh if spec.setting == "vertical" else dict(zip(shares, fresh.values(), strict=True))
    )
    roles = {name: view.role for name, view in views.items()}
    return views, Truth(tables, roles, skeleton.config, held_out, shares, kept)


def views_of_runs(folders: Sequence[Path], parties: Sequence[Path]) -> tuple[dict[PartyName, View], Truth]:
    """The views in these run folders, and the tables named in the parties' settings files (party.toml).

    A settings file names the party's table and its runs folder; if rows were aligned, the run of the same name in that
    folder holds which rows took part. A view gets its own table if the party's settings file is given. The run folder
    of a helper has no model share; its messages are those of the protocol or of the alignment that it helps. That of a
    participant which was lost has none either.
    """
    if not folders:
        raise UnknownRun("there is no run to audit", "name a run folder")
    job = load_job(folders[0] / "job.toml")
    if job.continues is not None:
        raise UnsupportedCombination(
            f"the run continues {job.continues!r}, and an audit replays a model from its first tree",
            "audit the earlier run, or train a model from the start",
        )
    tables = _tables(job, parties)
    config, held_out = settle(job.spec, job.training), None
    views: dict[PartyName, View] = {}
    for folder in folders:
        run = RunFolder(folder)
        party = run.status.get("party")
        if not isinstance(party, str) or load_job(folder / "job.toml").name != job.name:
            raise UnknownRun(f"{folder} is not a run folder of {job.name!r}")
        helps, own = party in job.helpers.values(), tables.get(party)
        aligns = alignment_named(job.alignment).messages if helps else ()
        messages = seen_in(folder, (*job.spec.messages, *aligns))
        rows = sum(table.rows for table in tables.values()) if own is None else own.rows
        opening = next((seen.message for seen in messages if isinstance(seen.message, BeginTraining)), None)
        if not messages or (opening is None and job.spec.setting == "vertical" and not helps):
            raise UnreadableFile(f"the transcript in {folder} holds no messages of the job that an audit could use")
        if opening is not None:
            config, rows = TrainingConfig.from_dict(json.loads(opening.config)), opening.rows
            if len(opening.held_out):
                held_out = np.unpackbits(opening.held_out, count=rows).astype(np.bool_)
            for name, table in tables.items():
                if table.rows != rows:
                    raise RowsDiffer(f"the run of {name} has other rows than the audited run")
        without = helps or (job.spec.setting == "horizontal" and not run.has_share)
        share = None if without else run.load_share()
        views[party] = View(
            party, job.role_of(party), job.protocol, config, rows, messages, share, own, sums=job.spec.sums
        )
    shares = {view.share.party: view.share for view in views.values() if view.share is not None}
    return views, Truth(tables, {name: job.role_of(name) for name in tables}, config, held_out, shares)


def _tables(job: Job, parties: Sequence[Path]) -> dict[PartyName, PartyTable]:
    """For each of these parties, the rows that took part in the job; in horizontal jobs without the held-out ones."""
    tables: dict[PartyName, PartyTable] = {}
    for file in parties:
        settings = load_party(file)
        if settings.data is None or settings.name not in job.owners:
            raise UnknownRun(f"{settings.name} has no table in {job.name!r}")
        table = settings.data.load()
        if job.spec.setting == "vertical":
            positions = RunFolder.open(settings.runs, job.name).alignment
            if positions is None:
                raise UnknownRun(f"the run {job.name!r} of {settings.name} has no aligned rows")
            table = table.take(positions)
        elif job.validation:
            table = table.take(~drawn_rows(table.ids, job.validation, job.training.random_state))
        tables[settings.name] = with_frequent_categories(table, settings.data.max_categories)
    return tables


def seen_in(folder: Path, kinds: Sequence[type[Message]]) -> tuple[Seen, ...]:
    """The messages of these classes in a run folder's transcript, which must be recorded with payloads."""
    known, catalogue = {kind.type_name() for kind in kinds}, Catalogue(kinds)
    return tuple(
        Seen(entry.direction, entry.peer, decode(frame, catalogue))
        for entry, frame in read_frames(folder / TRANSCRIPT)
        if entry.message in known
    )
