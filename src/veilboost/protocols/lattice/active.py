"""The label side of lattice encryption: packs and encrypts every node's rows, and decrypts the sums."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from veilboost.boost.grower import Level, Round
from veilboost.boost.rows import RowGroups
from veilboost.boost.split import Candidates
from veilboost.crypto.lattice.keys import Blocks, EncryptedSums, SecretKey, span_seed
from veilboost.crypto.lattice.parameters import SEED_BYTES, Sizes, run_length, sizes_for_job
from veilboost.engine.shards import pieces_of
from veilboost.errors import UnsupportedCombination
from veilboost.fixedpoint import weight_bits
from veilboost.protocols.lattice.blocks import cut_into_blocks, value_bits
from veilboost.protocols.lattice.messages import LatticeMore, LatticeRequest, LatticeRound, LatticeSums
from veilboost.protocols.vertical.encrypted import EncryptedActive
from veilboost.protocols.vertical.messages import BeginRound, StatisticsRequest
from veilboost.protocols.vertical.roles import ActiveContext
from veilboost.types import Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.channel import Pending
from veilboost.wire.pages import own_pages

BYTES_AT_ONCE = 1 << 24  # a message's ciphertexts, about as many as 150,000 rows need
_ROWS_AT_ONCE = 1 << 20  # whose values are looked at together
_NO_ROWS = np.empty(0, dtype=np.int32)


class LatticeActive(EncryptedActive):
    """Encrypts once per level, for all passive parties alike: the widest of them decides the tiles' shape."""

    answer = LatticeSums

    def __init__(self, context: ActiveContext) -> None:
        super().__init__(context)
        # From the job's own key, so that a job that goes on after an interruption encrypts as before.
        self._key = SecretKey(context.randomness.for_request("lattice key"))
        self._key_seed = np.frombuffer(self._key.public_seed, dtype=np.uint8)
        self.block_node = _NO_ROWS  # the node of each block of the level; none where nobody is asked

    @property
    def noise_bits(self) -> int:
        """Bits of room that passive parties have to add noise to a sum."""
        return 0

    def begin_round(self, start: Round) -> None:
        content = hashlib.blake2b(digest_size=32)
        for piece in [start.gradients] if start.trees > 1 else pieces_of(start.gradients, _ROWS_AT_ONCE):
            content.update(np.asarray(piece).tobytes())
        self._gradient_digest = content.digest()
        super().begin_round(start)

    def round_message(self, start: Round, party: PartyName, opening: BeginRound) -> LatticeRound:
        return LatticeRound(
            opening.number, opening.fit, opening.all_columns, opening.columns, self._key_seed, self._key.public_part
        )

    def candidates(self, level: Level) -> Sequence[Candidates]:
        self._level = level
        return super().candidates(level)

    def ask_statistics(self, requests: Mapping[PartyName, StatisticsRequest]) -> Mapping[PartyName, Pending]:
        if not requests:
            return {}
        build = self._level.fit.of(self._level.build)
        layouts = [self.round_layouts[name] for name in requests]
        slots = max(layout.slots for layout in layouts)
        features = max(layout.features for layout in layouts)
        bits = value_bits(self.config, weight_bits(self.context.largest_weight)) + self.noise_bits
        sizes = sizes_for_job(self.context.rows, bits, slots, features)
        if sizes is None:
            raise UnsupportedCombination(
                "gradients are too large, or bins too many, to be summed under encryption",
                "lower gradient_bits, max_bin or the largest weight",
            )
        self.check_sizes(sizes, features)
        self._sizes = sizes
        self.block_node, block_rows = cut_into_blocks(build, self.context.rows, sizes.rows_per_block(bits))
        self._run = np.array([run_length(rows, slots) for rows in block_rows.tolist()], dtype=np.int32)
        end = block_rows.cumsum()
        blocks = Blocks(_NO_ROWS, end - block_rows, end, self._run)
        seed = self._encrypt(build, blocks, build.group[self.block_node])
        ciphertext = self.next_ciphertexts()
        return self.context.peers.send(
            {
                name: LatticeRequest(
                    depth=request.depth,
                    split=request.split,
                    fit_left=request.fit_left,
                    follow_left=request.follow_left,
                    build=request.build,
                    log_delta=self._sizes.log_delta,
                    run=self._run,
                    seed=np.frombuffer(seed, dtype=np.uint8),
                    ciphertext=ciphertext,
                )
                for name, request in requests.items()
            }
        )

    def _encrypt(self, build: RowGroups, blocks: Blocks, group: Int32Array) -> bytes:
        """Start to encrypt the level, span by span; returns its seed."""
        digest = self._digest(build, blocks, group)
        randomness = self.context.randomness.for_request("lattice", self.start.number, self._level.depth, digest)
        seed, noise = randomness.bytes(SEED_BYTES), randomness.bytes(SEED_BYTES)
        spans = blocks.spans()

        def piece(number: int) -> Callable[..., UInt8Array]:
            seeds, span = (span_seed(seed, number), span_seed(noise, number)), spans[number]
            own = blocks.at(span, _NO_ROWS)
            return partial(encrypt_rows, self._key, *seeds, group[span], own, self._sizes, self.context.threads)

        parts = build.together(blocks.edges(spans), [self.start.gradients], piece)
        sizes = [blocks.at(span, _NO_ROWS).ciphertext_bytes() for span in spans]
        self._parts = deque(zip(spans, sizes, strict=True)), parts
        return seed

    def next_ciphertexts(self, most: int | None = None) -> UInt8Array:
        """Those of the next spans, all or until there are `most` bytes; `self.told` are their blocks, if any."""
        waiting, parts = self._parts
        taken, size = list[slice](), 0
        while waiting and (most is None or size < most):
            span, own = waiting.popleft()
            taken.append(span)
            size += own
        self.told = slice(taken[0].start, taken[-1].stop) if taken else None
        if len(taken) == 1:
            return next(parts)
        packed, filled = own_pages(size), 0
        for part in itertools.islice(parts, len(taken)):
            packed[filled : filled + len(part)] = part
            filled += len(part)
        return packed

    def _digest(self, build: RowGroups, blocks: Blocks, group: Int32Array) -> bytes:
        """Of all that is encrypted: other values, or the same in other places, never meet the same randomness."""
        digest = hashlib.blake2b(self._gradient_digest, digest_size=32)
        # All but the rows have one entry a block, and the digest of the rows ends before them: nothing runs together.
        rows = hashlib.blake2b(digest_size=32)
        for chunk in build.chunks():
            rows.update(chunk.tobytes())
        digest.update(rows.digest())
        for part in (blocks.begin, blocks.end, blocks.run, group):
            digest.update(part.tobytes())
        digest.update(bytes([self._sizes.log_delta]))
        return digest.digest()

    def check_sizes(self, sizes: Sizes, features: int) -> None:
        """Refuse sizes that leave no room for what a passive party of so many columns adds to sums."""

    def decrypt(self, level: Level, name: PartyName, answer: LatticeSums) -> Int64Array:
        by_block = self.decrypt_blocks(name, answer, slice(None))
        if len(by_block) == len(level.build):
            return by_block
        sums = np.zeros((len(level.build), *by_block.shape[1:]), dtype=np.int64)
        np.add.at(sums, self.block_node, by_block)
        return sums

    def decrypt_blocks(self, name: PartyName, answer: LatticeSums, blocks: slice) -> Int64Array:
        """A party's sums of some of the level's blocks."""
        encrypted, slots = EncryptedSums(answer.sums, answer.masks), self.round_layouts[name].slots
        return self._key.decrypt(encrypted, self._run[blocks], slots, self._sizes, self.context.threads)


