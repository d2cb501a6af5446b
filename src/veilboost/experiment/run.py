"""Train, test and audit a federation in one process, and compare it with baselines such as XGBoost."""

from __future__ import annotations

import importlib
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from veilboost.boost.booster import Watcher
from veilboost.boost.metrics import Metric, metric_for, metric_named
from veilboost.boost.objective import Objective
from veilboost.config import LOSS_PARAMETERS, ROUNDS, TrainingConfig
from veilboost.data.schema import infer_objective
from veilboost.data.table import PartyTable
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import EmptyTable, InvalidParameter, UnsupportedCombination
from veilboost.evaluation.evaluate import Evaluation, Scored, can_compare, evaluate, kind_of
from veilboost.experiment.problem import Problem, Tables, labels, with_declared
from veilboost.experiment.summary import Baseline, Member, RunSummary, learning_curve
from veilboost.model.joined import JoinedModel
from veilboost.model.share import ModelShare
from veilboost.party.simulation import SERVER, Simulation, simulate_training
from veilboost.privacy.accountant import DEFAULT_DELTA, spending
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import resolve, settle
from veilboost.types import AnyArray, BoolArray, Float64Array, Int64Array, PartyName, Role
from veilboost.wire.transcript import Exchange, by_type, turns

if TYPE_CHECKING:
    from veilboost.audit.attack import Finding

ALONE = "plain"  # a party alone needs no protection
TEST_ROWS, VALIDATION_ROWS = "test rows", "validation rows"
EXPLAINED_ROWS = 200  # of the test rows, for the report
_EVERY_CATEGORY = 1 << 20  # more than any column has


@dataclass(frozen=True)
class RunOptions:
    """Run options. `participants` is for horizontal protocols; `engine` and `classes` are for vertical ones."""

    threads: int = 1
    participants: int = 10
    engine: Engine = LOCAL
    classes: Sequence[str] | None = None
    baselines: bool = True
    audit: bool = False
    curves: bool = False
    watcher: Watcher | None = None
    earlier: Mapping[PartyName, ModelShare] | None = None  # the model to continue


@dataclass(frozen=True)
class Partition:
    """The partition of a problem among parties, and the configuration as completed by the protocol.

    `held_out` are the validation rows in the form of `simulate_training`; `alone` is the problem of one party without
    the others, None if there are no others.
    """

    driver: PartyName
    tables: Mapping[PartyName, PartyTable]
    config: TrainingConfig
    held_out: BoolArray | Mapping[PartyName, BoolArray] | None
    alone: Problem | None


