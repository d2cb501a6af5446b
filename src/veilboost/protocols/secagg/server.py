"""The server of `secagg`: finds cuts from summed counts and grows trees from summed histograms."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from veilboost.boost.bins import Counts, Keys, cuts_by_counting
from veilboost.boost.booster import RoundResult, sample_columns
from veilboost.boost.columns import category_cuts
from veilboost.boost.grower import Tree, grow
from veilboost.boost.objective import Objective, objective_of
from veilboost.crypto.pairwise import KEY_BYTES
from veilboost.errors import EmptyTable, InvalidParameter, MalformedMessage, PeerUnreachable
from veilboost.fixedpoint import MAX_BITS, Scale, choose_scale
from veilboost.model.share import SplitRecords, TrainingOutcome
from veilboost.protocols.horizontal.full_model import bare_block, make_whole, to_message
from veilboost.protocols.horizontal.roles import ServerContext, ServerRole, ask_those_there, introduction
from veilboost.protocols.horizontal.schema import Schema, unify
from veilboost.protocols.secagg import messages
from veilboost.protocols.secagg.finder import SecaggFinder, added
from veilboost.protocols.secagg.shared import SUM_BYTES, as_float, from_residue, metric_of, most_values
from veilboost.types import Float32Array, Float64Array, PartyName, UInt8Array
from veilboost.wire.message import Done, Message

_NO_BOUND = np.zeros((1, 1))


class SecaggServer(ServerRole):
    """Asks all participants the same and adds their answers up. Masks cancel only if every one answers."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._names = context.participants.names
        self._step = 0

    def train(self) -> TrainingOutcome:
        config = self._context.config
        schema = self._form_group()
        rows, mean = self._totals()
        objective = objective_of(schema.objective, config, max(2, schema.kinds))
        self._objective, self._config = objective, config
        base = _base(objective, schema, mean, config.base_score)
        cuts = self._find_cuts(schema, base)
        block = bare_block(schema, cuts, config, np.empty((0, len(cuts)), dtype=np.uint8), self._context.threads)
        finder = SecaggFinder(self._ask, block, objective, config, self._context.threads)
        trees: list[Tree] = []
        history: list[RoundResult] = []
        for number in range(config.n_estimators):
            began = time.perf_counter()
            columns = sample_columns([block.layout.features], number, config)[0]
            start = finder.round(number, self._scale(number, finder), columns)
            trees += grow(finder, start, config, np.empty((objective.trees_per_round, 0)))
            value = self._measure(number, finder) if self._watches else None
            history.append(RoundResult(number, time.perf_counter() - began, value))
            if self._context.watcher is not None:
                self._context.watcher(history[-1])
            patience = config.early_stopping_rounds
            if patience is not None and number - _best_round(history) >= patience:
                break
        if config.early_stopping_rounds is not None:
            trees = trees[: (_best_round(history) + 1) * objective.trees_per_round]
        rules = {key: rule for key, rule in finder.rules.items() if key[0] < len(trees)}
        share = make_whole("secagg", schema, trees, base, SplitRecords.of(rules), config)
        dropped: dict[PartyName, str] = {}
        ask_those_there(self._context.participants, dict.fromkeys(self._names, to_message(share)), dropped, Done)
        reports = {name: {"rows of all": rows} for name in self._names}
        metric = metric_of(objective, config).name if self._watches else None
        return TrainingOutcome(share, history, reports, dropped, metric)

    # --- the job opens ----------------------------------------------------------------------------------

    def _form_group(self) -> Schema:
        if len(self._names) < 2:
            raise InvalidParameter("secure sums need two participants at least", "name more participants")
        config = self._context.config
        told = [introduction(self._context.introductions[name], messages.SecaggColumns, name) for name in self._names]
        schemas = {name: Schema.from_json(each.schema) for name, each in zip(self._names, told, strict=True)}
        schema = unify(schemas, config.objective)
        publics = [each.public for each in told]
        if any(len(public) != KEY_BYTES for public in publics):
            raise MalformedMessage("a public key has another size")
        self._watches = any(each.watches for each in told)
        if config.early_stopping_rounds is not None and not self._watches:
            raise InvalidParameter("early_stopping_rounds needs validation rows, and no participant keeps any")
        evidence = tuple(each.evidence for each in told)
        weight_exponent = max(each.weight_exponent for each in told)
        self._weight_bound = math.ldexp(1.0, min(max(weight_exponent, 0), MAX_BITS))
        self._ask(
            messages.SecaggGroup(schema.to_json(), self._names, np.stack(publics), evidence, weight_exponent), Done
        )
        return schema

    def _totals(self) -> tuple[int, float]:
        """How many rows there are, and the weighted mean of their labels."""
        answers = self._ask(messages.TotalsRequest(), messages.MaskedTotals).values()
        rows = int(added([each.rows for each in answers])[0])
        weights, labels = _exactly([each.weights for each in answers]), _exactly([each.labels for each in answers])
        if rows < 2 or not weights > 0:
            raise EmptyTable("the participants have fewer than two rows together, or none with a weight")
        return rows, labels / weights

    def _find_cuts(self, schema: Schema, base: Float64Array) -> list[Float32Array]:
        config = self._config
        numeric = [info.categories is None or config.categories == "ordinal" for info in schema.columns]
        points = most_values(config.max_bin)
        found = iter(cuts_by_counting(sum(numeric), config.max_bin, config.binning, points, self._count))
        cuts = [
            next(found) if is_number else category_cuts(len(info.categories or ()))
            for info, is_number in zip(schema.columns, numeric, strict=True)
        ]
        starts = np.concatenate(([0], np.cumsum([len(each) for each in cuts]))).astype(np.int32)
        self._ask(messages.CutsFound(np.concatenate(cuts).astype(np.float32), starts, base), Done)
        return cuts

    def _count(self, asked: Keys) -> Counts:
        """Ask of all columns at once; shorter lists are filled up with a key that is above all values."""
        self._step += 1
        values = np.full((len(asked), max(len(keys) for keys in asked)), np.iinfo(np.uint32).max, dtype=np.uint32)
        for row, keys in zip(values, asked, strict=True):
            row[: len(keys)] = keys
        answers = self._ask(messages.CountsRequest(self._step, values), messages.MaskedCounts).values()
        counts = added([each.counts for each in answers])
        return [row[: len(keys)] for row, keys in zip(counts, asked, strict=True)]

    # --- rounds -----------------------------------------------------------------------------------------

    def _scale(self, number: int, finder: SecaggFinder) -> Scale:
        """The round's grid."""
        bounds = self._objective.bounds(1.0, _NO_BOUND, _NO_BOUND)
        if min(bounds) > 0:
            return choose_scale(*bounds, self._weight_bound, self._config.gradient_bits)
        # Nothing but this round's gradients bounds them.
        answers = self._ask(messages.ScaleRequest(*finder.take_unsent(), number), messages.ScaleAnswer).values()
        return Scale(min(each.g_exponent for each in answers), min(each.h_exponent for each in answers))

    def _measure(self, number: int, finder: SecaggFinder) -> float:
        """The metric on validation rows, after they are told how the round ended."""
        answers = self._ask(messages.MetricRequest(*finder.take_unsent(), number), messages.MaskedMetric).values()
        weights, terms = _exactly([each.weights for each in answers]), _exactly([each.terms for each in answers])
        mean = terms / weights if weights > 0 else math.nan
        return math.sqrt(mean) if metric_of(self._objective, self._config).root else mean

    def _ask(self, message: Message, kind: type[Any]) -> Mapping[PartyName, Any]:
        lost: dict[PartyName, str] = {}
        answers = ask_those_there(self._context.participants, dict.fromkeys(self._names, message), lost, kind)
        if lost:
            raise PeerUnreachable(
                f"{' and '.join(lost)} was lost, and the masks of the others do not cancel without it "
                f"({'; '.join(lost.values())})",
                "start the job again under another name, with the participants that are there; it cannot be resumed",
            )
        return answers


def _exactly(answers: list[UInt8Array]) -> float:
    """The sum of all participants' exact sums: masks cancel here too."""
    if any(len(each) != SUM_BYTES for each in answers):
        raise MalformedMessage("an exact sum has another size")
    return as_float(from_residue(sum(int.from_bytes(each.tobytes(), "little") for each in answers)))


def _best_round(history: list[RoundResult]) -> int:
    """The first round with the least value on validation rows: all metrics that are means are better when low."""
    values = [
        math.inf if each.validation is None or math.isnan(each.validation) else each.validation for each in history
    ]
    return values.index(min(values))


def _base(objective: Objective, schema: Schema, mean: float, base_score: float | None) -> Float64Array:
    start = np.zeros(1) if schema.objective == "multiclass" else np.array([mean])
    return objective.base_margin(start, None, base_score)
