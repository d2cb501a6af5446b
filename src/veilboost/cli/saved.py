"""What a simulation or a demonstration gave, as the facts of a report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from veilboost.boost.metrics import Metric, metric_named
from veilboost.boost.objective import Objective, make_objective
from veilboost.cli.experiment import Experiment, bytes_by_party, spent_by_party
from veilboost.cli.horizontal import HorizontalExperiment
from veilboost.cli.problem import Problem, labels
from veilboost.cli.tables import Tables
from veilboost.cli.verdict import learned_by, protections_of
from veilboost.model.joined import JoinedModel, join
from veilboost.party.exchange import Exchange
from veilboost.party.simulation import SERVER
from veilboost.privacy.accountant import DEFAULT_DELTA
from veilboost.privacy.spending import spending
from veilboost.report.facts import SIMULATED, Facts
from veilboost.report.model import model_facts
from veilboost.report.runs import training_facts
from veilboost.report.steps import course, kind_of
from veilboost.types import PartyName
from veilboost.wire.message import Message
from veilboost.wire.transcript import Transcript

_POINTS = 60  # of a learning curve
ON_TEST_ROWS = "test rows"


def facts_of_experiment(done: Experiment) -> Facts:
    """A vertical simulation."""
    problem, run = done.problem, done.run
    joined = join(run.parts)
    way = course(problem.active, run.transcripts[problem.active].entries, kind_of(done.spec.messages))
    objective = make_objective(
        done.skeleton.objective,
        classes=max(2, done.skeleton.trees_per_round),
        scale_pos_weight=done.config.scale_pos_weight,
        max_delta_step=done.config.max_delta_step,
        order=done.config.order,
    )
    checked = [(r.number + 1.0, r.validation) for r in run.history if r.validation is not None]
    tested = learning_curve(joined, problem.test, problem.active, objective, done.metric)
    quality = {
        f"alone, {problem.active} only": done.alone,
        f"together, {len(problem.train)} parties": done.together,
        "central XGBoost, all columns in one hand": done.central,
    }
    return Facts(
        title=f"A simulated federation by {done.spec.name}",
        source=SIMULATED,
        protocol=done.spec.name,
        summary=done.spec.summary,
        settings={
            "rows trained on": problem.train[problem.active].rows,
            "rows tested on": problem.test[problem.active].rows,
            "threads of each party": done.threads,
        }
        | training_facts(done.config),
        parties={
            name: {"role": "active" if name == problem.active else "passive", "columns": len(own.columns)}
            for name, own in problem.train.items()
        },
        metric=done.metric.name,
        higher_is_better=done.metric.higher_is_better,
        quality={who: value for who, value in quality.items() if value is not None},
        curves={ON_TEST_ROWS: tested} | ({"validation rows": checked} if checked else {}),
        round_seconds=[result.seconds for result in run.history],
        cost={
            "in all": (done.fit_seconds, "s"),
            "per tree": (done.seconds_per_tree, "s"),
            "sent": (float(run.bytes_sent), "B"),
            "messages": (float(run.messages), ""),
            "peak memory": (done.peak_rss_mb, "MB"),
        },
        steps=[step.to_dict() for step in way.steps],
        waiting=way.waiting,
        bytes_sent=bytes_by_party(run),
        exchanges=_exchanges(run.transcripts, done.spec.messages),
        learned=learned_by(run.transcripts, done.spec.messages),
        privacy=spent_by_party(done),
        protections=protections_of(done.statement),
        findings=None if done.findings is None else [found.to_dict() for found in done.findings],
        model=model_facts(joined),
    )


def facts_of_horizontal(done: HorizontalExperiment, problem: Problem) -> Facts:
    """A simulation with rows in different hands."""
    run, metric = done.run, metric_named(done.metric)
    way = course(SERVER, run.transcripts[SERVER].entries, kind_of(done.spec.messages))
    skeleton, trained = run.model.skeleton, run.outcome.part.party
    objective = make_objective(
        skeleton.objective, classes=max(2, skeleton.trees_per_round), max_delta_step=done.config.max_delta_step
    )
    quality = {
        "alone, one participant": done.alone,
        f"together, {len(done.rows)} participants": done.value,
        "central XGBoost, all rows in one hand": done.central,
    }
    return Facts(
        title=f"A simulated federation by {done.spec.name}",
        source=SIMULATED,
        protocol=done.spec.name,
        summary=done.spec.summary,
        settings={"rows trained on": sum(done.rows.values()), "rows tested on": done.test_rows}
        | training_facts(done.config),
        parties={
            name: {
                "role": "participant" if name in done.rows else name,
                "columns": len(run.model.columns) if name in done.rows else 0,
            }
            for name in run.transcripts
        },
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        quality={who: value for who, value in quality.items() if value is not None},
        curves={
            ON_TEST_ROWS: learning_curve(run.model, {trained: problem.test[problem.active]}, trained, objective, metric)
        },
        round_seconds=[result.seconds for result in run.outcome.history],
        cost={
            "in all": (done.fit_seconds, "s"),
            "training": (done.train_seconds, "s"),
            "sent": (float(run.bytes_sent), "B"),
            "messages": (float(run.messages), ""),
        },
        steps=[step.to_dict() for step in way.steps],
        waiting=way.waiting,
        bytes_sent={name: transcript.bytes_sent() for name, transcript in run.transcripts.items()},
        exchanges=_exchanges(run.transcripts, done.spec.messages),
        learned=learned_by(run.transcripts, done.spec.messages),
        privacy={name: spending(account.events, DEFAULT_DELTA) for name, account in run.accounts.items()},
        protections=protections_of(done.statement),
        model=model_facts(run.model),
    )


def learning_curve(
    joined: JoinedModel, tables: Tables, active: PartyName, objective: Objective, metric: Metric
) -> list[tuple[float, float]]:
    """The metric after some of the rounds, the last one among them."""
    truth, weight = labels(tables, active), tables[active].weight
    rounds = len(joined.trees) // joined.trees_per_round
    every = max(1, math.ceil(rounds / _POINTS))
    columns = {name: table.columns for name, table in tables.items()}
    return [
        (float(number), metric.function(truth, objective.predict(margin), weight))
        for number, margin in enumerate(joined.staged_margins(columns), start=1)
        if number % every == 0 or number in {1, rounds}
    ]


def _exchanges(transcripts: Mapping[PartyName, Transcript], messages: Iterable[type[Message]]) -> list[dict[str, Any]]:
    """What each party sent, by receiver and type."""
    reveals = {each.type_name(): tuple((item.what, item.to) for item in each.reveals) for each in messages}
    found: dict[tuple[PartyName, PartyName, str], list[int]] = {}
    for name, transcript in transcripts.items():
        for entry in transcript.entries:
            if entry.direction == "sent":
                here = found.setdefault((name, entry.peer, entry.message), [0, 0])
                here[0] += 1
                here[1] += entry.size
    return [Exchange(*key, count, size, reveals.get(key[2], ())).to_dict() for key, (count, size) in found.items()]
