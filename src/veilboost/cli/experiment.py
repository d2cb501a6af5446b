"""One simulated federation, trained, tested and measured against its baselines."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilboost.audit.result import Finding
from veilboost.boost.booster import Watcher
from veilboost.boost.metrics import Metric, metric_named
from veilboost.boost.objective import make_objective
from veilboost.cli.baseline import Baseline, active_only, central_xgboost
from veilboost.cli.problem import Problem, labels, with_declared
from veilboost.cli.verdict import learned_by, protections_of, status_of
from veilboost.config import TrainingConfig
from veilboost.crypto.paillier.prepared import PreparedOwner
from veilboost.engine.api import LOCAL, Engine
from veilboost.errors import UnsupportedCombination
from veilboost.model.joined import join
from veilboost.model.part import Skeleton
from veilboost.party.simulation import Simulation, simulate_prediction, simulate_training
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.spending import spending
from veilboost.privacy.statement import Statement
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import resolve
from veilboost.types import Float64Array, PartyName, Role


@dataclass(frozen=True)
class Experiment:
    """A finished run with all that was measured. Baselines are None where they were not asked for or cannot be."""

    spec: ProtocolSpec
    problem: Problem
    config: TrainingConfig
    threads: int
    run: Simulation
    skeleton: Skeleton
    metric: Metric
    model_sha256: str
    fit_seconds: float
    peak_rss_mb: float
    together: float
    central: float | None
    alone: float | None
    xgboost: Baseline | None
    findings: Sequence[Finding] | None = None  # of the audit, where it was asked for

    @property
    def statement(self) -> Statement:
        """What the protocol claims of this model."""
        return self.spec.statement.given(self.skeleton.noise)

    @property
    def rounds_trained(self) -> int:
        return len(self.run.history)

    @property
    def seconds_per_tree(self) -> float:
        return sum(result.seconds for result in self.run.history) / self.rounds_trained


def run_experiment(
    problem: Problem,
    protocol: str,
    config: TrainingConfig,
    threads: int,
    baselines: bool,
    watcher: Watcher | None = None,
    audit: bool = False,
    engine: Engine = LOCAL,
    classes: Sequence[str] | None = None,
) -> Experiment:
    """Train and test a federation; then, if asked, the same without the others and with all columns in one hand."""
    spec = protocol_named(protocol)
    if config.early_stopping_rounds is not None and problem.held_out is None:
        raise UnsupportedCombination(
            "--early-stopping-rounds needs validation rows", "keep some apart with --validation-size 0.2"
        )
    if classes is not None:
        problem = with_declared(problem, classes)
    active = problem.active
    labels(problem.train, active)
    resolved = resolve(spec, config, problem.train[active], engine=engine.name, classes=classes)
    config = spec.settled(resolved.config)
    began = time.perf_counter()
    run = simulate_training(
        problem.train,
        active,
        protocol,
        config,
        held_out=problem.held_out,
        threads=threads,
        watcher=watcher,
        classes=classes,
        record="payload" if audit else "types",
        prepared=_kept_key(protocol, config) if audit else None,
        engine=engine,
    )
    fit_seconds = time.perf_counter() - began
    peak_rss_mb = _peak_rss_mb()  # before baselines bring memory of their own
    skeleton = run.parts[active].skeleton
    if skeleton is None:
        raise TypeError("a training run ended without a skeleton")
    metric = metric_named(run.metric)
    objective = make_objective(
        skeleton.objective,
        classes=max(2, skeleton.trees_per_round),
        scale_pos_weight=config.scale_pos_weight,
        max_delta_step=config.max_delta_step,
        order=config.order,
    )

    def score(prediction: Float64Array) -> float:
        return metric.function(labels(problem.test, active), prediction, problem.test[active].weight)

    together = objective.predict(simulate_prediction(run.parts, active, problem.test))
    xgboost, alone = None, None
    if baselines:
        alone = together if len(problem.train) == 1 else active_only(problem, config, objective, threads)
        xgboost = central_xgboost(problem, run.parts, config, objective, metric, threads)
    return Experiment(
        spec=spec,
        problem=problem,
        config=skeleton.config,  # with what the protocol chose for itself
        threads=threads,
        run=run,
        skeleton=skeleton,
        metric=metric,
        model_sha256=join(run.parts).sha256(),
        fit_seconds=fit_seconds,
        peak_rss_mb=peak_rss_mb,
        together=score(together),
        central=None if xgboost is None else score(xgboost.prediction),
        alone=None if alone is None else score(alone),
        xgboost=xgboost,
        findings=_findings(run, problem, config.seed) if audit else None,
    )


def _kept_key(protocol: str, config: TrainingConfig) -> PreparedOwner | None:
    from veilboost.audit.sources import kept_key

    return kept_key(protocol, config)


def _findings(run: Simulation, problem: Problem, seed: int) -> list[Finding]:
    from veilboost.audit.runner import audit
    from veilboost.audit.sources import views_of_simulation

    return audit(*views_of_simulation(run, problem.train, problem.held_out), seed=seed)


def summary(done: Experiment) -> dict[str, Any]:
    """The numbers of a run, as plain JSON can hold them."""
    run, problem, metric, central = done.run, done.problem, done.metric.name, done.xgboost
    train, test = problem.train[problem.active].rows, problem.test[problem.active].rows
    validation = 0 if problem.held_out is None else int(problem.held_out.sum())
    return {
        "protocol": done.spec.name,
        "objective": done.skeleton.objective,
        "rows": train + test,
        "rows_train": train - validation,
        "rows_validation": validation,
        "rows_test": test,
        "features": sum(len(table.columns) for table in problem.train.values()),
        "parties": len(problem.train),
        "active": problem.active,
        "columns": {name: len(table.columns) for name, table in problem.train.items()},
        "trees": len(done.skeleton.trees) // done.skeleton.trees_per_round,
        "trees_per_round": done.skeleton.trees_per_round,
        "depth": done.config.max_depth,
        "metric": metric,
        "value": done.together,
        metric: done.together,
        f"{metric}_xgboost": done.central,
        f"{metric}_active_only": done.alone,
        "seconds_per_tree": done.seconds_per_tree,
        "seconds_per_tree_xgboost": None if central is None else central.seconds_per_tree,
        "fit_seconds": done.fit_seconds,
        "fit_seconds_xgboost": None if central is None else central.fit_seconds,
        "bytes_sent": run.bytes_sent,
        "bytes_sent_by_party": bytes_by_party(run),
        "messages": run.messages,
        "rounds": run.rounds,
        "peak_rss_mb": done.peak_rss_mb,
        "model_sha256": done.model_sha256,
        "security_bits": None if done.spec.security_bits is None else done.spec.security_bits(done.config),
        "status": status_of(done.statement),
        "protections": protections_of(done.statement),
        "learned": learned_by(run.transcripts, done.spec.messages),
        "privacy": spent_by_party(done),
        "seed": done.config.seed,
        "threads": done.threads,
        "engine": run.engine,
        "workers": run.workers,
    } | ({} if done.findings is None else {"findings": [finding.to_dict() for finding in done.findings]})


def spent_by_party(done: Experiment) -> Mapping[str, dict[str, Any]]:
    """Both accountings of what each party released, at the delta of its noise or that of a policy that does not say."""
    run, spec, config = done.run, done.spec, done.config

    def delta(name: PartyName) -> float:
        return spec.delta(config, Role.ACTIVE if name == run.driver else Role.PASSIVE) or DEFAULT_DELTA

    return {name: spending(account.events, delta(name)) for name, account in run.accounts.items()}


def bytes_by_party(run: Simulation) -> Mapping[str, int]:
    return {name: transcript.bytes_sent() for name, transcript in run.transcripts.items()}


def _peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)
