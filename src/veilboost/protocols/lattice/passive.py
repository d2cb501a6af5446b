"""The feature side of lattice encryption: multiplies ciphertexts by its bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from veilboost.boost.columns import ColumnBlock, LevelBins
from veilboost.boost.rows import RowGroups
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.keys import FAMILIES, Blocks, Ciphertext, EncryptedSums, PublicKey, span_seed
from veilboost.crypto.lattice.parameters import LEAST_RUN, MOST_LOG_FLOOD, SEED_BYTES, Sizes, sizes_for
from veilboost.errors import MalformedMessage, UnexpectedMessage, VeilBoostError
from veilboost.protocols.lattice.blocks import cut_into_blocks, value_bits
from veilboost.protocols.lattice.messages import LatticeMore, LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.passive import VerticalPassive
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.types import AnyArray, Int32Array, Int64Array, UInt8Array
from veilboost.wire.message import Message
from veilboost.wire.pages import own_pages

_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_BYTES = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True)
class Incoming:
    """A level's ciphertexts, checked: those of the spans `first` to `last`, of which the seed is that of all."""

    ciphertext: Ciphertext
    rows: RowGroups
    blocks: Blocks
    node: Int32Array
    sizes: Sizes
    first: int
    last: int

    @property
    def awaited(self) -> Sequence[slice]:
        """The spans whose ciphertexts are still to come."""
        return self.blocks.spans()[self.last :]


