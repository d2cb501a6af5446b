"""Dense ciphertexts at the active party: encrypts the rows of every node, 25 bytes each, and decrypts the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level
from veilboost.crypto.lattice.expansion import (
    MOST_RUN,
    DenseSecretKey,
    DenseSizes,
    DenseSums,
    answer_bytes,
    ciphertext_bytes,
    dense_runs,
    level_bytes,
    log_flood,
    sizes_for_flood,
    sizes_for_sum,
)
from veilboost.crypto.lattice.keys import SEED_BYTES, Blocks, span_seed
from veilboost.errors import MalformedMessage, UnsupportedCombination
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE, ActiveLayout
from veilboost.protocols.lattice.runs_active import digest_of
from veilboost.protocols.vertical import roles
from veilboost.types import Int32Array, Int64Array, PartyName, UInt8Array

KEY_NAME = "lattice expansion key"
_NO_ROWS = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class _Plan:
    blocks: Blocks
    sizes: DenseSizes


class ExpandedLevels(ActiveLayout):
    """Encrypts once per level, the same for all passive parties: the widest party determines the lengths of runs.

    Values are at most 2^value_bits. `check_room` raises if the largest sum leaves no room for the noise of a party with
    this many columns.
    """

    def __init__(
        self, context: roles.ActiveContext, value_bits: int, check_room: Callable[[int, int], None] | None
    ) -> None:
        self._context, self._value_bits, self._check_room = context, value_bits, check_room
        # Derived from the job's own key, so that a resumed job encrypts as before.
        self._key = DenseSecretKey(context.randomness.for_request(KEY_NAME))

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        keys = messages.ExpansionKeys(np.frombuffer(self._key.public_seed, dtype=np.uint8), self._key.public_part)
        self._context.peers.ask(dict.fromkeys(layouts, keys), messages.ExpansionReady)

    def plan(self, current: roles.ActiveRound, level: Level, requests: roles.Requests) -> int | None:
        """Plan a level; return its bytes at the widest party, with those that could be sent in the time of expansion.

        None if the sums of a node do not fit, or if the level does not fit into one message.
        """
        layouts = [current.layouts[name] for name in requests]
        slots, counts = max(layout.slots for layout in layouts), level.fit.counts[level.build]
        largest = int(counts.max(initial=1)) << self._value_bits
        sizes = sizes_for_sum(largest)
        if sizes is None:
            return None
        run, end = dense_runs(counts, slots, sizes), counts.cumsum()
        while True:
            blocks = Blocks(_NO_ROWS, end - counts, end, run)
            flood = max(
                log_flood(blocks.at(span, _NO_ROWS), layout.slots, layout.features)
                for layout in layouts
                for span in blocks.spans()
            )
            if flood <= sizes.most_log_flood or (run == MOST_RUN).all():
                break
            run = np.minimum(2 * run, MOST_RUN).astype(np.int32)  # fewer doublings make less noise
        if self._check_room is not None:  # noise needs more room than the sums
            sizes = sizes_for_flood(flood)
            try:
                self._check_room(sizes.largest_sum, max(layout.features for layout in layouts))
            except UnsupportedCombination:
                return None
        if flood > sizes.most_log_flood or sizes.largest_sum < largest or ciphertext_bytes(blocks) > BYTES_AT_ONCE:
            return None
        self._plan = _Plan(blocks, sizes)
        return level_bytes(counts, run, slots, sizes)

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests, content: bytes) -> roles.Waiting:
        """Encrypt the level that was planned."""
        blocks, sizes, build = self._plan.blocks, self._plan.sizes, level.fit.of(level.build)
        digest = digest_of(content, build, blocks, build.group, sizes.log_delta)
        randomness = self._context.randomness.for_request(
            "lattice expansion", current.start.number, level.depth, digest
        )
        seed, noise = randomness.bytes(SEED_BYTES), randomness.bytes(SEED_BYTES)
        spans = blocks.spans()

        def piece(number: int) -> Callable[..., UInt8Array]:
            seeds, span = (span_seed(seed, number), span_seed(noise, number)), spans[number]
            own = blocks.at(span, _NO_ROWS)
            return partial(encrypt_rows, self._key, *seeds, build.group[span], own, sizes, self._context.threads)

        parts = list(build.together(blocks.edges(spans), [current.start.gradients], piece))
        return self._context.peers.send(
            {
                name: messages.ExpandedRequest(
                    **vars(request),
                    log_delta=sizes.log_delta,
                    run=blocks.run,
                    seed=np.frombuffer(seed, dtype=np.uint8),
                    ciphertext=parts[0] if len(parts) == 1 else np.concatenate(parts),
                )
                for name, request in requests.items()
            }
        )

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> Mapping[PartyName, Int64Array]:
        answers = self._context.peers.collect(waiting, messages.ExpandedSums)
        plan, threads = self._plan, self._context.threads
        return {
            name: decrypt_nodes(self._key, answer, plan.blocks, current.layouts[name].slots, plan.sizes, threads)
            for name, answer in answers.items()
        }


def decrypt_nodes(
    key: DenseSecretKey, answer: messages.ExpandedSums, blocks: Blocks, slots: int, sizes: DenseSizes, threads: int
) -> Int64Array:
    """The sums (nodes, slots, 2) of an answer, span by span."""
    parts, sums_at, masks_at = list[Int64Array](), 0, 0
    for span in blocks.spans():
        run = blocks.run[span]
        sums, masks = answer_bytes(run, slots, sizes)
        part = DenseSums(answer.sums[sums_at : sums_at + sums], answer.masks[masks_at : masks_at + masks])
        parts.append(key.decrypt(part, run, slots, sizes, threads))
        sums_at, masks_at = sums_at + sums, masks_at + masks
    if (sums_at, masks_at) != (len(answer.sums), len(answer.masks)):
        raise MalformedMessage("the encrypted sums are of other nodes or bins")
    return np.concatenate(parts)


def encrypt_rows(
    key: DenseSecretKey,
    seed: bytes,
    noise: bytes,
    group: Int32Array,
    blocks: Blocks,
    sizes: DenseSizes,
    threads: int,
    rows: Int32Array,
    gradients: Int32Array,
) -> UInt8Array:
    """Encrypt the rows of a span of blocks."""
    return key.encrypt_with(seed, noise, gradients, group, replace(blocks, rows=rows), sizes, threads)
