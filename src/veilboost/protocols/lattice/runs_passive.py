"""Runs of rows at a passive party: multiplies ciphertexts by its bins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import (
    FAMILIES,
    SEED_BYTES,
    Blocks,
    Ciphertext,
    EncryptedSums,
    PublicKey,
    Sizes,
    span_seed,
)
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.layouts import Asked, Noise, PassiveLayout
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array
from veilboost.wire.message import Message, own_pages

_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_BYTES = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True)
class Incoming:
    """Validated ciphertexts of a level: those of the spans `first` to `last`, with the seed of all spans."""

    ciphertext: Ciphertext
    rows: RowGroups
    blocks: Blocks
    node: Int32Array
    sizes: Sizes
    first: int
    last: int


class AnswersInRuns(PassiveLayout):
    """Answers levels in runs; if it `streams`, every message with some of a level's ciphertexts.

    `noise_bits` of a sum are reserved for noise.
    """

    handles = (messages.LatticeRequest, messages.LatticeMore)

    def __init__(self, context: PassiveContext, noise: Noise | None, streams: bool, noise_bits: int) -> None:
        super().__init__(context, noise)
        self._streams, self._noise_bits = streams, noise_bits
        self._key: PublicKey | None = None
        self._incoming: Incoming | None = None

    def open_round(self, message: BeginRound) -> None:
        """Read the public key, which comes with the first round."""
        if not isinstance(message, messages.LatticeRound):
            raise UnexpectedMessage("a round of another protocol")
        seed = message.key_seed.tobytes()
        if self._key is None or seed or len(message.key):
            self._key = PublicKey(seed, message.key)
        self._incoming = None

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> messages.LatticeSums:
        return self._answered(self._checked(message, state, build), state)

    def other(self, message: Message, state: RoundState | None) -> Message:
        if not isinstance(message, messages.LatticeMore):
            raise UnexpectedMessage("a message of another layout")
        old = self._incoming
        if state is None or old is None or old.last == len(old.blocks.spans()):
            raise UnexpectedMessage("ciphertexts arrived although none were missing")
        last = self._last_span(old.blocks, old.last, message.ciphertext)
        ciphertext = Ciphertext(old.ciphertext.seed, message.ciphertext)
        return self._answered(replace(old, ciphertext=ciphertext, first=old.last, last=last), state)

    def _answered(self, incoming: Incoming, state: RoundState) -> messages.LatticeSums:
        sums = self._sums(incoming, state)
        if self._streams:  # more may follow; the summed ciphertexts are not kept
            self._incoming = replace(incoming, ciphertext=Ciphertext(incoming.ciphertext.seed, _NO_BYTES))
        return sums

    def _checked(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> Incoming:
        if not isinstance(message, messages.LatticeRequest):
            raise UnexpectedMessage("a request of another protocol")
        layout, rows, sizes = state.block.layout, self.context.rows, Sizes.of_scale(message.log_delta)
        # Sums of few rows reveal more, so public bounds and not the request determine the blocks of a node.
        bits = messages.value_bits(self.job.config, self.job.weight_bits) + self._noise_bits
        fits = sizes.log_flood >= 0 and sizes.has_room(rows, bits)
        if not fits or not sizes.hides(rows, bits, layout.slots, layout.features):
            raise MalformedMessage("the scale of the values leaves no room to flood the sums")
        node, count = messages.cut_into_blocks(build, rows, sizes.rows_per_block(bits))
        if len(message.run) != len(node):
            raise MalformedMessage("the ciphertexts are of other blocks of rows")
        end = count.cumsum()
        blocks = Blocks(_NO_ROWS, end - count, end, message.run)
        blocks.check()
        if len(message.seed) != SEED_BYTES:
            raise MalformedMessage("a seed has the wrong size")
        ciphertext = Ciphertext(message.seed.tobytes(), message.ciphertext)
        last = self._last_span(blocks, 0, message.ciphertext)
        return Incoming(ciphertext, build, blocks, node, sizes, 0, last)

    def _last_span(self, blocks: Blocks, first: int, ciphertext: UInt8Array) -> int:
        """The end of the spans in a message: that of all spans, unless they stream."""
        spans, left = blocks.spans(), len(ciphertext)
        last = first
        while last < len(spans) and (left or not self._streams or last == first):
            left -= blocks.at(spans[last], _NO_ROWS).ciphertext_bytes()
            last += 1
        if left:
            raise MalformedMessage("the ciphertexts are of another number of rows")
        return last

    def _sums(self, incoming: Incoming, state: RoundState) -> messages.LatticeSums:
        if self._key is None:
            raise UnexpectedMessage("a level arrived before its round")
        added = None if self.noise is None else self.noise(_asked(incoming), state)
        build, bins, layout = incoming.rows, state.bins, state.block.layout
        matrix = np.zeros(len(incoming.node), dtype=np.int32) if len(bins.bins) == 1 else build.group[incoming.node]
        blocks, sizes, key, starts = incoming.blocks, incoming.sizes, self._key, state.shuffle.starts
        spans, first_byte = blocks.spans()[incoming.first : incoming.last], 0
        pieces: list[Callable[..., EncryptedSums]] = []
        for number, span in enumerate(spans, start=incoming.first):
            own = blocks.at(span, _NO_ROWS)
            last_byte = first_byte + own.ciphertext_bytes()
            packed = incoming.ciphertext.packed[first_byte:last_byte]
            part = Ciphertext(span_seed(incoming.ciphertext.seed, number), packed)
            flood = Csprng().bytes(SEED_BYTES)  # drawn here, so that work that runs twice uses the same flood
            pieces.append(
                partial(
                    sum_rows, key, part, own, matrix[span], starts, layout.widths, sizes, flood,
                    None if added is None else added[span], self.context.threads,
                )
            )  # fmt: skip
            first_byte = last_byte
        answers = build.together(blocks.edges(spans), bins.bins, pieces.__getitem__)
        if len(spans) == 1:
            only = next(answers)
            return messages.LatticeSums(only.sums, only.masks)
        sums = np.empty((sum(span.stop - span.start for span in spans), FAMILIES, layout.slots), dtype=np.uint64)
        masks = own_pages(sum(blocks.at(s, _NO_ROWS).mask_bytes(layout.slots) for s in spans))
        block_at = mask_at = 0
        for answer in answers:
            sums[block_at : block_at + len(answer.sums)] = answer.sums
            masks[mask_at : mask_at + len(answer.masks)] = answer.masks
            block_at, mask_at = block_at + len(answer.sums), mask_at + len(answer.masks)
        return messages.LatticeSums(sums, masks)


def _asked(incoming: Incoming) -> Asked:
    blocks, rows = incoming.blocks, (incoming.rows.listed(), incoming.blocks.begin, incoming.blocks.end)
    encrypted = incoming.ciphertext.packed, incoming.ciphertext.seed, incoming.sizes.log_delta
    return Asked((*encrypted, *rows, blocks.run), len(incoming.node), incoming.sizes.largest_sum)


def sum_rows(
    key: PublicKey,
    ciphertext: Ciphertext,
    blocks: Blocks,
    matrix: Int32Array,
    starts: Int32Array,
    widths: Int32Array,
    sizes: Sizes,
    flood: bytes,
    added: Int64Array | None,
    threads: int,
    rows: Int32Array,
    *bins: AnyArray,
) -> EncryptedSums:
    """Return the encrypted sums of a span of blocks, from the bins of their rows."""
    return key.sum(ciphertext, replace(blocks, rows=rows), bins, matrix, starts, widths, sizes, threads, flood, added)
