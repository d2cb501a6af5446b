"""The demo: three parties as processes on this machine, with certificates, tables, settings and a job."""

from __future__ import annotations

import json
import selectors
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from veilboost.align.clear import align_by_id
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.data.columns import ArrowTable, pyarrow
from veilboost.data.datasets import ID, LABEL, make_demo_data
from veilboost.data.load import load_table
from veilboost.data.table import PartyTable
from veilboost.durable import make_folder
from veilboost.errors import PeerUnreachable
from veilboost.experiment.problem import Problem, labels
from veilboost.experiment.run import TEST_ROWS, central_xgboost, evaluated, margins_alone
from veilboost.experiment.summary import Member, RunSummary, learning_curve
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.federation import Federation
from veilboost.party.identity import write_private
from veilboost.party.job import Job, JobParty
from veilboost.party.policy import ANY, Policy
from veilboost.party.predicting import LivePredictor
from veilboost.party.runs import RunFolder, read_exchanges
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, PartySettings, load_party
from veilboost.protocols.registry import protocol_named
from veilboost.report.runs import facts_of_runs
from veilboost.types import AnyArray, BoolArray, Float64Array, PartyName

START_SECONDS = 30.0
STOP_SECONDS = 5.0
METRIC = "auc"
ACTIVE, JOB = "bank", "credit"
CERTS, NEW = "certs", "new-customers.parquet"
LISTEN = "127.0.0.1:0"  # any free port
TEST_SHARE = 0.25
TRAINING = TrainingConfig(objective="binary", n_estimators=60, max_depth=5, learning_rate=0.1)


def party_file(folder: Path, party: PartyName) -> Path:
    return folder / f"{party}.toml"


def write_parties(folder: Path, protocol: str) -> tuple[PartyName, ...]:
    """Write everything except the job; returns the parties, the active one first."""
    demo_data = make_demo_data()
    make_folder(folder)
    init_authority(folder / CERTS, "demo")
    # Customers that join the bank later: the other parties have them, but without labels they are not used in training.
    later = np.isin(_ids(demo_data[ACTIVE]), _test_ids(demo_data))
    _write_rows(demo_data[ACTIVE], later, folder / NEW)
    for party, table in demo_data.items():
        _write_rows(table, ~later if party == ACTIVE else None, folder / f"{party}.parquet")
        issue(folder / CERTS, party, ["localhost", "127.0.0.1"])
        settings = _settings(party, [other for other in demo_data if other != party], protocol)
        title = f"The settings of party {party}. Relative paths start where this file is."
        write_private(party_file(folder, party), commented_toml(settings, title).encode())
    return tuple(demo_data)


def write_job(folder: Path, protocol: str, addresses: Mapping[PartyName, str]) -> Path:
    """Write the job with the addresses of the other parties."""
    others = {party: JobParty(address) for party, address in addresses.items()}
    job = Job(
        name=JOB,
        parties={ACTIVE: JobParty(role="active"), **others},
        alignment="ecdh",
        protocol=protocol,
        training=TRAINING,
    )
    file = folder / "job.toml"
    write_private(file, commented_toml(job, f"The training job {JOB}.").encode())
    return file


def _settings(party: PartyName, others: list[PartyName], protocol: str) -> PartySettings:
    certs = Path(CERTS)
    return PartySettings(
        name=party,
        certificates=CertificateSettings(
            certs / f"{party}.crt", certs / f"{party}.key", certs / "ca.crt", certs / "revoked.crl"
        ),
        data=DataSettings(path=Path(f"{party}.parquet"), id=ID, label=LABEL if party == ACTIVE else None),
        listen=LISTEN,
        runs=Path(f"runs-{party}"),
        n_jobs=1,  # three parties share this machine
        policy=Policy(protocols=(protocol,), allow_unprotected=(protocol,), peers=dict.fromkeys(others, (ANY,))),
    )


def _write_rows(table: ArrowTable, rows: BoolArray | None, file: Path) -> None:
    kept = table if rows is None else cast(Any, table).filter(pyarrow().array(rows))
    pyarrow("parquet").write_table(kept, file)


def _ids(table: ArrowTable) -> AnyArray:
    return np.asarray(table.column(ID).to_pylist())


def _test_ids(demo_data: Mapping[PartyName, ArrowTable]) -> AnyArray:
    """A share of the records that all parties have."""
    shared = reduce(np.intersect1d, map(_ids, demo_data.values()))
    return np.random.default_rng(0).choice(shared, round(TEST_SHARE * len(shared)), replace=False)


# --- processes --------------------------------------------------------------------------------------------


