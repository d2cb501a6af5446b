"""A participant of `mal`: finds the ranges with the others, buckets and perturbs its rows, masks its labels."""

from __future__ import annotations

import json

import numpy as np

from veilboost.crypto.fingerprint import content_digest
from veilboost.crypto.ore.api import KEY_BYTES, OreKeys
from veilboost.data.schema import check_labels
from veilboost.engine.api import blas_threads
from veilboost.errors import MalformedMessage, UnexpectedMessage, UnsupportedCombination
from veilboost.model.part import Part
from veilboost.privacy.mechanism import gaussian
from veilboost.protocols.horizontal.roles import ParticipantContext, ParticipantSide
from veilboost.protocols.horizontal.schema import Schema, describe, table_in_terms_of
from veilboost.protocols.horizontal.whole import TrainedModel, block_with_cuts, from_message
from veilboost.protocols.mal import messages
from veilboost.protocols.mal.accounting import extremes_event, perturb, spend_rows
from veilboost.protocols.mal.extremes import Extremes, cuts_of, numeric_columns
from veilboost.protocols.mal.masks import BucketSpace, guard_rows
from veilboost.protocols.mal.options import MOST_SLOTS, MalOptions
from veilboost.types import Float64Array
from veilboost.wire.channel import Reply
from veilboost.wire.message import Done, Message


class MalParticipant(ParticipantSide):
    """Answers the server; asks the authority and the comparer by its own channels.

    Two exchanges carry data: extremes to the comparer and the ranges back, rows to the server and the model back.
    """

    def __init__(self, context: ParticipantContext) -> None:
        if context.table.weight is not None:
            raise UnsupportedCombination("mal takes every row alike", "leave sample weights out")
        if context.held_out is not None:
            raise UnsupportedCombination("mal has no validation rows", "leave them out, or use secagg")
        self._context = context
        self._options = MalOptions.from_dict(context.config.options)
        self._schema = describe(context.table, context.config.objective)
        numeric = [context.table.columns[at] for at in numeric_columns(self._schema)]
        self._extremes = Extremes(numeric, self._options)
        self._keys: OreKeys | None = None
        self._answered: tuple[messages.RowsRequest, messages.MaskedRows] | None = None
        self._part: Part | None = None

    @property
    def part(self) -> Part | None:
        return self._part

    def introduce(self) -> messages.MalColumns:
        return messages.MalColumns(self._schema.to_json())

    def handle(self, message: Message) -> Reply:
        if isinstance(message, messages.RowsRequest):
            return self._send_rows(message)
        if isinstance(message, TrainedModel):
            return self._keep(message)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a participant")

    def _send_rows(self, request: messages.RowsRequest) -> Reply:
        """Extremes to the comparer; when all have sent theirs and the ranges are back, the rows."""
        if self._answered is not None:
            if request != self._answered[0]:
                # Other ranges would be other noise about the same rows.
                raise UnexpectedMessage("rows are asked for again, in other terms")
            return self._answered[1]
        if self._context.party not in request.participants:
            raise UnexpectedMessage("rows are asked for a job without this participant")
        if len(set(request.participants)) != len(request.participants):
            raise MalformedMessage("a participant is named twice")
        schema = Schema.from_json(request.schema)
        if self._keys is None:
            self._keys = self._ask_for_keys()
        shown = content_digest(self._context.randomness, self._extremes.values)
        self._context.account.spend(extremes_event(shown.hex()))
        sent = self._extremes.encrypted(self._keys, self._context.randomness, request.participants)
        pending = self._context.helpers.send({"comparer": sent})["comparer"]
        return lambda: self._rows_once_compared(request, schema, pending())

    def _ask_for_keys(self) -> OreKeys:
        answer = self._context.helpers.ask({"authority": messages.KeysRequest()}, messages.SessionKeys)["authority"]
        if len(answer.master) != KEY_BYTES or len(answer.comparison) != KEY_BYTES:
            raise MalformedMessage("the authority's keys have another size")
        return OreKeys(answer.master.tobytes(), answer.comparison.tobytes())

    def _rows_once_compared(self, request: messages.RowsRequest, schema: Schema, answer: Message) -> Message:
        if isinstance(answer, messages.ExtremesMissing):
            return messages.RowsHeldBack(answer.missing)
        if not isinstance(answer, messages.GlobalExtremes) or self._keys is None:
            raise UnexpectedMessage(f"the comparer answered {answer.type_name()}")
        rows = self._masked(schema, self._extremes.within(self._keys, answer))
        self._answered = request, rows
        return rows

    def _masked(self, schema: Schema, ranges: Float64Array) -> messages.MaskedRows:
        config, options, context = self._context.config, self._options, self._context
        columns, label = table_in_terms_of(context.table, schema)
        cuts = cuts_of(schema, ranges[:, 0], ranges[:, 1], config.max_bin)
        block = block_with_cuts(columns, len(label), cuts, schema.missing, config, context.threads)
        if block.layout.widest > MOST_SLOTS:
            raise UnsupportedCombination(f"a column has more than {MOST_SLOTS} categories", "group rare categories")
        widths = block.layout.widths.astype(np.int64)
        buckets = block.shared_bins.bins[0]
        content = content_digest(context.randomness, repr(options), widths, buckets, label)
        noisy = perturb(buckets, widths.tolist(), options.epsilon, context.randomness, content)
        with blas_threads(1):  # the matrices are small: threads would only wait for each other
            guarded = guard_rows(noisy, widths, options.guard, options.max_leverage)
            labels = _label_rows(schema, label)[:, guarded.kept]
            masks = self._masks(guarded.space, labels, content)
        spend_rows(context.account, widths.tolist(), options.epsilon, content.hex(), context.table.rows)
        return messages.MaskedRows(
            guarded.buckets, labels + masks, ranges[:, 0], ranges[:, 1], json.dumps(guarded.report())
        )

    def _masks(self, space: BucketSpace, labels: Float64Array, content: bytes) -> Float64Array:
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
