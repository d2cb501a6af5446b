"""Reusable masks at a passive party: sends the masks of its bins once, and sums the rows of encrypted vectors."""

from __future__ import annotations

from functools import partial

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import DEGREE, FAMILIES, SEED_BYTES
from veilboost.crypto.lattice.masks import MaskSizes, add_rows, answer, least_flood, make_masks
from veilboost.engine.shard_ops import added
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE, MOST_MASKS, Asked, Noise, PassiveLayout, slots_of
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, Int8Array, Int32Array, UInt8Array, UInt64Array
from veilboost.wire.message import Message


class MaskedAnswers(PassiveLayout):
    """Answers vectors of all rows, or only those of roots. Masks are drawn once per session, before the first round."""

    handles = (messages.MasksRequest, messages.VectorRequest)
    only_roots: bool = False

    def __init__(self, context: PassiveContext, noise: Noise | None) -> None:
        super().__init__(context, noise)
        self.sizes: MaskSizes | None = None  # known from the first request for masks on
        self._seed, self._filled = b"", 0

    def other(self, message: Message, state: RoundState | None) -> messages.BinMasks:
        if not isinstance(message, messages.MasksRequest) or state is not None:
            raise UnexpectedMessage("masks were requested after the first round began")
        layout, rows, sizes = self.job.block.layout, self.context.rows, MaskSizes(message.log_flood, message.sum_bits)
        if not sizes.valid() or sizes.log_flood < least_flood(rows, layout.slots, layout.features):
            raise MalformedMessage("the scale of the values leaves no room to flood the sums")
        if len(message.seed) != SEED_BYTES:
            raise MalformedMessage("a seed has the wrong size")
        if layout.slots * sizes.slot_bytes > MOST_MASKS:
            raise MalformedMessage("masks were requested for more bins than a job may reuse them for")
        if self.job.config.proposal == "local" or self.job.block.shared is None:
            raise MalformedMessage("masks were requested for bins that change")
        if message.first == 0 and self.sizes is None:
            self.sizes, self._seed = sizes, message.seed.tobytes()
            self._secret = Csprng().bytes(SEED_BYTES)  # for one table of bins under one seed
            self._hiding: Int8Array = np.empty((layout.slots, DEGREE), dtype=np.int8)
        if (sizes, message.seed.tobytes(), message.first) != (self.sizes, self._seed, self._filled):
            raise UnexpectedMessage("the masks were sent before, or are requested out of order")
        first = self._filled
        count = min(layout.slots - first, max(1, BYTES_AT_ONCE // sizes.slot_bytes))
        if not count:
            raise UnexpectedMessage("there are no more masks to send")
        make = partial(make_masks, self._seed, sizes, layout.offsets, first, count, self._secret, self.context.threads)
        everywhere = RowGroups.root(self.job.block.all_rows(), 1)
        masks, hiding = next(everywhere.together([0, rows], self.job.block.shared.bins, lambda _: make))
        self._hiding[first : first + count], self._filled = hiding, first + count
        return messages.BinMasks(masks)

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> messages.VectorSums:
        sizes, rows, layout = self.sizes, self.context.rows, state.block.layout
        if not isinstance(message, messages.VectorRequest) or sizes is None or self._filled < len(self._hiding):
            raise UnexpectedMessage("encrypted vectors arrived before the masks were sent")
        if self.only_roots and state.depth:
            raise UnexpectedMessage("encrypted vectors of nodes below the root arrived")
        shapes = (rows, FAMILIES * sizes.width), (FAMILIES, DEGREE, sizes.width), (SEED_BYTES,)
        if any(
            found.shape != (build.nodes, *shape)
            for found, shape in zip((message.numbers, message.parts, message.nonces), shapes, strict=True)
        ):
            raise MalformedMessage("the ciphertexts are of another number of rows")
        more = None
        if self.noise is not None:
            content = message.numbers, message.parts, sizes.log_delta, sizes.bits
            more = self.noise(Asked(content, build.nodes, sizes.largest_sum), state)
        slots = slots_of(self.job.block.layout, state.columns)
        everywhere = RowGroups.root(self.job.block.all_rows(), 1)
        found = np.empty((build.nodes, FAMILIES, layout.slots), dtype=np.uint64)
        for node, (dense, part) in enumerate(zip(message.numbers, message.parts, strict=True)):
            sums = everywhere.folded(partial(_sums, layout.offsets), [dense, *state.bins.bins], added)
            found[node] = answer(
                sums,
                part,
                slots,
                self._hiding,
                sizes,
                Csprng().bytes(SEED_BYTES),
                self.context.threads,
                None if more is None else more[node],
            )
        return messages.VectorSums(found)


def _sums(offsets: Int32Array, rows: RowGroups, dense: UInt8Array, bins: AnyArray) -> UInt64Array:
    return add_rows(dense, bins, offsets)
