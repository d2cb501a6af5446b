"""A federation in one process: trained, tested, attacked, and measured against its baselines."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from veilboost.audit.result import Finding
from veilboost.boost.booster import RoundResult, Watcher
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.data.schema import infer_objective
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import EmptyTable, ImpossibleParameter, UnsupportedCombination
from veilboost.experiment.baseline import central_xgboost
from veilboost.experiment.problem import Problem, labels, with_declared
from veilboost.experiment.summary import Member, RunSummary, learned_by, learning_curve, sent_by
from veilboost.model.joined import JoinedModel, join
from veilboost.model.part import Part
from veilboost.party.horizontal import SERVER, simulate_horizontal
from veilboost.party.simulation import simulate_training
from veilboost.privacy.account import MemoryAccount
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.spending import spending
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec, Setting
from veilboost.protocols.validation import resolve, settle
from veilboost.report.steps import course, kind_of
from veilboost.types import Float64Array, Int64Array, PartyName, Role
from veilboost.wire.network import turns
from veilboost.wire.transcript import Transcript

ALONE = "plain"  # nobody else takes part, so nothing needs protection
TEST_ROWS, VALIDATION_ROWS = "test rows", "validation rows"


@dataclass(frozen=True)
class RunOptions:
    """How to run. Only rows are dealt out to `participants`; `engine` and `classes` are for divided columns."""

    threads: int = 1
    participants: int = 10
    engine: Engine = LOCAL
    classes: Sequence[str] | None = None
    baselines: bool = True
    audit: bool = False
    curves: bool = False
    watcher: Watcher | None = None


@dataclass(frozen=True)
class Trained:
    """What training leaves behind, whether columns or rows were divided.

    Attributes
    ----------
    tables
        What the parties with data trained on.
    parts
        The parts that make up the model, by the table of the problem whose columns they know.
    alone
        What one of the parties could train on by itself; None if there is no other.
    views
        What each party saw, and the truth, for attacks.
    busiest
        Round trips and bytes on the line of the party that has most of them, if each has a line of its own.
    """

    driver: PartyName
    tables: Mapping[PartyName, PartyTable]
    config: TrainingConfig
    parts: Mapping[PartyName, Part]
    history: Sequence[RoundResult]
    transcripts: Mapping[PartyName, Transcript]
    accounts: Mapping[PartyName, MemoryAccount]
    rounds: int
    alone: Problem | None
    views: Callable[[], tuple[Any, Any]]
    busiest: tuple[int, int]
    workers: int = 1
    dropped: Mapping[PartyName, str] = field(default_factory=dict[PartyName, str])
    reports: Mapping[PartyName, Mapping[str, Any]] = field(default_factory=dict[PartyName, Any])

    @property
    def model(self) -> JoinedModel:
        return join({part.party: part for part in self.parts.values()})


def run(problem: Problem, spec: ProtocolSpec, config: TrainingConfig, options: RunOptions) -> RunSummary:
    """Train and test; then, if asked, with all data in one hand and with one party's alone, and attack the run."""
    if options.classes is not None:
        problem = with_declared(problem, options.classes)
    began = time.perf_counter()
    done = _TRAIN[spec.setting](problem, spec, config, options)
    fit_seconds = time.perf_counter() - began
    peak_rss_mb = _peak_rss_mb()  # before baselines bring memory of their own
    model = done.model
    loss, test = model.skeleton.loss, problem.test[problem.active]
    metric = metric_named(loss.default_metric if config.eval_metric == "auto" else config.eval_metric)

    def score(prediction: Float64Array) -> float:
        return metric.function(labels(problem.test, problem.active), prediction, test.weight)

    together = score(loss.predict(model.margins([c for table in problem.test.values() for c in table.columns])))
    xgboost, alone = None, None
    if options.baselines:
        xgboost = central_xgboost(problem, done.parts, done.config, loss, metric, options.threads)
        margin = None if done.alone is None else margins_alone(done.alone, done.config, options.threads)
        if done.alone is None:
            alone = together
        elif margin is not None and len(margin) == model.trees_per_round:  # it knows all classes
            alone = score(loss.predict(margin))
    curves: dict[str, Sequence[tuple[float, float]]] = {}
    if options.curves:
        columns = {part.party: problem.test[name].columns for name, part in done.parts.items()}
        truth = labels(problem.test, problem.active)
        curves[TEST_ROWS] = learning_curve(model, columns, truth, test.weight, metric)
        checked = [(each.number + 1.0, each.validation) for each in done.history if each.validation is not None]
        curves |= {VALIDATION_ROWS: checked} if checked else {}
    roles = {
        name: spec.driver if name == done.driver else spec.data_role if name in done.tables else name
        for name in done.transcripts
    }
    return RunSummary(
        spec=spec,
        config=model.config,  # with what the protocol chose for itself
        model=model,
        parts={part.party: part for part in done.parts.values()},
        driver=done.driver,
        members={
            name: Member(role, len(done.tables[name].columns), done.tables[name].rows)
            if name in done.tables
            else Member(role)
            for name, role in roles.items()
        },
        rows_validation=0 if problem.held_out is None else int(problem.held_out.sum()),
        rows_test=test.rows,
        metric=metric,
        together=together,
        alone=alone,
        central=None if xgboost is None else score(xgboost.prediction),
        xgboost=xgboost,
        baselines=options.baselines,
        history=done.history,
        fit_seconds=fit_seconds,
        peak_rss_mb=peak_rss_mb,
        threads=options.threads,
        engine=options.engine.name,
        workers=done.workers,
        bytes_sent={name: transcript.bytes_sent() for name, transcript in done.transcripts.items()},
        messages=sum(transcript.messages_sent() for transcript in done.transcripts.values()),
        rounds=done.rounds,
        busiest=done.busiest,
        exchanges=sent_by(done.transcripts, spec.messages),
        course=course(done.driver, done.transcripts[done.driver].entries, kind_of(spec.messages)),
        learned=learned_by(done.transcripts, spec.messages),
        privacy={
            name: spending(account.events, spec.delta(model.config, Role(roles[name])) or DEFAULT_DELTA)
            for name, account in done.accounts.items()
        },
        curves=curves,
        findings=_findings(done) if options.audit else None,
        dropped=done.dropped,
        reports=done.reports,
    )