@contextmanager
def ended_by_signals() -> Generator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that everything is cleaned up."""
    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(kind, _interrupt) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def serving(*configs: Path) -> Generator[list[str]]:
    """Run `veilboost party serve` for each settings file; yields the addresses on which they listen."""
    with ExitStack() as running:
        started = [(config, running.enter_context(_process(config))) for config in configs]
        yield [_address(config, process) for config, process in started]


@contextmanager
def _process(config: Path) -> Generator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "veilboost", "party", "serve", "--config", str(config), "--json"]
    with ExitStack() as files:
        log = files.enter_context(log_of(config).open("wb"))
        # Its own session: Ctrl-C reaches only this process, which then stops the party.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def log_of(config: Path) -> Path:
    return config.with_suffix(".log")


def _address(config: Path, process: subprocess.Popen[bytes]) -> str:
    """The address that the process prints when it listens; waits at most `START_SECONDS`."""
    line = b"" if process.stdout is None else _first_line(process.stdout)
    try:
        return str(json.loads(line)["address"])
    except (ValueError, KeyError, TypeError):
        lines = log_of(config).read_text(errors="replace").strip().splitlines()
        why = lines[-1] if lines else "its log is empty"
        raise PeerUnreachable(f"the party of {config} did not start ({why})", f"read {log_of(config)}") from None


def _first_line(stream: IO[bytes]) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        # The line is written at once, so it is never partial.
        return stream.readline() if selector.select(START_SECONDS) else b""


# --- results ----------------------------------------------------------------------------------------------


def predict_new(folder: Path, federation: Federation) -> Float64Array:
    """The joint predictions for the new customers, in the order of their file."""
    return LivePredictor(federation.party, federation.run).predict(_table(folder / NEW, ACTIVE)).scores


def runs_of(folder: Path, parties: Sequence[PartyName]) -> dict[PartyName, Path]:
    return {name: load_party(party_file(folder, name)).runs / JOB for name in parties}


def measure(folder: Path, parties: Sequence[PartyName], scores: Float64Array) -> RunSummary:
    """Measure the run with the files of all parties, which only this machine has because it ran every party."""
    runs = runs_of(folder, parties)
    shares = {name: RunFolder(run).load_share() for name, run in runs.items()}
    model = join(shares)
    own = {name: _table(folder / f"{name}.parquet", name) for name in parties}
    new = _table(folder / NEW, ACTIVE)
    problem = Problem(ACTIVE, align_by_id(own), align_by_id({**own, ACTIVE: new}), None)
    loss, metric, truth = model.skeleton.loss, metric_named(METRIC), labels(problem.test, ACTIVE)

    def score(prediction: Float64Array) -> float:
        return metric.function(truth, prediction, None)

    # The bank alone needs no alignment: it trains on all of its customers.
    alone = margins_alone(Problem(ACTIVE, {ACTIVE: own[ACTIVE]}, problem.test, None), TRAINING, threads=1)
    central = central_xgboost(problem, shares, TRAINING, loss, metric, 1)
    columns = {name: table.columns for name, table in problem.test.items()}
    return RunSummary(
        spec=protocol_named(model.skeleton.protocol),
        model=model,
        shares=shares,
        driver=ACTIVE,
        members={
            name: Member("active" if name == ACTIVE else "passive", len(table.columns), table.rows)
            for name, table in problem.train.items()
        },
        rows_test=problem.test[ACTIVE].rows,
        metric=metric,
        together=metric.function(labels({ACTIVE: new}, ACTIVE), scores, None),
        alone=None if alone is None else score(loss.predict(alone)),
        central=None if central is None else score(central.prediction),
        exchanges=[item for name, run in runs.items() for item in read_exchanges(run)[1] if item.receiver == name],
        curves={TEST_ROWS: learning_curve(model, columns, truth, None, metric)},
        evaluation=evaluated(replace(problem, test={ACTIVE: new}), model, scores),
    )


def save_result(folder: Path, done: RunSummary) -> None:
    """Save a result for `veilboost report`: the run folders of all parties, and the comparison."""
    facts = facts_of_runs(list(runs_of(folder, list(done.members)).values()))
    replace(
        facts,
        title=f"Demo with {done.spec.name}: three parties over mutual TLS",
        source="veilboost demo",
        settings=dict(facts.settings) | {"test rows": done.rows_test},
        metric=done.metric.name,
        higher_is_better=done.metric.higher_is_better,
        quality=done.quality,
        curves=done.curves,
        evaluation=None if done.evaluation is None else done.evaluation.to_dict(),
        note="This machine ran every party, so the report shows the data of all of them.",
    ).save(folder)


def _table(file: Path, party: PartyName) -> PartyTable:
    return load_table(file, id=ID, label=LABEL if party == ACTIVE else None)
