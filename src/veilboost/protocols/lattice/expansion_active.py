"""Dense ciphertexts at the active party: encrypts the rows of every node, 25 bytes each, and decrypts the sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level
from veilboost.crypto.lattice.expansion import DenseSecretKey, DenseSizes, DenseSums, answer_bytes
from veilboost.crypto.lattice.keys import SEED_BYTES, Blocks, span_seed
from veilboost.errors import MalformedMessage
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.choice import DenseLevel
from veilboost.protocols.lattice.layouts import ActiveLayout
from veilboost.protocols.lattice.runs_active import digest_of
from veilboost.protocols.vertical import roles
from veilboost.types import Int32Array, Int64Array, PartyName, UInt8Array

KEY_NAME = "lattice expansion key"
_NO_ROWS = np.empty(0, dtype=np.int32)


class ExpandedLevels(ActiveLayout):
    """Encrypts once per level, the same for all passive parties: the widest party determines the lengths of runs."""

    planned: DenseLevel  # of the level to ask for

    def __init__(self, context: roles.ActiveContext) -> None:
        self._context = context
        # Derived from the job's own key, so that a resumed job encrypts as before.
        self._key = DenseSecretKey(context.randomness.for_request(KEY_NAME))

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        keys = messages.ExpansionKeys(np.frombuffer(self._key.public_seed, dtype=np.uint8), self._key.public_part)
        self._context.peers.ask(dict.fromkeys(layouts, keys), messages.ExpansionReady)

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests, content: bytes) -> roles.Waiting:
        """Encrypt the level that was planned."""
        blocks, sizes, build = self.planned.blocks, self.planned.sizes, level.fit.of(level.build)
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
        plan, threads = self.planned, self._context.threads
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