class StreamingLatticeActive(LatticeActive):
    """Where a level's ciphertexts are many, sends a few spans at a time and adds what comes back."""

    def next_ciphertexts(self, most: int | None = None) -> UInt8Array:
        return super().next_ciphertexts(BYTES_AT_ONCE)

    def decrypted(self, level: Level, pending: Mapping[PartyName, Pending]) -> Mapping[PartyName, Int64Array]:
        sums = {
            name: np.zeros((len(level.build), self.round_layouts[name].slots, 2), dtype=np.int64) for name in pending
        }
        while pending:
            told = self.told or slice(0)
            answers = self.context.peers.collect(pending, LatticeSums)
            pending = self._send_more(answers)  # peers sum these while we decrypt
            for name in list(answers):
                by_block = self.decrypt_blocks(name, answers.pop(name), told)
                np.add.at(sums[name], self.block_node[told], by_block)
        return sums

    def _send_more(self, names: Iterable[PartyName]) -> Mapping[PartyName, Pending]:
        """The level's next ciphertexts, if any are left. Nothing here keeps them once they are sent."""
        more = self.next_ciphertexts()
        return self.context.peers.send(dict.fromkeys(names, LatticeMore(more))) if len(more) else {}


def encrypt_rows(
    key: SecretKey,
    seed: bytes,
    noise: bytes,
    group: Int32Array,
    blocks: Blocks,
    sizes: Sizes,
    threads: int,
    rows: Int32Array,
    gradients: Int32Array,
) -> UInt8Array:
    """The ciphertexts of a span of blocks, from their rows."""
    return key.encrypt_with(seed, noise, gradients, group, replace(blocks, rows=rows), sizes, threads)
