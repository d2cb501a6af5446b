"""`veilboost simulate` with rows in different hands: run, measured, and told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.padding import Padding

from veilboost.audit.result import Finding
from veilboost.boost.booster import Watcher
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import make_objective
from veilboost.cli.audit import findings_list, horizontal_findings, print_findings
from veilboost.cli.baseline import central_xgboost
from veilboost.cli.console import bytes_text, make_table, print_json, seconds_text, status_text, stdout, writing
from veilboost.cli.problem import Problem, labels
from veilboost.cli.verdict import learned_by, protections_of, status_of
from veilboost.config import TrainingConfig
from veilboost.data.schema import infer_objective
from veilboost.errors import EmptyTable, ImpossibleParameter, UnsupportedCombination
from veilboost.model.joined import join
from veilboost.model.store import save_model
from veilboost.party.simulation import SERVER, Simulation, simulate_training
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.spending import spending
from veilboost.privacy.statement import Statement
from veilboost.protocols.registry import protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import settle
from veilboost.types import Float64Array, Int64Array, PartyName
from veilboost.wire.network import Network, turns

INDENT = (0, 0, 0, 2)
EXPOSED_ROWS = "exposed_rows"


@dataclass(frozen=True)
class HorizontalChoices:
    """What only horizontal simulations are told."""

    participants: int | None = None
    buckets: int | None = None
    allow_unmasked: bool = False

    @property
    def any(self) -> bool:
        return self != HorizontalChoices()

    def applied(self, spec: ProtocolSpec, config: TrainingConfig) -> TrainingConfig:
        """The configuration with these choices in it, as the protocol completes it."""
        options = dict(config.options)
        if self.allow_unmasked:
            if "guard" in options or "guard" not in spec.options.names():
                raise UnsupportedCombination(
                    f"{spec.name} has no option guard, or it is given twice", "say it once, to a protocol that has it"
                )
            options["guard"] = "allow"
        config = replace(config, options=options)
        return settle(spec, config if self.buckets is None else replace(config, max_bin=self.buckets))


@dataclass(frozen=True)
class HorizontalExperiment:
    """A finished run with all that was measured."""

    spec: ProtocolSpec
    config: TrainingConfig
    run: Simulation
    rows: Mapping[PartyName, int]
    test_rows: int
    metric: str
    value: float
    central: float | None
    central_seconds: float | None
    alone: float | None
    fit_seconds: float
    findings: Sequence[Finding] | None = None  # of the audit, where it was asked for

    @property
    def statement(self) -> Statement:
        """What the protocol claims of this model."""
        return self.spec.statement.given(self.run.model.skeleton.noise)

    @property
    def train_seconds(self) -> float:
        return sum(result.seconds for result in self.run.outcome.history)

    @property
    def exposed_rows(self) -> int:
        return sum(int(report.get(EXPOSED_ROWS, 0)) for report in self.run.outcome.reports.values())


def run_horizontal(
    problem: Problem,
    protocol: str,
    config: TrainingConfig,
    choices: HorizontalChoices,
    threads: int,
    baselines: bool,
    watcher: Watcher | None = None,
    audit: bool = False,
) -> HorizontalExperiment:
    """Deal the rows out, train, test; then, if asked, the same with all rows in one hand and with one share alone."""
    spec = protocol_named(protocol, "horizontal")
    table, test = problem.train[problem.active], problem.test[problem.active]
    target = labels(problem.train, problem.active)
    if config.objective == "auto":
        config = replace(config, objective=infer_objective(target, table.label_classes))
    config = choices.applied(spec, config)
    shares = _dealt(table.rows, 10 if choices.participants is None else choices.participants, config.seed)
    parts = {name: table.take(share) for name, share in shares.items()}
    watched = problem.held_out
    held_out = None if watched is None else {name: watched[share] for name, share in shares.items()}
    began = time.perf_counter()
    run = simulate_training(
        parts,
        SERVER,
        protocol,
        config,
        threads=threads,
        watcher=watcher,
        held_out=held_out,
        record="payload" if audit else "types",
    )
    fit_seconds = time.perf_counter() - began
    skeleton = run.model.skeleton
    objective = make_objective(
        skeleton.objective, classes=max(2, skeleton.trees_per_round), max_delta_step=config.max_delta_step
    )
    metric = metric_named(objective.default_metric if config.eval_metric == "auto" else config.eval_metric)

    def score(prediction: Float64Array) -> float:
        return metric.function(labels(problem.test, problem.active), prediction, test.weight)

    central = alone = None
    if baselines:
        central = central_xgboost(problem, {problem.active: run.outcome.part}, config, objective, metric, threads)
        share = next(iter(parts.values()))
        lone = replace(config, options={}, early_stopping_rounds=None)
        own = simulate_training({"alone": share}, "alone", "plain", lone, threads=threads)
        skeleton_alone = own.parts["alone"].skeleton
        if skeleton_alone is not None and skeleton_alone.trees_per_round == skeleton.trees_per_round:
            alone = score(objective.predict(join(own.parts).margins(test.columns)))
    return HorizontalExperiment(
        spec=spec,
        config=config,
        run=run,
        rows={name: part.rows for name, part in parts.items()},
        test_rows=test.rows,
        metric=metric.name,
        value=score(objective.predict(run.model.margins(test.columns))),
        central=None if central is None else score(central.prediction),
        central_seconds=None if central is None else central.fit_seconds,
        alone=alone,
        fit_seconds=fit_seconds,
        findings=horizontal_findings(run, parts, protocol, config) if audit else None,
    )


def _dealt(rows: int, participants: int, seed: int) -> dict[PartyName, Int64Array]:
    """The rows in equal shares, drawn by the seed."""
    if participants < 1:
        raise ImpossibleParameter(f"--participants {participants} is less than 1")
    if participants > rows:
        raise EmptyTable(f"{rows} rows are too few for {participants} participants", "use fewer participants")
    shares = np.array_split(np.random.default_rng((seed, 2)).permutation(rows), participants)
    return {f"participant{at}": np.sort(share) for at, share in enumerate(shares)}


def horizontal_summary(done: HorizontalExperiment) -> dict[str, Any]:
    """The numbers of a run, as plain JSON can hold them."""
    run, metric = done.run, done.metric
    return {
        "protocol": done.spec.name,
        "setting": "horizontal",
        "objective": run.model.objective,
        "rows_train": sum(done.rows.values()),
        "rows_test": done.test_rows,
        "rows_by_participant": dict(done.rows),
        "features": len(run.model.columns),
        "participants": len(done.rows),
        "dropped": dict(run.outcome.dropped),
        "trees": len(run.model.trees) // run.model.trees_per_round,
        "trees_per_round": run.model.trees_per_round,
        "depth": done.config.max_depth,
        "max_bin": done.config.max_bin,
        "options": dict(done.config.options),
        "metric": metric,
        "value": done.value,
        metric: done.value,
        f"{metric}_xgboost": done.central,
        f"{metric}_one_participant": done.alone,
        "fit_seconds": done.fit_seconds,
        "train_seconds": done.train_seconds,
        "prepare_seconds": done.fit_seconds - done.train_seconds,
        "fit_seconds_xgboost": done.central_seconds,
        "bytes_sent": run.bytes_sent,
        "bytes_sent_by_party": {name: transcript.bytes_sent() for name, transcript in run.transcripts.items()},
        "validation": [result.validation for result in run.outcome.history if result.validation is not None],
        "messages": run.messages,
        "rounds": run.rounds,
        "reports": {name: dict(report) for name, report in run.outcome.reports.items()},
        EXPOSED_ROWS: done.exposed_rows,
        "labels_broken": done.exposed_rows > 0,
        "model_sha256": run.model.sha256(),
        "status": status_of(done.statement),
        "protections": protections_of(done.statement),
        "learned": learned_by(run.transcripts, done.spec.messages),
        "privacy": {name: spending(account.events, DEFAULT_DELTA) for name, account in run.accounts.items()},
        "seed": done.config.seed,
    } | ({} if done.findings is None else {"findings": findings_list(done.findings)})


def network_summary(text: str, rounds: int, size: int, busiest: int) -> dict[str, Any]:
    """What the run would take on such lines: everything over the driver's one, or each other party over its own."""
    network = Network.parse(text)
    return {
        "network": text,
        "network_seconds": network.seconds(rounds, size),
        "network_seconds_own_lines": network.seconds(rounds, busiest),
    }


