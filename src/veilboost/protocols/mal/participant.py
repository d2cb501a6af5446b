"""A participant of `mal`: finds the ranges with the others, buckets and perturbs its rows, masks its labels."""

from __future__ import annotations

import hashlib
import json
from typing import cast

import numpy as np
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from veilboost.boost.stumps import bins_of
from veilboost.config import TrainingConfig
from veilboost.crypto.ore.api import KEY_BYTES, OreKeys
from veilboost.data.schema import check_labels
from veilboost.errors import MalformedMessage, UnexpectedMessage, UnsupportedCombination
from veilboost.model.part import Part
from veilboost.privacy.mechanism import gaussian
from veilboost.protocols.common.schema import Schema, describe, table_in_terms_of
from veilboost.protocols.common.whole import TrainedModel, block_with_cuts, from_message
from veilboost.protocols.horizontal import ParticipantContext, ParticipantSide, read_config
from veilboost.protocols.mal.accounting import perturb, spend
from veilboost.protocols.mal.extremes import Extremes
from veilboost.protocols.mal.masks import BucketSpace, guard_rows
from veilboost.protocols.mal.messages import (
    ExtremesRequest,
    GlobalExtremes,
    KeysRequest,
    MalBegin,
    MalColumns,
    MaskedRows,
    RowsRequest,
    SessionKeys,
)
from veilboost.protocols.mal.options import MOST_SLOTS, MalOptions, refuse
from veilboost.protocols.mal.ranges import cuts_of, numeric_columns
from veilboost.types import Float64Array
from veilboost.wire.message import Done, Message


class MalParticipant(ParticipantSide):
    """Answers the server; asks the authority and the comparer by its own channels."""

    def __init__(self, context: ParticipantContext) -> None:
        if context.table.weight is not None:
            raise UnsupportedCombination("mal takes every row alike", "leave sample weights out")
        self._context = context
        self._config: TrainingConfig | None = None
        self._answered: tuple[RowsRequest, MaskedRows] | None = None
        self._part: Part | None = None

    @property
    def part(self) -> Part | None:
        return self._part

    def handle(self, message: Message) -> Message:
        if isinstance(message, MalBegin):
            return self._begin(message)
        if isinstance(message, RowsRequest):
            return self._send_rows(message)
        if isinstance(message, TrainedModel):
            return self._keep(message)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a participant")

    def _begin(self, message: MalBegin) -> MalColumns:
        config = read_config(message.config, self._context.agreed)
        if self._config is not None and config != self._config:
            raise UnexpectedMessage("the job has begun with other parameters")
        refuse(config)
        schema = describe(self._context.table, config.objective)
        options = MalOptions.from_dict(config.options)
        extremes = Extremes([self._context.table.columns[at] for at in numeric_columns(schema)], options)
        if self._config is None:
            self._submit(extremes)
        self._config, self._options, self._extremes = config, options, extremes
        return MalColumns(schema.to_json())

    def _submit(self, extremes: Extremes) -> None:
        answer = self._context.helpers.ask({"authority": KeysRequest()}, SessionKeys)["authority"]
        if len(answer.master) != KEY_BYTES or len(answer.comparison) != KEY_BYTES:
            raise MalformedMessage("the authority's keys have another size")
        self._keys = OreKeys(answer.master.tobytes(), answer.comparison.tobytes())
        message = extremes.encrypted(self._keys, self._context.randomness)
        self._context.helpers.ask({"comparer": message}, Done)

    def _send_rows(self, request: RowsRequest) -> MaskedRows:
        if self._config is None:
            raise UnexpectedMessage("rows are asked for before the job has begun")
        if self._answered is not None:
            if request != self._answered[0]:
                # Other ranges would be other noise about the same rows.
                raise UnexpectedMessage("rows are asked for again, in other terms")
            return self._answered[1]
        if self._context.party not in request.participants:
            raise UnexpectedMessage("rows are asked for a job without this participant")
        schema = Schema.from_json(request.schema)
        ask = ExtremesRequest(request.participants)
        answer = self._context.helpers.ask({"comparer": ask}, GlobalExtremes)["comparer"]
        ranges = self._extremes.within(self._keys, answer)
        rows = self._masked(schema, ranges)
        self._answered = request, rows
        return rows

    def _masked(self, schema: Schema, ranges: Float64Array) -> MaskedRows:
        config, options, context = cast(TrainingConfig, self._config), self._options, self._context
        columns, label = table_in_terms_of(context.table, schema)
        cuts = cuts_of(schema, ranges[:, 0], ranges[:, 1], config.max_bin)
        block = block_with_cuts(columns, len(label), cuts, schema.missing, config, context.threads)
        if block.layout.widest > MOST_SLOTS:
            raise UnsupportedCombination(f"a column has more than {MOST_SLOTS} categories", "group rare categories")
        widths = block.layout.widths.astype(np.int64)
        content = hashlib.sha256(schema.to_json().encode() + ranges.tobytes()).hexdigest()
        noisy = perturb(bins_of(block).bins[0], widths.tolist(), options.epsilon, context.randomness, content)
        with threadpool_limits(1):  # the matrices are small: threads would only wait for each other
            guarded = guard_rows(noisy, widths, options.guard, options.max_leverage)
            labels = _label_rows(schema, label)[:, guarded.kept]
            masks = self._masks(guarded.space, labels, content)
        spend(context.account, widths.tolist(), options.epsilon, content)
        return MaskedRows(guarded.buckets, labels + masks, ranges[:, 0], ranges[:, 1], json.dumps(guarded.report()))

    def _masks(self, space: BucketSpace, labels: Float64Array, content: str) -> Float64Array:
        """MAL Alg. 2, by projection: one mask per class."""
        size = self._options.mask_scale * max(float(labels.std()), 0.1)
        generator = self._context.randomness.for_request("mal", "masks", content)
        return np.stack([space.off(gaussian(generator, size, space.rows)) for _ in labels])

    def _keep(self, message: TrainedModel) -> Done:
        if self._answered is None:
            raise UnexpectedMessage("a model came before rows were asked for")
        self._part = from_message(message)
        return Done()


def _label_rows(schema: Schema, label: Float64Array) -> Float64Array:
    """Labels as sums need them: numbers (1, rows), or one row of zeros and ones per class."""
    if schema.objective != "multiclass":
        if schema.objective == "binary" and not np.isin(label, (0.0, 1.0)).all():
            raise MalformedMessage("the job takes labels for 0 and 1 that are not")
        return label[None, :]
    check_labels(np.arange(schema.kinds, dtype=np.float64), "multiclass")
    return (label[None, :] == np.arange(schema.kinds)[:, None]).astype(np.float64)