def run(problem: Problem, spec: ProtocolSpec, config: TrainingConfig, options: RunOptions) -> RunSummary:
    """Train and test; optionally also with pooled data and with one party alone, and audit the run."""
    if options.classes is not None:
        problem = with_declared(problem, options.classes)
    began = time.perf_counter()
    divide = _by_columns if spec.setting == "vertical" else _by_rows
    partition = divide(problem, spec, config, options)
    done = _simulate(partition, spec, options)
    fit_seconds = time.perf_counter() - began
    peak_rss_mb = _peak_rss_mb()  # before baselines use memory
    model, tables, alone_at = done.model, partition.tables, partition.alone
    shares = done.shares if done.driver in done.shares else {problem.active: done.outcome.share}
    loss, test = model.skeleton.loss, problem.test[problem.active]
    metric = metric_for(loss, config)

    def score(prediction: Float64Array) -> float:
        return metric.function(labels(problem.test, problem.active), prediction, test.weight)

    prediction = predicted(model, problem.test)
    together = score(prediction)
    checked = [(each.number + 1.0, each.validation) for each in done.history if each.validation is not None]
    xgboost, alone = None, None
    if options.baselines:
        stops_by = metric_named(done.metric, config) if checked else metric
        usual = partition.config  # without the number of rounds that a protocol chooses for its budget
        usual = usual if usual.n_estimators > 0 else replace(usual, n_estimators=ROUNDS)
        xgboost = central_xgboost(problem, shares, usual, loss, stops_by, options.threads)
        margin = None if alone_at is None else margins_alone(alone_at, usual, options.threads)
        if alone_at is None:
            alone = together
        elif margin is not None and len(margin) == model.skeleton.trees_per_round:  # it has all classes
            alone = score(loss.predict(margin))
    curves: dict[str, Sequence[tuple[float, float]]] = {}
    evaluation = None
    explained = None
    if options.curves:
        columns = {share.party: problem.test[name].columns for name, share in shares.items()}
        truth = labels(problem.test, problem.active)
        curves[TEST_ROWS] = learning_curve(model, columns, truth, test.weight, metric)
        curves |= {VALIDATION_ROWS: checked} if checked else {}
        evaluation = evaluated(problem, model, prediction)
        some = np.arange(min(test.rows, EXPLAINED_ROWS))
        explained = model.explain({name: [each.take(some) for each in own] for name, own in columns.items()})
    roles = {
        name: spec.driver if name == done.driver else spec.data_role if name in tables else name
        for name in done.transcripts
    }
    return RunSummary(
        spec=spec,
        model=model,
        shares={share.party: share for share in shares.values()},
        driver=done.driver,
        members={
            name: Member(role, len(tables[name].columns), tables[name].rows) if name in tables else Member(role)
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
        engine=done.engine,
        workers=done.workers,
        rounds=done.rounds,
        busiest=_busiest(done, partition),
        exchanges=_received(done, spec),
        entries=done.transcripts[done.driver].entries,
        privacy={
            name: spending(account.events, spec.delta(model.skeleton.config, Role(roles[name])) or DEFAULT_DELTA)
            for name, account in done.accounts.items()
        },
        curves=curves,
        evaluation=evaluation,
        curve_metrics={VALIDATION_ROWS: done.metric} if checked else {},
        explained=explained,
        findings=_findings(done, partition, problem, spec.setting == "vertical") if options.audit else None,
        dropped=done.outcome.dropped,
        reports=done.outcome.reports,
    )


def predicted(model: JoinedModel, tables: Tables) -> Float64Array:
    return model.skeleton.loss.predict(model.margins([column for table in tables.values() for column in table.columns]))


def evaluated(problem: Problem, model: JoinedModel, prediction: Float64Array) -> Evaluation | None:
    """The evaluation of the predictions for the test rows, compared with those for the training rows.

    None for binary labels between 0 and 1.
    """
    truth, skeleton, kind = labels(problem.test, problem.active), model.skeleton, kind_of(model.skeleton.objective)
    if kind == "binary" and not np.isin(truth, (0.0, 1.0)).all():
        return None
    on_training = predicted(model, problem.train)
    scored = Scored(kind, truth, prediction, problem.test[problem.active].weight, skeleton.classes)
    return evaluate(scored, reference=on_training if can_compare(on_training) else None)


def margins_alone(problem: Problem, config: TrainingConfig, threads: int) -> Float64Array | None:
    """Margins of the test rows under one party's own model; None if the party has no columns."""
    if not problem.train[problem.active].columns:
        return None
    stops = config.early_stopping_rounds if problem.held_out is not None else None
    config = replace(config, options={}, early_stopping_rounds=stops)  # options of another protocol
    spec, options = protocol_named(ALONE), RunOptions(threads)
    done = _simulate(_by_columns(problem, spec, config, options), spec, options)
    return done.model.margins(problem.test[problem.active].columns)


def _simulate(partition: Partition, spec: ProtocolSpec, options: RunOptions) -> Simulation:
    key = None
    if options.audit:
        from veilboost.audit.sources import kept_key

        key = kept_key(spec.name, partition.config)
    return simulate_training(
        partition.tables,
        partition.driver,
        spec.name,
        partition.config,
        held_out=partition.held_out,
        threads=options.threads,
        watcher=options.watcher,
        classes=options.classes,
        record="payload" if options.audit else "types",
        prepared=key,
        engine=options.engine,
        earlier=options.earlier,
    )


def _by_columns(problem: Problem, spec: ProtocolSpec, config: TrainingConfig, options: RunOptions) -> Partition:
    if config.early_stopping_rounds is not None and problem.held_out is None:
        raise UnsupportedCombination("--early-stopping-rounds needs validation rows", "add --validation-size 0.2")
    active = problem.active
    own = replace(problem, train={active: problem.train[active]}, test={active: problem.test[active]})
    resolved = resolve(spec, config, problem.train[active], engine=options.engine.name, classes=options.classes)
    alone = None if len(problem.train) == 1 else own
    return Partition(active, problem.train, spec.settled(resolved.config), problem.held_out, alone)


def _by_rows(problem: Problem, spec: ProtocolSpec, config: TrainingConfig, options: RunOptions) -> Partition:
    table, validation = problem.train[problem.active], problem.held_out
    if config.objective == "auto":
        config = replace(config, objective=infer_objective(labels(problem.train, problem.active), table.label_classes))
    config = settle(spec, config)
    shares = _partition_rows(table.rows, options.participants, config.random_state)
    tables = {name: table.take(share) for name, share in shares.items()}
    held_out = None if validation is None else {name: validation[share] for name, share in shares.items()}
    first = replace(problem, train={problem.active: next(iter(tables.values()))}, held_out=None)
    return Partition(SERVER, tables, config, held_out, first)


def _partition_rows(rows: int, participants: int, seed: int) -> dict[PartyName, Int64Array]:
    """The rows of each participant: equal shares, drawn at random with this seed."""
    if participants < 1:
        raise InvalidParameter(f"--participants {participants} is less than 1", "set --participants to 1 or more")
    if participants > rows:
        raise EmptyTable(f"{rows} rows are too few for {participants} participants", "use fewer participants")
    shares = np.array_split(np.random.default_rng((seed, 2)).permutation(rows), participants)
    return {f"participant{at}": np.sort(share) for at, share in enumerate(shares)}


def _busiest(done: Simulation, partition: Partition) -> tuple[int, int]:
    """Round trips and bytes of the driver, if it has a table, otherwise of the busiest participant."""
    if partition.driver in partition.tables:
        return done.rounds, done.bytes_sent
    entries = [done.transcripts[name].entries for name in partition.tables]
    return max(map(turns, entries)) // 2, max(sum(each.size for each in own) for own in entries)


def _received(done: Simulation, spec: ProtocolSpec) -> list[Exchange]:
    reveals = {each.type_name(): tuple((item.what, item.to) for item in each.reveals) for each in spec.messages}
    return [
        Exchange(peer, name, kind, count, size, reveals[kind])
        for name, transcript in done.transcripts.items()
        for (direction, peer, kind), (count, size) in by_type(transcript.entries).items()
        if direction == "received"
    ]


def _findings(done: Simulation, partition: Partition, problem: Problem, vertical: bool) -> list[Finding]:
    from veilboost.audit.attacks import audit
    from veilboost.audit.sources import views_of_simulation

    held_out = problem.held_out if vertical else None
    # Validation rows of a participant are not separated from its training rows.
    fresh = problem.test if vertical or problem.held_out is None else None
    return audit(*views_of_simulation(done, partition.tables, held_out, fresh), seed=partition.config.random_state)


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


# --- pooled data ---------------------------------------------------------------------------------------------------


def central_xgboost(
    problem: Problem,
    shares: Mapping[PartyName, ModelShare],
    config: TrainingConfig,
    objective: Objective,
    metric: Metric,
    threads: int,
) -> Baseline | None:
    """XGBoost's `hist` on the pooled columns; None if it is not installed, or has no such sampling on a CPU.

    `shares` define the category codes, so that both train on the same numbers.
    """
    if config.sampling == "goss":
        return None
    try:
        xgboost: Any = importlib.import_module("xgboost")
    except ModuleNotFoundError:
        return None
    began = time.perf_counter()
    fit = None if problem.held_out is None else ~problem.held_out
    types = [
        "q" if info.categories is None or config.categories == "ordinal" else "c"
        for share in shares.values()
        for info in share.columns
    ]
    about = {"feature_types": types, "enable_categorical": True, "nthread": threads}
    label, weight = _labels(problem, fit)
    data = xgboost.QuantileDMatrix(
        _matrix(problem.train, shares, fit), label, weight=weight, max_bin=config.max_bin, **about
    )
    validation = None
    if problem.held_out is not None:
        label, weight = _labels(problem, problem.held_out)
        validation = xgboost.DMatrix(_matrix(problem.train, shares, problem.held_out), label, weight=weight, **about)
    booster = xgboost.Booster(
        xgboost_parameters(config, objective, threads), [data] if validation is None else [data, validation]
    )
    seconds, rounds, best_round, best_quality = 0.0, 0, 0, -np.inf
    for number in range(config.n_estimators):
        start = time.perf_counter()
        booster.update(data, number)
        seconds += time.perf_counter() - start
        rounds += 1
        if validation is None or config.early_stopping_rounds is None:
            continue
        value = metric.function(label, _prediction(booster, validation), weight)
        quality = value if metric.higher_is_better else -value
        if quality > best_quality:
            best_round, best_quality = number, quality
        elif number - best_round >= config.early_stopping_rounds:
            break
    if validation is not None and config.early_stopping_rounds is not None:
        booster = booster[: best_round + 1]
    fit_seconds = time.perf_counter() - began
    test = xgboost.DMatrix(_matrix(problem.test, shares, None), **about)
    return Baseline(_prediction(booster, test), fit_seconds, seconds / rounds)


def xgboost_parameters(config: TrainingConfig, objective: Objective, threads: int) -> dict[str, Any]:
    """The parameters under XGBoost's names, which are mostly the same.

    First-order boosting, equal-width bins and local proposals have no counterpart: XGBoost uses its defaults there.
    """
    shared = (
        "max_depth", "learning_rate", "max_bin", "reg_lambda", "reg_alpha", "gamma", "min_child_weight",
        "subsample", "colsample_bytree", "colsample_bylevel", "scale_pos_weight", "max_cat_threshold",
    )  # fmt: skip
    given = {name: getattr(config, name) for name in shared} | {"seed": config.random_state}
    if config.base_score is not None:
        given["base_score"] = config.base_score
    if objective.trees_per_round > 1:
        given["num_class"] = objective.trees_per_round
    if objective.name != "binary":
        del given["scale_pos_weight"]
    parameter = LOSS_PARAMETERS.get(objective.name)
    if parameter is not None:
        given[parameter] = getattr(config, parameter)
    return given | {
        "objective": objective.xgboost_name,
        "max_delta_step": objective.max_delta_step,
        "tree_method": "hist",
        "max_cat_to_onehot": _EVERY_CATEGORY if config.categories == "onehot" else config.max_cat_to_onehot,
        "nthread": threads,
        "verbosity": 0,
    }


def _labels(problem: Problem, rows: BoolArray | None) -> tuple[AnyArray, AnyArray | None]:
    label, weight = labels(problem.train, problem.active), problem.train[problem.active].weight
    if rows is None:
        return label, weight
    return label[rows], None if weight is None else weight[rows]


def _matrix(tables: Tables, shares: Mapping[PartyName, ModelShare], rows: BoolArray | None) -> AnyArray:
    columns = [values for name, share in shares.items() for values in share.encode(tables[name].columns)]
    return np.column_stack(columns if rows is None else [values[rows] for values in columns])


def _prediction(booster: Any, data: Any) -> Float64Array:
    return np.asarray(booster.predict(data), dtype=np.float64)