def tell_horizontal(done: HorizontalExperiment, network: str | None, save: Path | None, as_json: bool) -> None:
    """Save the model where that was asked for, and tell how the run went."""
    run, part = done.run, done.run.outcome.part
    if save is not None:
        with writing(save):
            save_model({part.party: part}, save)
    line: dict[str, Any] = {}
    if network is not None:
        own = [run.transcripts[name].entries for name in done.rows]
        busiest = max(sum(entry.size for entry in entries) for entries in own)
        line = network_summary(network, max(map(turns, own)) // 2, run.bytes_sent, busiest)
    if as_json:
        print_json(horizontal_summary(done) | {"saved": None if save is None else str(save)} | line)
    else:
        print_horizontal(done, save, line)


def print_horizontal(done: HorizontalExperiment, saved: Path | None, network: Mapping[str, Any]) -> None:
    console, run = stdout(), done.run
    trees = len(run.model.trees) // run.model.trees_per_round
    console.print(
        f"[bold]{escape(done.spec.name)}[/]: {escape(done.spec.summary)}\n"
        f"{run.model.objective}, {trees} rounds of depth {done.config.max_depth}, {len(done.rows)} participants with "
        f"{sum(done.rows.values())} rows, tested on {done.test_rows}\n"
    )
    console.print(f"[bold]{done.metric} on the test rows[/]")
    table = make_table("who", done.metric, numbers=(done.metric,))
    for who, value in (
        ("one participant alone", done.alone),
        (f"together, {len(done.rows)} participants", done.value),
        ("all rows in one hand (XGBoost)", done.central),
    ):
        if value is not None:
            table.add_row(who, f"{value:.4f}")
    console.print(Padding(table, INDENT))
    console.print("\n[bold]Cost[/]")
    console.print(f"  {seconds_text(done.fit_seconds)} in all, {seconds_text(done.train_seconds)} of it training")
    console.print(f"  {run.messages} messages, {bytes_text(run.bytes_sent)}, {run.rounds} rounds of the server")
    if network:
        console.print(f"  on {network['network']}: {seconds_text(float(network['network_seconds']))} under way")
    console.print("\n[bold]What each was shown[/]")
    shown = learned_by(run.transcripts, done.spec.messages)
    for name, what in list(shown.items())[:2] + [item for item in shown.items() if item[0] in done.spec.helpers]:
        console.print(f"  [bold]{escape(name)}[/]: {escape('; '.join(what)) or 'nothing'}", soft_wrap=True)
    console.print("\n[bold]Verdict[/]")
    for protection in done.statement.protections:
        console.print(
            f"  {status_text(str(protection.status))} {escape(protection.data)} against "
            f"{escape(protection.adversary)}: {escape(protection.why)}",
            soft_wrap=True,
        )
    if done.exposed_rows:
        console.print(
            f"  [bold red]{done.exposed_rows} labels[/] had masks that hide too little, and were sent all the same"
        )
    for name, why in run.outcome.dropped.items():
        console.print(f"  {escape(name)} was lost on the way: {escape(why)}", soft_wrap=True)
    if done.findings is not None:
        console.print("\n[bold]What attacks with each party's view found[/]\n")
        print_findings(console, done.findings)
    if saved is not None:
        console.print(f"\nmodel: {escape(str(saved))}", soft_wrap=True)