def margins_alone(problem: Problem, config: TrainingConfig, threads: int) -> Float64Array | None:
    """What one party's model says of its test rows; None if it has no columns."""
    if not problem.train[problem.active].columns:
        return None
    stops = config.early_stopping_rounds if problem.held_out is not None else None
    config = replace(config, options={}, early_stopping_rounds=stops)  # the options are those of another protocol
    done = _by_columns(problem, protocol_named(ALONE), config, RunOptions(threads))
    return done.model.margins(problem.test[problem.active].columns)


def _by_columns(problem: Problem, spec: ProtocolSpec, config: TrainingConfig, options: RunOptions) -> Trained:
    from veilboost.audit.sources import kept_key, views_of_simulation

    if config.early_stopping_rounds is not None and problem.held_out is None:
        raise UnsupportedCombination(
            "--early-stopping-rounds needs validation rows", "keep some apart with --validation-size 0.2"
        )
    active, engine, classes = problem.active, options.engine, options.classes
    resolved = resolve(spec, config, problem.train[active], engine=engine.name, classes=classes)
    config = spec.settled(resolved.config)
    done = simulate_training(
        problem.train,
        active,
        spec.name,
        config,
        held_out=problem.held_out,
        threads=options.threads,
        watcher=options.watcher,
        classes=classes,
        record="payload" if options.audit else "types",
        prepared=kept_key(spec.name, config) if options.audit else None,
        engine=engine,
    )
    own = replace(problem, train={active: problem.train[active]}, test={active: problem.test[active]})
    return Trained(
        driver=active,
        tables=problem.train,
        config=config,
        parts=done.parts,
        history=done.history,
        transcripts=done.transcripts,
        accounts=done.accounts,
        rounds=done.rounds,
        alone=None if len(problem.train) == 1 else own,
        views=lambda: views_of_simulation(done, problem.train, problem.held_out),
        busiest=(done.rounds, done.bytes_sent),
        workers=done.workers,
    )


def _by_rows(problem: Problem, spec: ProtocolSpec, config: TrainingConfig, options: RunOptions) -> Trained:
    from veilboost.audit.horizontal_sources import views_of_horizontal

    table, watched = problem.train[problem.active], problem.held_out
    if config.objective == "auto":
        config = replace(config, objective=infer_objective(labels(problem.train, problem.active), table.label_classes))
    config = settle(spec, config)
    shares = _dealt(table.rows, options.participants, config.seed)
    tables = {name: table.take(share) for name, share in shares.items()}
    done = simulate_horizontal(
        tables,
        spec.name,
        config,
        threads=options.threads,
        watcher=options.watcher,
        held_out=None if watched is None else {name: watched[share] for name, share in shares.items()},
        record="payload" if options.audit else "types",
    )
    entries = [done.transcripts[name].entries for name in tables]
    first = replace(problem, train={problem.active: next(iter(tables.values()))}, held_out=None)
    return Trained(
        driver=SERVER,
        tables=tables,
        config=config,
        parts={problem.active: done.outcome.part},
        history=done.outcome.history,
        transcripts=done.transcripts,
        accounts=done.accounts,
        rounds=done.rounds,
        alone=first,
        views=lambda: views_of_horizontal(done, tables, spec.name, config),
        busiest=(max(map(turns, entries)) // 2, max(sum(each.size for each in own) for own in entries)),
        dropped=done.outcome.dropped,
        reports=done.outcome.reports,
    )


_TRAIN: Mapping[Setting, Callable[[Problem, ProtocolSpec, TrainingConfig, RunOptions], Trained]] = {
    "vertical": _by_columns,
    "horizontal": _by_rows,
}


def _dealt(rows: int, participants: int, seed: int) -> dict[PartyName, Int64Array]:
    """The rows in equal shares, drawn by the seed."""
    if participants < 1:
        raise ImpossibleParameter(f"--participants {participants} is less than 1")
    if participants > rows:
        raise EmptyTable(f"{rows} rows are too few for {participants} participants", "use fewer participants")
    shares = np.array_split(np.random.default_rng((seed, 2)).permutation(rows), participants)
    return {f"participant{at}": np.sort(share) for at, share in enumerate(shares)}


def _findings(done: Trained) -> list[Finding]:
    from veilboost.audit.runner import audit

    return audit(*done.views(), seed=done.config.seed)


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
