"""The server of `mal`: collects masked rows once, trains trees of depth 1 on them, and sends the model to all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from veilboost.boost.booster import RoundResult, best_round, past_its_best
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.metrics import Metric, summed_metric_for
from veilboost.boost.objective import Objective, objective_of
from veilboost.errors import EmptyTable, InvalidParameter, MalformedMessage, PeerUnreachable, VeilBoostError
from veilboost.model.share import ModelShare, SplitRecords, TrainingOutcome
from veilboost.protocols.horizontal.full_model import block_of_bins, full_model, to_message
from veilboost.protocols.horizontal.roles import ServerContext, ServerRole, ask_reachable, introduction
from veilboost.protocols.horizontal.schema import Schema, differences, unify
from veilboost.protocols.mal import messages
from veilboost.protocols.mal.parameters import MOST_WEIGHTS, MalOptions, cuts_of, numeric_columns
from veilboost.protocols.mal.stumps import Stumps, sums_by_slot
from veilboost.types import AnyArray, Float64Array, PartyName
from veilboost.wire.message import Done, Message

_ROUNDING = 1e-4  # allowed deviation of a sum of masked 0/1 labels from an integer


class MalServer(ServerRole):
    """Asks every participant for its rows and sends it the model; asks for metrics in between if rows are held out.

    Lost participants are omitted.
    """

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._options = MalOptions.from_dict(context.config.options)
        self._dropped = dict(context.dropped)

    def check(self) -> Mapping[PartyName, VeilBoostError]:
        found = differences(self._schemas())
        if not found:
            unify(self._schemas(), self._context.config.objective)
        self._validates()
        return found

    def _joined(self) -> dict[PartyName, messages.MalColumns]:
        told = self._context.introductions
        return {name: introduction(each, messages.MalColumns, name) for name, each in told.items()}

    def _schemas(self) -> dict[PartyName, Schema]:
        return {name: Schema.from_json(each.schema) for name, each in self._joined().items()}

    def _validates(self) -> bool:
        """Whether a participant holds out rows. Raises if none does and training should stop early."""
        validates = any(each.watches for each in self._joined().values())
        if self._context.config.early_stopping_rounds is not None and not validates:
            raise InvalidParameter(
                "early_stopping_rounds needs validation rows, but no participant holds out any",
                "set a share of validation rows, or remove early_stopping_rounds",
            )
        return validates

    def train(self) -> TrainingOutcome:
        context, config = self._context, self._context.config
        schema = unify(self._schemas(), config.objective)
        validates = self._validates()
        rows = self._collect(schema)
        pooled, reports = self._pool(schema, rows)
        objective = objective_of(schema.objective, config, max(2, schema.kinds))
        base = self._base(objective, pooled)
        grown = Stumps(pooled.block, pooled.label_sums, base, objective, config, context.threads, pooled.weight)
        grown.train(context.watcher)
        trees, rules, history = grown.trees, grown.rules, grown.history
        metric = summed_metric_for(objective, config) if validates else None
        if metric is not None:
            share = full_model("mal", schema, trees, base, SplitRecords.of(rules), config)
            history = self._measured(rows, share, history, metric)
            if config.early_stopping_rounds is not None:
                trees = trees[: (best_round(history, metric) + 1) * objective.trees_per_round]
                rules = {key: rule for key, rule in rules.items() if key[0] < len(trees)}
        share = full_model("mal", schema, trees, base, SplitRecords.of(rules), config)
        self._ask(rows, to_message(share), Done)
        return TrainingOutcome(share, history, reports, self._dropped, None if metric is None else metric.name)

    def _measured(
        self, names: Iterable[PartyName], share: ModelShare, history: Sequence[RoundResult], metric: Metric
    ) -> list[RoundResult]:
        """Return the history with the metric on all held-out rows, up to the round in which training would stop."""
        left = [name for name in names if name not in self._dropped]
        request = messages.MetricsRequest(**vars(to_message(share)))
        answers: list[messages.RoundMetrics] = list(self._ask(left, request, messages.RoundMetrics).values())
        if any(
            len(each.terms) != len(history) or not np.isfinite((each.weight, *each.terms)).all() or each.weight < 0
            for each in answers
        ):
            raise MalformedMessage("a participant sent metrics of other rounds, or that are no numbers")
        weight, found = sum(each.weight for each in answers), list[RoundResult]()
        for round_, result in enumerate(history):
            if past_its_best(found, metric, self._context.config):
                break
            mean = sum(float(each.terms[round_]) for each in answers) / weight if weight > 0 else math.nan
            value = math.sqrt(max(mean, 0.0)) if metric.root and weight > 0 else mean
            found.append(RoundResult.measured(result.number, result.seconds, value, metric))
        return found

    def _base(self, objective: Objective, pooled: _Pooled) -> Float64Array:
        """Return the margin before the first tree, from the sum of labels over the buckets of the first column."""
        total = pooled.block.rows if pooled.weight is None else float(pooled.weight.sum())
        sums = pooled.label_sums[:, : pooled.block.layout.offsets[1]].sum(axis=1)
        return objective.base_margin_of_means(sums / total, self._context.config.base_score)

    def _ask(self, names: Iterable[PartyName], message: Message, *kinds: type[Message]) -> dict[PartyName, Any]:
        return ask_reachable(self._context.participants, dict.fromkeys(names, message), self._dropped, *kinds)

    def _collect(self, schema: Schema) -> dict[PartyName, messages.MaskedRows]:
        """Collect the rows of all participants. If the comparer misses some, repeat without them."""
        group = self._context.participants.names
        while True:
            self._check_left(group)
            answers = self._ask(
                group, messages.RowsRequest(schema.to_json(), group), messages.MaskedRows, messages.RowsHeldBack
            )
            held_back = [answer for answer in answers.values() if isinstance(answer, messages.RowsHeldBack)]
            if not held_back:
                self._check_left(answers)
                return answers
            for name in {name for answer in held_back for name in answer.missing}.intersection(group):
                self._dropped.setdefault(name, f"{name} sent the comparer no extremes in time")
            left = tuple(name for name in group if name not in self._dropped)
            if left == group or len(held_back) < len(answers):
                raise MalformedMessage(
                    "the comparer sent participants different answers",
                    "stop the job and contact the operator of the comparer",
                )
            group = left

    def _check_left(self, left: Sized) -> None:
        if len(left) < self._options.least_participants or not left:
            raise PeerUnreachable(
                f"{len(left)} participants are left, but the job needs {max(1, self._options.least_participants)}",
                "; ".join(self._dropped.values()) or "start more participants",
            )

    def _pool(
        self, schema: Schema, rows: Mapping[PartyName, messages.MaskedRows]
    ) -> tuple[_Pooled, dict[PartyName, dict[str, Any]]]:
        """Return all rows with the sums of their labels per bucket, and the reports of participants."""
        first = next(iter(rows.values()))
        numeric = len(numeric_columns(schema))
        for name, each in rows.items():
            ends = (each.low, first.low), (each.high, first.high)
            if len(each.low) != numeric or not all(np.array_equal(*pair, equal_nan=True) for pair in ends):
                raise MalformedMessage(
                    f"{name} received other ranges than the other participants",
                    "stop the job and contact the operator of the comparer",
                )
        whole = self._block(schema, first, np.concatenate([each.buckets for each in rows.values()]))
        widths = whole.layout.widths
        sums = np.zeros((schema.trees_per_round, whole.layout.slots))
        for name, each in rows.items():
            if each.buckets.shape[1:] != (len(schema.columns),) or (each.buckets >= widths).any():
                raise MalformedMessage(f"{name} sent rows with other columns or buckets")
            if each.labels.shape != (schema.trees_per_round, len(each.buckets)) or not np.isfinite(each.labels).all():
                raise MalformedMessage(f"{name} sent labels for other rows or classes")
            own = self._block(schema, first, each.buckets)
            for weight, of_weight in _by_weight(name, each):
                found = _checked_sums(name, schema, own, each.labels, of_weight)
                sums += found if weight == 1.0 else weight * found
        weights = None
        if any(len(each.weights) for each in rows.values()):
            weights = np.concatenate([_row_weights(each) for each in rows.values()])
        if whole.rows < 2 or (weights is not None and not weights.sum() > 0):
            raise EmptyTable("the participants sent fewer than two rows, or no row with a weight above 0")
        return _Pooled(whole, sums, weights), {name: _report(each) for name, each in rows.items()}

    def _block(self, schema: Schema, ranges: messages.MaskedRows, buckets: AnyArray) -> ColumnBlock:
        config = self._context.config
        cuts = cuts_of(schema, ranges.low, ranges.high, config.max_bin)
        return block_of_bins(schema, cuts, config, buckets, self._context.threads)


@dataclass(frozen=True)
class _Pooled:
    """The rows of all participants: the weighted sums of labels (K, slots), and the rows' weights if there are any."""

    block: ColumnBlock
    label_sums: Float64Array
    weight: Float64Array | None


