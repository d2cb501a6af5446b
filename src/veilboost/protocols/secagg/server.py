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
from veilboost.boost.columns import category_cuts
from veilboost.boost.grower import Tree, grow
from veilboost.boost.metrics import Metric, check_metric_fits
from veilboost.boost.objective import Objective, objective_of
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
from veilboost.protocols.horizontal.roles import ServerContext, ServerRole, ask_reachable, introduction
from veilboost.protocols.horizontal.schema import Schema, differences, unify
from veilboost.protocols.secagg import messages
from veilboost.protocols.secagg.finder import SecaggFinder, added
from veilboost.protocols.secagg.noise import SumNoise, cuts_by_noisy_counts, options_of
from veilboost.protocols.secagg.shared import (
    SCORE_BINS,
    SUM_BYTES,
    as_float,
    from_residue,
    metric_of,
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
        self._step = 0
        # The trees and the history of the last round, until its checkpoint is asked for; then until it is stored.
        self._finished: Kept | None = None
        self._asked: Kept | None = None

    def train(self) -> TrainingOutcome:
        config = self._context.config
        schema = self._form_group()
        self._rows, mean = self._totals()
        objective = objective_of(schema.objective, config, max(2, schema.kinds))
        self._objective, self._config = objective, config
        noise = SumNoise.of(config, len(schema.columns))
        base = _base(objective, schema, mean if noise is None else 0.5, config.base_score)
        cuts = self._find_cuts(schema, base)
        block = block_of_bins(schema, cuts, config, np.empty((0, len(cuts)), dtype=np.uint8), self._context.threads)
        grown = config  # with the least hessian of a child that noise requires
        if noise is not None:
            grown = replace(config, min_child_weight=max(config.min_child_weight, noise.safe_weight(config.max_bin)))
        names = [info.name for info in schema.columns]
        constraints = of_columns(constraints_of(config), names)
        finder = SecaggFinder(self._ask, block, objective, grown, self._context.threads, constraints)
        metric = metric_of(objective, config)
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
            columns = sample_columns([block.layout.features], number, config)[0]
            start = finder.round(number, self._scale(number, finder), columns)
            trees += grow(finder, start, grown, np.empty((objective.trees_per_round, 0)))
            value = self._measure(number, finder, metric) if self._validates else None
            history.append(RoundResult.measured(number, time.perf_counter() - started, value, metric))
            if keeper is not None:
                share = full_model("secagg", schema, trees, base, SplitRecords.of(finder.rules), config)
                self._finished = share, tuple(history)
            if self._context.watcher is not None:
                self._context.watcher(history[-1])
        if config.early_stopping_rounds is not None:
            trees = trees[: (best_round(history, metric) + 1) * objective.trees_per_round]
        rules = {key: rule for key, rule in finder.rules.items() if key[0] < len(trees)}
        share = full_model("secagg", schema, trees, base, SplitRecords.of(rules), config)
        dropped: dict[PartyName, str] = {}
        self._send(to_message(share), Done, dropped)
        return TrainingOutcome(share, history, {}, dropped, metric.name if self._validates else None)

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
        self._ask(
            messages.SecaggGroup(schema.to_json(), self._names, np.stack(publics), evidence, weight_exponent), Done
        )
        return schema

    def _totals(self) -> tuple[int, float]:
        """Return the number of rows, and the weighted mean of their labels."""
        answers = self._ask(messages.TotalsRequest(), messages.MaskedTotals).values()
        rows = int(added([each.rows for each in answers])[0])
        weights, labels = _exactly([each.weights for each in answers]), _exactly([each.labels for each in answers])
        if rows < 2 or not weights > 0:
            raise EmptyTable("the participants together have fewer than two rows, or no row with a weight above 0")
        return rows, labels / weights

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
        self._ask(messages.CutsFound(np.concatenate(cuts).astype(np.float32), starts, base), Done)
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

    def _scale(self, number: int, finder: SecaggFinder) -> Scale:
        """Return the round's grid."""
        bounds = self._objective.bounds(1.0, _NO_BOUND, _NO_BOUND)
        if min(bounds) > 0:
            return choose_scale(*bounds, self._weight_bound, self._config.gradient_bits)
        # The loss gives no bound, so participants report that of this round's gradients.
        answers = self._ask(messages.ScaleRequest(*finder.take_unsent(), number), messages.ScaleAnswer).values()
        return Scale(min(each.g_exponent for each in answers), min(each.h_exponent for each in answers))

    def _measure(self, number: int, finder: SecaggFinder, metric: Metric) -> float:
        """Send the result of the round and return the metric on validation rows."""
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
        """Ask all participants, and add lost ones to `lost`. A restarted one is not lost: the job resumes with it."""
        requests, losses = dict.fromkeys(self._names, message), (PeerUnreachable, PeerBroken)
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


def _exactly(answers: list[UInt8Array]) -> float:
    """Return the sum of all participants' exact sums, in which masks cancel too."""
    if any(len(each) != SUM_BYTES for each in answers):
        raise MalformedMessage("an exact sum has the wrong size")
    try:
        return as_float(from_residue(sum(int.from_bytes(each.tobytes(), "little") for each in answers)))
    except OverflowError:
        raise MalformedMessage(_NO_TABLE) from None


def _base(objective: Objective, schema: Schema, mean: float, base_score: float | None) -> Float64Array:
    start = np.zeros(1) if schema.objective == "multiclass" else np.array([mean])
    return objective.base_margin(start, None, base_score)
