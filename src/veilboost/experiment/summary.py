"""The summary of one finished run, for the console, as JSON and as the facts of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from veilboost.boost.booster import RoundResult
from veilboost.boost.metrics import Metric
from veilboost.config import TrainingConfig
from veilboost.model.explanation import Explanation
from veilboost.model.joined import JoinedModel
from veilboost.model.share import ModelShare
from veilboost.privacy.statement import Statement
from veilboost.protocols.spec import ProtocolSpec
from veilboost.types import Column, Float64Array, PartyName
from veilboost.wire.transcript import Entry, Exchange, Network, shown_to

if TYPE_CHECKING:
    from veilboost.audit.attack import Finding
    from veilboost.evaluation.evaluate import Evaluation
    from veilboost.report.facts import Facts

_POINTS = 60  # the most points of a learning curve
_PARTITIONED = {"vertical": ("parties", "columns"), "horizontal": ("participants", "rows")}


@dataclass(frozen=True)
class Baseline:
    """XGBoost on pooled data: predictions for the test rows, and seconds."""

    prediction: Float64Array
    fit_seconds: float
    seconds_per_tree: float


@dataclass(frozen=True)
class Member:
    """A party: its role, and the size of its training table."""

    role: str
    columns: int = 0
    rows: int = 0


@dataclass(frozen=True)
class RunSummary:
    """One run, simulated or between daemons. Fields that only a simulation measures have defaults.

    Attributes
    ----------
    driver
        The active party, or the server.
    members
        All parties that sent or received messages, including helpers.
    together, alone, central
        The metric on the test rows: of the federation, of one party alone, of XGBoost on pooled data. None if it was
        not requested or is not possible.
    rounds
        How often the driver waited for answers.
    exchanges
        The messages that each party received.
    entries
        The messages that the driver sent and received, one by one.
    busiest
        Round trips and bytes of the busiest party, if each party has its own connection.
    privacy
        The result of `privacy.spending` for each party.
    explained
        The explanation of some test rows.
    reports
        How participants report that they protected their rows.
    """

    spec: ProtocolSpec
    model: JoinedModel
    shares: Mapping[PartyName, ModelShare]
    driver: PartyName
    members: Mapping[PartyName, Member]
    rows_test: int
    metric: Metric
    together: float
    alone: float | None
    central: float | None
    exchanges: Sequence[Exchange]
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict[str, Any])
    rows_validation: int = 0
    xgboost: Baseline | None = None
    baselines: bool = True
    curve_metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    evaluation: Evaluation | None = None
    history: Sequence[RoundResult] = ()
    fit_seconds: float = 0.0
    peak_rss_mb: float = 0.0
    threads: int = 1
    engine: str = "local"
    workers: int = 1
    rounds: int = 0
    busiest: tuple[int, int] = (0, 0)
    entries: Sequence[Entry] = ()
    privacy: Mapping[PartyName, Mapping[str, Any]] = field(default_factory=dict[PartyName, Any])
    findings: Sequence[Finding] | None = None
    explained: Explanation | None = None
    dropped: Mapping[PartyName, str] = field(default_factory=dict[PartyName, str])
    reports: Mapping[PartyName, Mapping[str, Any]] = field(default_factory=dict[PartyName, Any])

    @property
    def statement(self) -> Statement:
        """The protocol's claims about this model."""
        return self.spec.statement.given(self.model.skeleton.noise)

    @property
    def config(self) -> TrainingConfig:
        """The configuration, with the parameters that the protocol chose."""
        return self.model.skeleton.config

    @property
    def learned(self) -> dict[PartyName, list[str]]:
        """The data revealed to each party."""
        return {name: shown_to(name, self.exchanges) for name in self.members}

    @property
    def bytes_sent(self) -> dict[PartyName, int]:
        return {name: sum(each.size for each in self.exchanges if each.sender == name) for name in self.members}

    @property
    def messages(self) -> int:
        return sum(each.count for each in self.exchanges)

    @property
    def owners(self) -> dict[PartyName, Member]:
        """The parties that hold data."""
        return {name: each for name, each in self.members.items() if each.rows}

    @property
    def rows_train(self) -> int:
        """Training rows, including validation rows."""
        counts = [each.rows for each in self.owners.values()]
        return counts[0] if self.spec.setting == "vertical" else sum(counts)

    @property
    def trees(self) -> int:
        """Boosting rounds that the model keeps."""
        return len(self.model.trees) // self.model.skeleton.trees_per_round

    @property
    def train_seconds(self) -> float:
        return sum(result.seconds for result in self.history)

    @property
    def seconds_per_tree(self) -> float:
        return self.train_seconds / len(self.history)

    @property
    def exposed_rows(self) -> int:
        """Rows whose labels were sent under masks that hide too little."""
        return sum(int(report.get("exposed_rows", 0)) for report in self.reports.values())

    @property
    def quality(self) -> dict[str, float]:
        """The metric of each model, by the data used."""
        who, what = _PARTITIONED[self.spec.setting]
        lone = f"{self.driver} only" if self.driver in self.owners else "one participant"
        found = {
            f"alone, {lone}": self.alone,
            f"together, {len(self.owners)} {who}": self.together,
            f"central XGBoost, all {what} pooled": self.central,
        }
        return {title: value for title, value in found.items() if value is not None}

    def on_network(self, line: str) -> dict[str, Any]:
        """Estimated seconds on such a network: all traffic on the driver's line, or each other party on its own."""
        network, (round_trips, size) = Network.parse(line), self.busiest
        return {
            "network": line,
            "network_seconds": network.seconds(round_trips, sum(self.bytes_sent.values())),
            "network_seconds_own_lines": network.seconds(round_trips, size),
        }

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the run as JSON values."""
        metric = self.metric.name
        numbers = {
            "protocol": self.spec.name,
            "objective": self.model.skeleton.objective,
            "rows_test": self.rows_test,
            "trees": self.trees,
            "trees_per_round": self.model.skeleton.trees_per_round,
            "depth": self.config.max_depth,
            "metric": metric,
            "value": self.together,
            metric: self.together,
            f"{metric}_xgboost": self.central,
            "fit_seconds": self.fit_seconds,
            "fit_seconds_xgboost": None if self.xgboost is None else self.xgboost.fit_seconds,
            "bytes_sent": sum(self.bytes_sent.values()),
            "bytes_sent_by_party": self.bytes_sent,
            "messages": self.messages,
            "rounds": self.rounds,
            "model_sha256": self.model.sha256(),
            "status": self.statement.status,
            "protections": self.statement.to_list(),
            "learned": self.learned,
            "privacy": dict(self.privacy),
            "random_state": self.config.random_state,
        }
        numbers |= self._by_columns() if self.spec.setting == "vertical" else self._by_rows()
        return numbers | ({} if self.findings is None else {"findings": [found.to_dict() for found in self.findings]})

    def _by_columns(self) -> dict[str, Any]:
        bits = self.spec.security_bits
        return {
            "rows": self.rows_train + self.rows_test,
            "rows_train": self.rows_train - self.rows_validation,
            "rows_validation": self.rows_validation,
            "features": sum(each.columns for each in self.owners.values()),
            "parties": len(self.owners),
            "active": self.driver,
            "columns": {name: each.columns for name, each in self.owners.items()},
            f"{self.metric.name}_active_only": self.alone,
            "seconds_per_tree": self.seconds_per_tree,
            "seconds_per_tree_xgboost": None if self.xgboost is None else self.xgboost.seconds_per_tree,
            "peak_rss_mb": self.peak_rss_mb,
            "security_bits": None if bits is None else bits(self.config),
            "n_jobs": self.threads,
            "engine": self.engine,
            "workers": self.workers,
        }

    def _by_rows(self) -> dict[str, Any]:
        return {
            "setting": self.spec.setting,
            "rows_train": self.rows_train,
            "rows_by_participant": {name: each.rows for name, each in self.owners.items()},
            "features": len(self.model.columns),
            "participants": len(self.owners),
            "dropped": dict(self.dropped),
            "max_bin": self.config.max_bin,
            "options": dict(self.config.options),
            f"{self.metric.name}_one_participant": self.alone,
            "train_seconds": self.train_seconds,
            "prepare_seconds": self.fit_seconds - self.train_seconds,
            "validation": [result.validation for result in self.history if result.validation is not None],
            "reports": {name: dict(report) for name, report in self.reports.items()},
            "exposed_rows": self.exposed_rows,
            "labels_broken": self.exposed_rows > 0,
        }

    def facts(self) -> Facts:
        """The facts for the report of a simulation."""
        from veilboost.report.facts import SIMULATED, Facts, course, kind_of, model_facts, training_facts

        steps = course(self.driver, self.entries, kind_of(self.spec.messages))
        return Facts(
            title=f"A simulated federation by {self.spec.name}",
            source=SIMULATED,
            protocol=self.spec.name,
            summary=self.spec.summary,
            settings={
                "training rows": self.rows_train,
                "test rows": self.rows_test,
                "threads of each party": self.threads,
            }
            | training_facts(self.config),
            parties={name: {"role": each.role, "columns": each.columns} for name, each in self.members.items()},
            metric=self.metric.name,
            higher_is_better=self.metric.higher_is_better,
            quality=self.quality,
            curves=self.curves,
            curve_metrics=self.curve_metrics,
            evaluation=None if self.evaluation is None else self.evaluation.to_dict(),
            round_seconds=[result.seconds for result in self.history],
            cost={
                "total": (self.fit_seconds, "s"),
                "training": (self.train_seconds, "s"),
                "per tree": (self.seconds_per_tree, "s"),
                "sent": (float(sum(self.bytes_sent.values())), "B"),
                "messages": (float(self.messages), ""),
                "peak memory": (self.peak_rss_mb, "MB"),
            },
            steps=[step.to_dict() for step in steps.steps],
            waiting=steps.waiting,
            bytes_sent=self.bytes_sent,
            exchanges=[each.to_dict() for each in self.exchanges],
            learned=self.learned,
            privacy=self.privacy,
            protections=self.statement.to_list(),
            findings=None if self.findings is None else [found.to_dict() for found in self.findings],
            model=model_facts(self.model, self.explained),
        )


def learning_curve(
    model: JoinedModel,
    columns: Mapping[PartyName, Sequence[Column]],
    truth: Float64Array,
    weight: Float64Array | None,
    metric: Metric,
) -> list[tuple[float, float]]:
    """The metric after some of the rounds, including the last."""
    rounds, loss = len(model.trees) // model.skeleton.trees_per_round, model.skeleton.loss
    every = max(1, math.ceil(rounds / _POINTS))
    return [
        (float(number), metric.function(truth, loss.predict(margin), weight))
        for number, margin in enumerate(model.staged_margins(columns), start=1)
        if number % every == 0 or number in {1, rounds}
    ]