def _by_weight(name: PartyName, rows: messages.MaskedRows) -> Iterable[tuple[float, Float64Array]]:
    """Each weight of a participant, and the rows that have it (1 or 0)."""
    weights, of = rows.weights, rows.weight_of
    if not len(weights) and not len(of):
        return [(1.0, np.ones(len(rows.buckets)))]
    if not 0 < len(weights) <= MOST_WEIGHTS or not (np.isfinite(weights) & (weights >= 0)).all():
        raise MalformedMessage(f"{name} sent sample weights that are too many, negative or no numbers")
    if len(of) != len(rows.buckets) or int(of.max(initial=0)) >= len(weights):
        raise MalformedMessage(f"{name} sent sample weights for other rows")
    return [(float(weight), (of == at).astype(np.float64)) for at, weight in enumerate(weights)]


def _row_weights(rows: messages.MaskedRows) -> Float64Array:
    return rows.weights[rows.weight_of] if len(rows.weights) else np.ones(len(rows.buckets))


def _checked_sums(
    name: PartyName, schema: Schema, block: ColumnBlock, labels: Float64Array, of_weight: Float64Array
) -> Float64Array:
    """The sums of the labels of rows of one weight. Raise if the masks of a participant do not cancel in them."""
    sums = sums_by_slot(block, labels * of_weight)
    if schema.objective == "regression":
        return sums
    whole = np.rint(sums)
    counts = sums_by_slot(block, of_weight[None, :])
    if np.abs(sums - whole).max(initial=0.0) > _ROUNDING or (whole < 0).any() or (whole > counts).any():
        raise MalformedMessage(f"the label masks of {name} do not cancel in every bucket")
    return whole


def _report(rows: messages.MaskedRows) -> dict[str, float]:
    """Return the participant's report: a number for each fact, and nothing else."""
    try:
        report = cast("dict[str, Any]", json.loads(rows.report))
        if tuple(report) == messages.REPORT and all(type(value) in (int, float) for value in report.values()):
            return report
    except (ValueError, TypeError, RecursionError):
        pass
    raise MalformedMessage("a participant's report cannot be read")
