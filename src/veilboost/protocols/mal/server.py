"""The server of `mal`: collects masked rows once, trains trees of depth 1 on them, and sends the model to all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sized
from typing import Any, cast

import numpy as np

from veilboost.boost.columns import ColumnBlock
from veilboost.boost.objective import Objective, objective_of
from veilboost.errors import EmptyTable, MalformedMessage, PeerUnreachable, VeilBoostError
from veilboost.model.share import SplitRecords, TrainingOutcome
from veilboost.protocols.horizontal.full_model import block_of_bins, full_model, to_message
from veilboost.protocols.horizontal.roles import ServerContext, ServerRole, ask_reachable, introduction
from veilboost.protocols.horizontal.schema import Schema, differences, unify
from veilboost.protocols.mal import messages
from veilboost.protocols.mal.parameters import MalOptions, cuts_of, numeric_columns
from veilboost.protocols.mal.stumps import Stumps, sums_by_slot
from veilboost.types import AnyArray, Float64Array, PartyName
from veilboost.wire.message import Done, Message

_ROUNDING = 1e-4  # allowed deviation of a sum of masked 0/1 labels from an integer


class MalServer(ServerRole):
    """Sends every participant two requests: one for its rows, one with the model. Lost participants are omitted."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._options = MalOptions.from_dict(context.config.options)
        self._dropped = dict(context.dropped)

    def check(self) -> Mapping[PartyName, VeilBoostError]:
        found = differences(self._schemas())
        if not found:
            unify(self._schemas(), self._context.config.objective)
        return found

    def _schemas(self) -> dict[PartyName, Schema]:
        told = self._context.introductions
        joined = {name: introduction(each, messages.MalColumns, name) for name, each in told.items()}
        return {name: Schema.from_json(each.schema) for name, each in joined.items()}

    def train(self) -> TrainingOutcome:
        context, config = self._context, self._context.config
        schema = unify(self._schemas(), config.objective)
        rows = self._collect(schema)
        block, label_sums, reports = self._pool(schema, rows)
        objective = objective_of(schema.objective, config, max(2, schema.kinds))
        base = self._base(objective, block, label_sums)
        grown = Stumps(block, label_sums, base, objective, config, context.threads)
        grown.train(context.watcher)
        share = full_model("mal", schema, grown.trees, base, SplitRecords.of(grown.rules), config)
        self._ask(rows, to_message(share), Done)
        return TrainingOutcome(share, grown.history, reports, self._dropped)

    def _base(self, objective: Objective, block: ColumnBlock, label_sums: Float64Array) -> Float64Array:
        """Return the margin before the first tree, from the sum of labels over the buckets of the first column."""
        sums = label_sums[:, : block.layout.offsets[1]].sum(axis=1)
        return objective.base_margin_of_means(sums / block.rows, self._context.config.base_score)

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
    ) -> tuple[ColumnBlock, Float64Array, dict[PartyName, dict[str, Any]]]:
        """Return all rows, the sums of their labels per bucket, and the reports of participants."""
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
            sums += _checked_sums(name, schema, own, sums_by_slot(own, each.labels))
        if whole.rows < 2:
            raise EmptyTable("the participants sent fewer than two rows")
        return whole, sums, {name: _report(each) for name, each in rows.items()}

    def _block(self, schema: Schema, ranges: messages.MaskedRows, buckets: AnyArray) -> ColumnBlock:
        config = self._context.config
        cuts = cuts_of(schema, ranges.low, ranges.high, config.max_bin)
        return block_of_bins(schema, cuts, config, buckets, self._context.threads)


def _checked_sums(name: PartyName, schema: Schema, block: ColumnBlock, sums: Float64Array) -> Float64Array:
    """Round sums of zeros and ones to integers; raise if the masks of a participant do not cancel."""
    if schema.objective == "regression":
        return sums
    whole = np.rint(sums)
    counts = sums_by_slot(block, np.ones((1, block.rows)))
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
