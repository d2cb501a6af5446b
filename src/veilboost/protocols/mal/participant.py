"""The participant of `mal`: finds the ranges with the others, randomizes its buckets, masks its labels."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from veilboost.boost.metrics import summed_metric_for
from veilboost.boost.objective import objective_of
from veilboost.crypto.csprng import JobRandomness, Pool
from veilboost.crypto.fingerprint import content_digest
from veilboost.crypto.ore.api import KEY_BYTES, SEALED_BYTES, OreKeys, read_value, seal_value, to_ordered
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.data.schema import check_labels
from veilboost.data.table import PartyTable
from veilboost.engine.api import blas_threads
from veilboost.errors import EmptyTable, InvalidParameter, MalformedMessage, UnexpectedMessage, UnsupportedCombination
from veilboost.model.joined import join
from veilboost.model.share import ModelShare
from veilboost.privacy.mechanism import gaussian
from veilboost.protocols.horizontal.full_model import TrainedModel, block_with_cuts, from_message, skeleton_of
from veilboost.protocols.horizontal.roles import ParticipantContext, ParticipantRole
from veilboost.protocols.horizontal.schema import Schema, describe, encoded_table
from veilboost.protocols.mal import messages, parameters
from veilboost.protocols.mal.masks import BucketSpace, guard_rows
from veilboost.types import Column, Float64Array, PartyName, UInt8Array
from veilboost.wire.channel import Reply
from veilboost.wire.message import Done, Message, encode


class MalParticipant(ParticipantRole):
    """Answers the server; over its own channels it sends extremes to the comparer and gets keys from the authority."""

    def __init__(self, context: ParticipantContext) -> None:
        self._context = context
        self._options = parameters.MalOptions.from_dict(context.config.options)
        self._schema = describe(context.table, context.config.objective)
        self._fit, self._held_out = context.table, None
        if context.held_out is not None and context.held_out.any():
            if context.held_out.all():
                raise EmptyTable("all rows are held out for validation", "lower the share of validation rows")
            self._fit, self._held_out = (context.table.take(rows) for rows in (~context.held_out, context.held_out))
            parameters.refuse_ranking(context.config)
        self._weights, self._weight_of = weight_classes(self._fit, self._schema, self._options.guard)
        numeric = [self._fit.columns[at] for at in parameters.numeric_columns(self._schema)]
        self._extremes = Extremes(numeric, self._options)
        self._keys: OreKeys | None = None
        self._answered: tuple[messages.RowsRequest, messages.MaskedRows] | None = None
        self._measured: tuple[bytes, messages.RoundMetrics] | None = None
        self._share: ModelShare | None = None
        self._report: Mapping[str, Any] = {}

    @property
    def share(self) -> ModelShare | None:
        return self._share

    @property
    def report(self) -> Mapping[str, Any]:
        return self._report

    def introduce(self) -> messages.MalColumns:
        return messages.MalColumns(self._schema.to_json(), self._held_out is not None)

    def handle(self, message: Message) -> Reply:
        if isinstance(message, messages.RowsRequest):
            return self._send_rows(message)
        if isinstance(message, messages.MetricsRequest):
            return self._measure(message)
        if isinstance(message, TrainedModel):
            return self._keep(message)
        raise UnexpectedMessage(f"{message.type_name()} is not a request to a participant")

    def _send_rows(self, request: messages.RowsRequest) -> Reply:
        """Send extremes to the comparer, and the rows when it has returned the ranges."""
        if self._answered is not None:
            if request != self._answered[0]:
                # Other ranges would give new noise on the same rows.
                raise UnexpectedMessage("rows were requested again with other terms")
            return self._answered[1]
        if self._context.party not in request.participants:
            raise UnexpectedMessage("rows were requested for a group without this participant")
        group = set(request.participants)
        if len(group) != len(request.participants) or not group <= set(self._context.participants):
            raise MalformedMessage("a participant is named twice, or is not one that the job names")
        if len(group) < self._options.least_participants:  # in a small group it is known whose the extremes are
            raise MalformedMessage(
                f"rows were requested for a group of {len(group)}, and the job needs {self._options.least_participants}"
            )
        schema = Schema.from_json(request.schema)
        if self._keys is None:
            self._keys = self._ask_for_keys()
        digest = content_digest(self._context.randomness, self._extremes.values)
        self._context.account.spend(parameters.extremes_event(digest.hex()))
        sent = self._extremes.encrypted(self._keys, self._context.randomness, request.participants)
        pending = self._context.helpers.send({"comparer": sent})["comparer"]
        return lambda: self._rows_once_compared(request, schema, pending())

    def _ask_for_keys(self) -> OreKeys:
        answer = self._context.helpers.ask({"authority": messages.KeysRequest()}, messages.SessionKeys)["authority"]
        if len(answer.master) != KEY_BYTES or len(answer.comparison) != KEY_BYTES:
            raise MalformedMessage("the authority's keys have the wrong size")
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
        columns, label = encoded_table(self._fit, schema)
        cuts = parameters.cuts_of(schema, ranges[:, 0], ranges[:, 1], config.max_bin)
        block = block_with_cuts(columns, len(label), cuts, schema.missing, config, context.threads)
        if block.layout.widest > parameters.MOST_SLOTS:
            raise UnsupportedCombination(
                f"a column has more than {parameters.MOST_SLOTS} categories", "group rare categories"
            )
        widths = block.layout.widths.astype(np.int64)
        buckets = block.shared_bins.bins[0]
        weights = () if self._weight_of is None else (self._weights, self._weight_of)
        content = content_digest(context.randomness, repr(options), widths, buckets, label, *weights)
        noisy = parameters.perturb(buckets, widths.tolist(), options.epsilon, context.randomness, content)
        with blas_threads(1):  # the matrices are too small for several threads
            guarded = guard_rows(noisy, widths, options.guard, options.max_leverage, self._weight_of)
            labels = _label_rows(schema, label)[:, guarded.kept]
            masks = self._masks(guarded.space, labels, content)
        columns_sent, release = enumerate(widths.tolist()), (content.hex(), self._fit.rows)
        events = [
            parameters.bucket_event(at, width, options.epsilon, *release) for at, width in columns_sent if width > 1
        ]
        sums = int(widths.sum()) * max(1, len(self._weights))
        events.append(parameters.label_event(*release, sums))
        if self._weight_of is not None:
            events.append(parameters.weight_event(*release))
        context.account.spend(*events)
        self._report = guarded.report()
        of = np.empty(0, dtype=np.uint8) if self._weight_of is None else self._weight_of[guarded.kept]
        return messages.MaskedRows(
            guarded.buckets, labels + masks, ranges[:, 0], ranges[:, 1], self._weights, of, json.dumps(self._report)
        )

    def _masks(self, space: BucketSpace, labels: Float64Array, content: bytes) -> Float64Array:
        """MAL Alg. 2, by projection: one mask per class."""
        size = self._options.mask_scale * max(float(labels.std()), 0.1)
        generator = self._context.randomness.for_request("mal", "masks", content)
        return np.stack([space.off(gaussian(generator, size, space.rows)) for _ in labels])

    def _measure(self, request: messages.MetricsRequest) -> messages.RoundMetrics:
        """Return the metric on the held-out rows after each round of one model: another would tell more of them."""
        if self._answered is None or self._share is not None:
            raise UnexpectedMessage("metrics were requested before rows, or after the end of training")
        digest = hashlib.sha256(encode(request)).digest()
        if self._measured is not None:
            if digest != self._measured[0]:
                raise UnexpectedMessage("the metrics of a second model were requested")
            return self._measured[1]
        share, config = from_message(request), self._context.config
        schema = Schema.from_json(self._answered[0].schema)
        skeleton = skeleton_of(share)
        rounds, rest = divmod(len(skeleton.trees), schema.trees_per_round)
        if rest or skeleton.trees_per_round != schema.trees_per_round or not 0 < rounds <= config.n_estimators:
            raise MalformedMessage("the model to measure has other trees than the job")
        if share.columns != schema.columns or skeleton.objective != schema.objective:
            raise MalformedMessage("the model to measure has other columns or another loss than the job")
        weight, terms = 0.0, np.zeros(rounds)
        if self._held_out is not None:
            columns, label = encoded_table(self._held_out, schema)
            objective = objective_of(schema.objective, config, max(2, schema.kinds))
            of_row = cast(Any, summed_metric_for(objective, config).terms)
            weights = np.ones(len(label)) if self._held_out.weight is None else self._held_out.weight
            account, content = self._context.account, content_digest(self._context.randomness, label, weights, digest)
            account.begin("metric of validation rows", skeleton.trees_per_round)  # limits how often, also over restarts
            account.spend(parameters.metric_event(config.n_estimators, content.hex(), len(label)))
            weight = float(weights.sum())
            margins = join({share.party: share}).staged_margins({share.party: columns})
            terms = np.array([float(of_row(label, objective.predict(margin)) @ weights) for margin in margins])
        self._measured = digest, messages.RoundMetrics(weight, terms)
        return self._measured[1]

    def _keep(self, message: TrainedModel) -> Done:
        if self._answered is None:
            raise UnexpectedMessage("a model arrived before rows were requested")
        self._share = from_message(message)
        return Done()


def weight_classes(table: PartyTable, schema: Schema, guard: str) -> tuple[Float64Array, UInt8Array | None]:
    """Return the distinct sample weights, and the place of each row's own among them.

    The server receives both, so there may be few, and none of them may tell a label.
    """
    if table.weight is None or table.label is None:
        return np.empty(0), None
    weights, of = np.unique(table.weight, return_inverse=True)
    if len(weights) > parameters.MOST_WEIGHTS:
        raise UnsupportedCombination(
            f"there are {len(weights)} different sample weights, and mal, which sums labels apart for each, supports "
            f"{parameters.MOST_WEIGHTS}",
            f"round the weights to at most {parameters.MOST_WEIGHTS} values, or use secagg",
        )
    if guard != "allow" and np.ptp(table.label) > 0:
        alone = sum(bool(np.ptp(table.label[of == at]) == 0) for at in range(len(weights)))
        if alone:
            raise UnsupportedCombination(
                f"all rows with {alone} of the sample weights have the same label, so the server would learn it",
                "remove weights that depend on the label (class_weight), or use secagg",
            )
    return weights, of.astype(np.uint8)


def _label_rows(schema: Schema, label: Float64Array) -> Float64Array:
    """Return labels for sums: numbers (1, rows), or one row of zeros and ones per class."""
    if schema.objective != "multiclass":
        if schema.objective == "binary" and not np.isin(label, (0.0, 1.0)).all():
            raise MalformedMessage("the job needs labels 0 and 1, but this participant has others")
        return label[None, :]
    check_labels(np.arange(schema.kinds, dtype=np.float64), "multiclass")
    return (label[None, :] == np.arange(schema.kinds)[:, None]).astype(np.float64)


class Extremes:
    """Lowest and highest values of numeric columns, encrypted for comparison and for other participants.

    Columns without a value have NaN.
    """

    def __init__(self, columns: Sequence[Column], options: parameters.MalOptions) -> None:
        self._options = options
        self._scheme = scheme_named(options.ore, options.ore_bits)
        self.values = np.full((len(columns), 2), np.nan)
        for at, column in enumerate(columns):
            present = column.values[~np.isnan(column.values)]
            if len(present):
                self.values[at] = float(present.min()), float(present.max())
        self._present = ~np.isnan(self.values[:, 0])
        if bool((np.abs(self.values[self._present]) > options.largest).any()):
            raise InvalidParameter(
                f"the absolute value of a number exceeds the agreed bound (largest={options.largest:g})",
                "correct the value, or agree on a larger value of the option largest",
            )

    def encrypted(
        self, keys: OreKeys, randomness: JobRandomness, participants: tuple[PartyName, ...]
    ) -> messages.EncryptedExtremes:
        """Return the encrypted extremes: the same ciphertexts for every request and every group."""
        count = len(self.values)
        ciphertexts = np.zeros((count, 2, self._scheme.size), dtype=np.uint8)
        sealed = np.zeros((count, 2, SEALED_BYTES), dtype=np.uint8)
        random = Pool(randomness.for_request("mal", "extremes", keys.master, self.values.tobytes()))
        for at in np.flatnonzero(self._present).tolist():
            for end, value in enumerate(self.values[at].tolist()):
                own = keys.for_purpose(at, messages.EXTREMES[end])
                ciphertexts[at, end] = np.frombuffer(self._scheme.encrypt(own, self._ordered(value), random), np.uint8)
                sealed[at, end] = np.frombuffer(seal_value(own, value, random), np.uint8)
        return messages.EncryptedExtremes(ciphertexts, sealed, self._present.astype(np.uint8), participants)

    def within(self, keys: OreKeys, answer: messages.GlobalExtremes) -> Float64Array:
        """Return the global extremes, (columns, 2), which must enclose this participant's own.

        The comparer cannot encrypt a value: it can only return that of a wrong participant, which a participant with a
        more extreme value detects.
        """
        shape = (*self.values.shape, SEALED_BYTES)
        if answer.values.shape != shape or answer.present.shape != self._present.shape:
            raise MalformedMessage("the comparer answered for other columns")
        found = np.full(self.values.shape, np.nan)
        for at in np.flatnonzero(answer.present).tolist():
            for end in range(2):
                sealed = answer.values[at, end].tobytes()
                found[at, end] = read_value(keys.for_purpose(at, messages.EXTREMES[end]), sealed)
        for at in np.flatnonzero(self._present | (answer.present != 0)).tolist():
            self._check(found[at].tolist(), self.values[at].tolist() if self._present[at] else None)
        return found

    def _check(self, found: list[float], own: list[float] | None) -> None:
        inconsistent = MalformedMessage(
            "the comparer's answer contradicts this participant's own values",
            "stop the job and contact the operator of the comparer",
        )
        if any(math.isnan(value) for value in found):
            raise inconsistent
        low, high = (self._ordered(value) for value in found)
        if low > high or (own is not None and (self._ordered(own[0]) < low or self._ordered(own[1]) > high)):
            raise inconsistent
        if max(abs(value) for value in found) > self._options.largest:
            raise InvalidParameter(
                f"an extreme of another participant exceeds the agreed bound (largest={self._options.largest:g})",
                "ask the participants to check their values, or agree on a larger value of the option largest",
            )

    def _ordered(self, value: float) -> int:
        return to_ordered(value) >> (64 - self._options.ore_bits)
