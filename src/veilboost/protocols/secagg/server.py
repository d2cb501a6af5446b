"""The server of `secagg`: finds cut points from summed counts and grows trees from summed histograms."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from veilboost.boost.bins import Counts, CountsDecrease, Keys, cuts_by_counting
from veilboost.boost.booster import RoundResult, best_round, past_its_best, sample_columns
from veilboost.boost.columns import ColumnBlock, category_cuts
from veilboost.boost.grower import LEAF, Tree, grow
from veilboost.boost.metrics import Metric, check_metric_fits, summed_metric_for
from veilboost.boost.objective import objective_of
from veilboost.config import TrainingConfig
from veilboost.crypto.pairwise import KEY_BYTES
from veilboost.errors import (
    EmptyTable,
    InvalidParameter,
    MalformedMessage,
    PeerBroken,
    PeerUnreachable,
    VeilBoostError,
)
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale
from veilboost.model.share import ModelShare, SplitRecords, TrainingOutcome
from veilboost.protocols.constraints import check_names, constraints_of, of_columns
from veilboost.protocols.horizontal.full_model import block_of_bins, full_model, skeleton_of, to_message
from veilboost.protocols.horizontal.roles import LOST, ServerContext, ServerRole, ask_reachable, introduction
from veilboost.protocols.horizontal.schema import Schema, differences, unify
from veilboost.protocols.secagg import messages
from veilboost.protocols.secagg.finder import RoundCut, SecaggFinder, added
from veilboost.protocols.secagg.members import Members
from veilboost.protocols.secagg.noise import SumNoise, cuts_by_noisy_counts, least_roster, options_of
from veilboost.protocols.secagg.rosters import with_dropouts
from veilboost.protocols.secagg.shared import (
    SCORE_BINS,
    SUM_BYTES,
    as_float,
    from_residue,
    most_values,
    ranking_metric,
)
from veilboost.types import Float32Array, Float64Array, Int64Array, PartyName, UInt8Array, UInt32Array
from veilboost.wire.message import Done, Message

Kept: TypeAlias = tuple[ModelShare, Sequence[RoundResult]]

_NO_BOUND = np.zeros((1, 1))
_NO_TABLE = "the participants' sums are not those of any table"


class SecaggServer(ServerRole):
    """Sends the same requests to all participants and sums their answers. Masks cancel only if every one answers."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._names = context.participants.names
        self._members: Members | None = None  # with dropouts, after the opening
        self._step = 0
        # The trees and the history of the last round, until its checkpoint is asked for; then until it is stored.
        self._finished: Kept | None = None
        self._asked: Kept | None = None

    def train(self) -> TrainingOutcome:
        config = self._context.config
        schema = self._form_group()
        objective = objective_of(schema.objective, config, max(2, schema.kinds))
        self._rows, means = self._totals(len(objective.label_terms(np.empty(0))))
        self._objective, self._config = objective, config
        noise = SumNoise.of(config, len(schema.columns))
        base = objective.base_margin_of_means(means if noise is None else np.array([0.5]), config.base_score)
        cuts = self._find_cuts(schema, base)
        block = block_of_bins(schema, cuts, config, np.empty((0, len(cuts)), dtype=np.uint8), self._context.threads)
        grown = config  # with the least hessian of a child that noise requires
        if noise is not None:
            grown = replace(config, min_child_weight=max(config.min_child_weight, noise.safe_weight(config.max_bin)))
        members = self._members
        constraints = of_columns(constraints_of(config), [info.name for info in schema.columns])
        logs = members is not None
        finder = SecaggFinder(self._ask, block, objective, grown, self._context.threads, constraints, logs)
        metric = summed_metric_for(objective, config)
        trees: list[Tree] = []
        history: list[RoundResult] = []
        keeper = self._context.keeper
        kept = None if keeper is None else keeper.resumed()
        if keeper is not None and kept is not None:
            keeper.restore()
            trees, history = list(skeleton_of(kept[0]).trees), list(kept[1])
            finder.rules = kept[0].records.rules()
        for number in range(len(history), config.n_estimators):
            if past_its_best(history, metric, config):
                break
            started = time.perf_counter()
            trees += self._grow(number, finder, block, grown)
            value = self._measure(number, finder, metric) if self._validates else None
            history.append(RoundResult.measured(number, time.perf_counter() - started, value, metric))
            if keeper is not None:
                share = full_model("secagg", schema, trees, base, SplitRecords.of(finder.rules), config)
                self._finished = share, tuple(history)
            if self._context.watcher is not None and self._context.watcher(history[-1]):
                break
        if config.early_stopping_rounds is not None:
            trees = trees[: (best_round(history, metric) + 1) * objective.trees_per_round]
        rules = {key: rule for key, rule in finder.rules.items() if key[0] < len(trees)}
        share = full_model("secagg", schema, trees, base, SplitRecords.of(rules), config)
        dropped: dict[PartyName, str] = {}
        self._send(to_message(share), Done, dropped)
        changes = () if members is None else members.close(config.n_estimators, dropped)
        return TrainingOutcome(share, history, {}, dropped, metric.name if self._validates else None, changes)

    # --- start of the job -------------------------------------------------------------------------------

    def check(self) -> Mapping[PartyName, VeilBoostError]:
        found = differences(self._schemas())
        if not found:
            self._joined()
        return found

    def _introductions(self) -> dict[PartyName, messages.SecaggColumns]:
        told = self._context.introductions
        return {name: introduction(told[name], messages.SecaggColumns, name) for name in self._names}

    def _schemas(self) -> dict[PartyName, Schema]:
        return {name: Schema.from_json(each.schema) for name, each in self._introductions().items()}

    def _joined(self) -> tuple[Schema, list[messages.SecaggColumns]]:
        """The common schema, and the introductions in the order of the participants. Raises if they do not fit."""
        config, told = self._context.config, self._introductions()
        if len(told) < 2:
            raise InvalidParameter("secagg needs at least two participants", "name more participants")
        least_roster(config, len(told))  # raises if too many may drop out
        schema, joined = unify(self._schemas(), config.objective), list(told.values())
        if config.eval_metric != "auto":
            check_metric_fits(config.eval_metric, schema.objective)
        check_names(constraints_of(config), {info.name for info in schema.columns})
        self._validates = any(each.watches for each in joined)
        if config.early_stopping_rounds is not None and not self._validates:
            raise InvalidParameter(
                "early_stopping_rounds needs validation rows, but no participant holds out any",
                "set a share of validation rows, or remove early_stopping_rounds",
            )
        return schema, joined

    def _form_group(self) -> Schema:
        schema, joined = self._joined()
        publics = [each.public for each in joined]
        if any(len(public) != KEY_BYTES for public in publics):
            raise MalformedMessage("a public key has the wrong size")
        evidence = tuple(each.evidence for each in joined)
        weight_exponent = max(each.weight_exponent for each in joined)
        self._weight_bound = math.ldexp(1.0, min(max(weight_exponent, 0), MAX_BITS))
        group = messages.SecaggGroup(schema.to_json(), self._names, np.stack(publics), evidence, weight_exponent)
        self._ask(group, Done)
        self._group = group
        return schema

    def _totals(self, terms: int) -> tuple[int, Float64Array]:
        """Return the number of rows, and the weighted means of the loss's terms of their labels."""
        answers = self._ask(messages.TotalsRequest(), messages.MaskedTotals).values()
        if any(len(each.labels) != terms for each in answers):
            raise MalformedMessage("the sums of labels are for another number of classes, or another loss")
        rows = int(added([each.rows for each in answers])[0])
        weights = _exactly([each.weights for each in answers])
        labels = [_exactly([each.labels[term] for each in answers]) for term in range(terms)]
        if rows < 2 or not weights > 0:
            raise EmptyTable("the participants together have fewer than two rows, or no row with a weight above 0")
        return rows, np.array(labels) / weights

    def _find_cuts(self, schema: Schema, base: Float64Array) -> list[Float32Array]:
        config = self._config
        numeric = [info.categories is None or config.categories == "ordinal" for info in schema.columns]
        points = most_values(config.max_bin)
        try:
            if options_of(config).epsilon > 0:
                found = iter(cuts_by_noisy_counts(sum(numeric), config.max_bin, self._counts))
            else:
                found = iter(cuts_by_counting(sum(numeric), config.max_bin, config.binning, points, self._count))
        except CountsDecrease:
            raise MalformedMessage(_NO_TABLE) from None
        cuts = [
            next(found) if is_number else category_cuts(len(info.categories or ()))
            for info, is_number in zip(schema.columns, numeric, strict=True)
        ]
        starts = np.concatenate(([0], np.cumsum([len(each) for each in cuts]))).astype(np.int32)
        message = messages.CutsFound(np.concatenate(cuts).astype(np.float32), starts, base)
        self._ask(message, Done)
        if with_dropouts(config):
            self._members = Members(self._context, self._group, message)
        return cuts

    def _count(self, wanted: Keys) -> Counts:
        """Request the counts of all columns at once; shorter lists are padded with a key above all values."""
        values = np.full((len(wanted), max(len(keys) for keys in wanted)), np.iinfo(np.uint32).max, dtype=np.uint32)
        for row, keys in zip(values, wanted, strict=True):
            row[: len(keys)] = keys
        counts = self._counts(values)
        if counts.min(initial=0) < 0 or counts.max(initial=0) > self._rows:
            raise MalformedMessage(_NO_TABLE)
        return [row[: len(keys)] for row, keys in zip(counts, wanted, strict=True)]

    def _counts(self, values: UInt32Array) -> Int64Array:
        self._step += 1
        answers = self._ask(messages.CountsRequest(self._step, values), messages.MaskedCounts).values()
        counts = added([each.counts for each in answers])
        if counts.shape != values.shape:
            raise MalformedMessage("the received counts are for other values")
        return counts

    # --- rounds -----------------------------------------------------------------------------------------

    def _grow(self, number: int, finder: SecaggFinder, block: ColumnBlock, config: TrainingConfig) -> Sequence[Tree]:
        """The trees of a round; they end early if a participant is lost and the job can do without it."""
        groups = self._objective.trees_per_round
        try:
            if self._members is not None:
                self._members.begin(number, finder)
            scale = self._scale(number, finder)
        except RoundCut:
            return [_NO_SPLIT] * groups
        columns = sample_columns([block.layout.features], number, config)[0]
        return grow(finder, finder.round(number, scale, columns), config, np.empty((groups, 0)))

    def _scale(self, number: int, finder: SecaggFinder) -> Scale:
        """Return the round's grid."""
        bounds = self._objective.bounds(1.0, _NO_BOUND, _NO_BOUND)
        if min(bounds) > 0:
            return choose_scale(*bounds, self._weight_bound, self._config.gradient_bits)
        # The loss gives no bound, so participants report that of this round's gradients.
        answers = self._ask(messages.ScaleRequest(*finder.take_unsent(), number), messages.ScaleAnswer).values()
        return Scale(min(each.g_exponent for each in answers), min(each.h_exponent for each in answers))

    def _measure(self, number: int, finder: SecaggFinder, metric: Metric) -> float | None:
        """Send the result of the round and return the metric on validation rows; None if a participant was lost."""
        if self._members is not None and not self._members.complete:
            return None
        try:
            return self._measured(number, finder, metric)
        except RoundCut:
            return None

    def _measured(self, number: int, finder: SecaggFinder, metric: Metric) -> float:
        request = messages.MetricRequest(*finder.take_unsent(), number)
        if metric.terms is None:
            scores = added([each.weights for each in self._ask(request, messages.MaskedScores).values()])
            if scores.shape != (2, SCORE_BINS) or scores.min(initial=0) < 0:
                raise MalformedMessage(_NO_TABLE)
            return ranking_metric(metric, scores, self._weight_bound)
        answers = self._ask(request, messages.MaskedMetric).values()
        weights, terms = _exactly([each.weights for each in answers]), _exactly([each.terms for each in answers])
        mean = terms / weights if weights > 0 else math.nan
        return math.sqrt(mean) if metric.root else mean

    def _ask(self, message: Message, kind: type[Any]) -> Mapping[PartyName, Any]:
        lost: dict[PartyName, str] = {}
        answers = self._send(message, kind, lost)
        if lost and self._members is not None:
            self._members.lose(lost, message)
        if lost:
            raise PeerUnreachable(
                f"{' and '.join(lost)} was lost, and without it the masks of the others do not cancel "
                f"({'; '.join(lost.values())})",
                f"start {' and '.join(lost)} again and run train --resume at the server; or train without it: remove "
                "it from the job file, change name there, and run train without --resume",
            )
        self._keep(message)
        return answers

    def _send(self, message: Message, kind: type[Any], lost: dict[PartyName, str]) -> Mapping[PartyName, Any]:
        """Ask all participants that take part, and add lost ones to `lost`."""
        # Without dropouts a restarted one is not lost: the job resumes with it.
        losses = (PeerUnreachable, PeerBroken) if self._members is None else LOST
        requests = dict.fromkeys(self._context.participants.names, message)
        return ask_reachable(self._context.participants, requests, lost, kind, losses=losses)

    def _keep(self, answered: Message) -> None:
        """Ask for a checkpoint together with the second request of a round, and store this party's when that is done.

        The first request of a round tells participants the last leaves of the round before it.
        """
        keeper = self._context.keeper
        if keeper is None:
            return
        if self._asked is not None:
            keeper.keep(*self._asked)
            self._asked = None
        if self._finished is not None and isinstance(answered, messages.SumsRequest):
            keeper.store(len(skeleton_of(self._finished[0]).trees))
            self._asked, self._finished = self._finished, None


_NO_SPLIT = Tree(
    np.array([LEAF], np.int32), np.array([LEAF], np.int32), np.zeros(1, np.float32), np.zeros(1), np.zeros(1)
)


def _exactly(answers: list[UInt8Array]) -> float:
    """Return the sum of all participants' exact sums, in which masks cancel too."""
    if any(len(each) != SUM_BYTES for each in answers):
        raise MalformedMessage("an exact sum has the wrong size")
    try:
        return as_float(from_residue(sum(int.from_bytes(each.tobytes(), "little") for each in answers)))
    except OverflowError:
        raise MalformedMessage(_NO_TABLE) from None