class LatticePassive(VerticalPassive):
    """Keeps the round's public key and answers every level with encrypted sums."""

    shuffles = True
    streams: ClassVar[bool] = False  # a level's ciphertexts may come in several messages
    incoming: Incoming

    def __init__(self, context: PassiveContext) -> None:
        super().__init__(context)
        self._key: PublicKey | None = None

    @property
    def noise_bits(self) -> int:
        """Bits of room for what is added to a sum."""
        return 0

    def open_round(self, message: BeginRound) -> None:
        if not isinstance(message, LatticeRound):
            raise UnexpectedMessage("a round of another protocol")
        seed = message.key_seed.tobytes()
        if self._key is None or self._key.seed != seed or not np.array_equal(self._key.part, message.key):
            self._key = PublicKey(seed, message.key)

    def check_request(self, message: StatisticsRequest, block: ColumnBlock, build: RowGroups) -> None:
        if not isinstance(message, LatticeRequest):
            raise UnexpectedMessage("a request of another protocol")
        layout, rows, sizes = block.layout, self.context.rows, Sizes(message.log_delta - 2)
        if not 0 <= sizes.log_flood <= MOST_LOG_FLOOD:
            raise MalformedMessage("the values are scaled so that there is no room to flood the sums")
        # Sums of few rows tell more: how finely nodes are cut follows from public bounds, not from the request.
        most = sizes.rows_per_block(value_bits(self.config, self.weight_bits) + self.noise_bits)
        if most < min(rows, LEAST_RUN) or sizes_for(min(rows, most), layout.slots, layout.features) > sizes:
            raise MalformedMessage("the values are scaled so that there is no room to flood the sums")
        node, count = cut_into_blocks(build, rows, most)
        if len(message.run) != len(node):
            raise MalformedMessage("the ciphertexts are of other blocks of rows")
        end = count.cumsum()
        blocks = Blocks(_NO_ROWS, end - count, end, message.run)
        blocks.check()
        if len(message.seed) != SEED_BYTES:
            raise MalformedMessage("a seed has another size")
        ciphertext = Ciphertext(message.seed.tobytes(), message.ciphertext)
        last = self._last_span(blocks, 0, message.ciphertext)
        self.incoming = Incoming(ciphertext, build, blocks, node, sizes, 0, last)

    def _last_span(self, blocks: Blocks, first: int, ciphertext: UInt8Array) -> int:
        """The span after those that the ciphertexts of a message fill: all, unless they stream."""
        spans, left = blocks.spans(), len(ciphertext)
        last = first
        while last < len(spans) and (left or not self.streams or last == first):
            left -= blocks.at(spans[last], _NO_ROWS).ciphertext_bytes()
            last += 1
        if left:
            raise MalformedMessage("there are ciphertexts of another number of rows")
        return last

    def noise(self, blocks: int, slots: int) -> Int64Array | None:
        """What is added to the level's sums, (blocks, families, slots); None for nothing."""
        return None

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> LatticeSums:
        if self._key is None or self.shuffle is None:
            raise UnexpectedMessage("a level came before its round")
        added = self.noise(len(self.incoming.node), block.layout.slots)
        incoming, group = self.incoming, build.group
        matrix = np.zeros(len(incoming.node), dtype=np.int32) if len(bins.bins) == 1 else group[incoming.node]
        blocks, sizes, key, shuffle = incoming.blocks, incoming.sizes, self._key, self.shuffle
        spans, first_byte = blocks.spans()[incoming.first : incoming.last], 0
        pieces: list[Callable[..., EncryptedSums]] = []
        for number, span in enumerate(spans, start=incoming.first):
            own = blocks.at(span, _NO_ROWS)
            last_byte = first_byte + own.ciphertext_bytes()
            packed = incoming.ciphertext.packed[first_byte:last_byte]
            part = Ciphertext(span_seed(incoming.ciphertext.seed, number), packed)
            flood = Csprng().bytes(SEED_BYTES)  # drawn here: work that runs twice floods alike
            pieces.append(
                partial(
                    sum_rows, key, part, own, matrix[span], shuffle.starts, block.layout.widths, sizes, flood,
                    None if added is None else added[span], self.context.threads,
                )
            )  # fmt: skip
            first_byte = last_byte
        answers = build.together(blocks.edges(spans), bins.bins, pieces.__getitem__)
        if len(spans) == 1:
            only = next(answers)
            return LatticeSums(only.sums, only.masks)
        sums = np.empty((sum(span.stop - span.start for span in spans), FAMILIES, block.layout.slots), dtype=np.uint64)
        masks = own_pages(sum(blocks.at(s, _NO_ROWS).mask_bytes(block.layout.slots) for s in spans))
        block_at = mask_at = 0
        for answer in answers:
            sums[block_at : block_at + len(answer.sums)] = answer.sums
            masks[mask_at : mask_at + len(answer.masks)] = answer.masks
            block_at, mask_at = block_at + len(answer.sums), mask_at + len(answer.masks)
        return LatticeSums(sums, masks)


class StreamingLatticePassive(LatticePassive):
    """Answers span by span, where a level's ciphertexts come so."""

    streams = True

    def statistics(self, block: ColumnBlock, bins: LevelBins, build: RowGroups) -> LatticeSums:
        try:
            return super().statistics(block, bins, build)
        finally:  # what was summed is not kept until more comes
            read = Ciphertext(self.incoming.ciphertext.seed, _NO_BYTES)
            self.incoming = replace(self.incoming, ciphertext=read)

    def handle(self, message: Message) -> Message:
        if not isinstance(message, LatticeMore):
            return super().handle(message)
        state = self.state
        if not state.summed or not self.incoming.awaited:
            raise UnexpectedMessage("ciphertexts came where none were missing")
        old = self.incoming
        last = self._last_span(old.blocks, old.last, message.ciphertext)
        ciphertext = Ciphertext(old.ciphertext.seed, message.ciphertext)
        self.incoming = replace(old, ciphertext=ciphertext, first=old.last, last=last)
        try:
            return self.statistics(state.block, state.bins, old.rows)
        except VeilBoostError:  # what the kernel refuses leaves no trace
            self.incoming = old
            raise


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
    """Encrypted sums of a span of blocks, from the bins of their rows."""
    return key.sum(ciphertext, replace(blocks, rows=rows), bins, matrix, starts, widths, sizes, threads, flood, added)
