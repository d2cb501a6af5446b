"""Dense ciphertexts at a passive party: expands them to runs of rows, and multiplies these by its bins."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from veilboost.boost.rows import RowGroups
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.expansion import (
    DensePublicKey,
    DenseSizes,
    DenseSums,
    check_runs,
    ciphertext_bytes,
    log_flood,
)
from veilboost.crypto.lattice.keys import SEED_BYTES, Blocks, Ciphertext, span_seed
from veilboost.errors import MalformedMessage, UnexpectedMessage
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.layouts import Asked, Noise, PassiveLayout
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.protocols.vertical.roles import PassiveContext
from veilboost.protocols.vertical.round_state import RoundState
from veilboost.types import AnyArray, Int32Array, Int64Array
from veilboost.wire.message import Message

_NO_ROWS = np.empty(0, dtype=np.int32)


class ExpandedAnswers(PassiveLayout):
    """Answers dense levels. The keys for their expansion come once, before the first round."""

    handles = (messages.ExpansionKeys, messages.ExpandedRequest)

    def __init__(self, context: PassiveContext, noise: Noise | None) -> None:
        super().__init__(context, noise)
        self._key: DensePublicKey | None = None

    def other(self, message: Message, state: RoundState | None) -> messages.ExpansionReady:
        if not isinstance(message, messages.ExpansionKeys) or state is not None or self._key is not None:
            raise UnexpectedMessage("keys for expansion arrived twice, or after the first round began")
        self._key = DensePublicKey(message.seed.tobytes(), message.keys)
        self._key_digest = hashlib.blake2b(message.keys.tobytes(), key=message.seed.tobytes(), digest_size=32).digest()
        return messages.ExpansionReady()

    def answer(self, message: StatisticsRequest, state: RoundState, build: RowGroups) -> messages.ExpandedSums:
        key = self._key
        if not isinstance(message, messages.ExpandedRequest) or key is None:
            raise UnexpectedMessage("dense ciphertexts arrived before their keys")
        blocks, sizes = self._checked(message, state, build)
        layout, spans = state.block.layout, blocks.spans()
        added = None
        if self.noise is not None:
            # The keys belong to it: others expand the same ciphertexts to other values.
            rows = build.listed(), blocks.begin, blocks.end, blocks.run
            content = self._key_digest, message.ciphertext, message.seed, sizes.log_delta, *rows
            added = self.noise(Asked(content, build.nodes, sizes.largest_sum), state)
        matrix = np.zeros(build.nodes, dtype=np.int32) if len(state.bins.bins) == 1 else build.group
        pieces, first_byte = list[Callable[..., DenseSums]](), 0
        for number, span in enumerate(spans):
            own = blocks.at(span, _NO_ROWS)
            last_byte = first_byte + ciphertext_bytes(own)
            part = Ciphertext(span_seed(message.seed.tobytes(), number), message.ciphertext[first_byte:last_byte])
            flood = Csprng().bytes(SEED_BYTES)  # drawn here, so that work that runs twice uses the same flood
            pieces.append(
                partial(
                    sum_rows, key, part, own, matrix[span], state.shuffle.starts, layout.widths, sizes, flood,
                    None if added is None else added[span], self.context.threads,
                )
            )  # fmt: skip
            first_byte = last_byte
        answers = list(build.together(blocks.edges(spans), state.bins.bins, pieces.__getitem__))
        if len(answers) == 1:
            return messages.ExpandedSums(answers[0].sums, answers[0].masks)
        return messages.ExpandedSums(
            np.concatenate([each.sums for each in answers]), np.concatenate([each.masks for each in answers])
        )

    def _checked(
        self, message: messages.ExpandedRequest, state: RoundState, build: RowGroups
    ) -> tuple[Blocks, DenseSizes]:
        """The nodes that this party knows are the blocks; the request determines only scale and runs."""
        if len(message.run) != build.nodes:
            raise MalformedMessage("the ciphertexts are of other nodes")
        end = build.counts.cumsum()
        blocks, sizes = Blocks(_NO_ROWS, end - build.counts, end, message.run), DenseSizes(message.log_delta)
        check_runs(blocks)
        layout = state.block.layout
        floods = [log_flood(blocks.at(span, _NO_ROWS), layout.slots, layout.features) for span in blocks.spans()]
        if not sizes.valid() or max(floods) > sizes.most_log_flood:
            raise MalformedMessage("the scale of the values leaves no room to flood the sums")
        if len(message.seed) != SEED_BYTES:
            raise MalformedMessage("a seed has the wrong size")
        if len(message.ciphertext) != ciphertext_bytes(blocks):
            raise MalformedMessage("the ciphertexts are of another number of rows")
        return blocks, sizes


def sum_rows(
    key: DensePublicKey,
    ciphertext: Ciphertext,
    blocks: Blocks,
    matrix: Int32Array,
    starts: Int32Array,
    widths: Int32Array,
    sizes: DenseSizes,
    flood: bytes,
    added: Int64Array | None,
    threads: int,
    rows: Int32Array,
    *bins: AnyArray,
) -> DenseSums:
    """Return the encrypted sums of a span of nodes, from the bins of their rows."""
    return key.sum(ciphertext, replace(blocks, rows=rows), bins, matrix, starts, widths, sizes, threads, flood, added)
