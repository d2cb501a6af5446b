"""Runs of rows at the active party: packs and encrypts the rows of every node, and decrypts the sums."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level
from veilboost.boost.rows import RowGroups
from veilboost.crypto.lattice.keys import (
    SEED_BYTES,
    Blocks,
    EncryptedSums,
    SecretKey,
    Sizes,
    run_length,
    sizes_for_job,
    span_seed,
)
from veilboost.errors import UnsupportedCombination
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.layouts import BYTES_AT_ONCE, ActiveLayout
from veilboost.protocols.vertical import roles
from veilboost.types import Int32Array, Int64Array, PartyName, UInt8Array
from veilboost.wire.message import own_pages

_NO_ROWS = np.empty(0, dtype=np.int32)
_NO_BYTES = np.empty(0, dtype=np.uint8)


class LevelsInRuns(ActiveLayout):
    """Encrypts once per level, the same for all passive parties: the widest party determines the shape of the tiles.

    Values are at most 2^value_bits. If it `streams`, it sends a few spans of ciphertexts at a time. `check_room` raises
    if the largest sum leaves no room for the noise of a party with this many columns.
    """

    def __init__(
        self,
        context: roles.ActiveContext,
        value_bits: int,
        streams: bool,
        check_room: Callable[[int, int], None] | None,
    ) -> None:
        self.context = context
        self._value_bits, self._streams, self._check_room = value_bits, streams, check_room
        # Derived from the job's own key, so that a resumed job encrypts as before.
        self._key = SecretKey(context.randomness.for_request("lattice key"))

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        """A party may have been started anew: it needs the key again."""
        self._key_sent = False

    def openings(self, openings: roles.Openings) -> roles.Openings:
        """Add the public key to the first round."""
        seed, key = np.frombuffer(self._key.public_seed, dtype=np.uint8), self._key.public_part
        if self._key_sent:
            seed = key = _NO_BYTES
        self._key_sent = True
        return {name: messages.LatticeRound(**vars(each), key_seed=seed, key=key) for name, each in openings.items()}

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests, content: bytes) -> roles.Waiting:
        build = level.fit.of(level.build)
        layouts = [current.layouts[name] for name in requests]
        slots = max(layout.slots for layout in layouts)
        features = max(layout.features for layout in layouts)
        sizes = sizes_for_job(self.context.rows, self._value_bits, slots, features)
        if sizes is None:
            raise UnsupportedCombination(
                "gradients are too large, or there are too many bins, for sums under encryption",
                "lower gradient_bits, max_bin or the largest weight",
            )
        if self._check_room is not None:
            self._check_room(sizes.largest_sum, features)
        self._sizes = sizes
        most = sizes.rows_per_block(self._value_bits)
        self._block_node, block_rows = messages.cut_into_blocks(build, self.context.rows, most)
        self.blocks = int(np.bincount(self._block_node).max(initial=1))
        self._run = np.array([run_length(rows, slots) for rows in block_rows.tolist()], dtype=np.int32)
        end = block_rows.cumsum()
        blocks = Blocks(_NO_ROWS, end - block_rows, end, self._run)
        group = build.group[self._block_node]
        digest = digest_of(content, build, blocks, group, sizes.log_delta)
        randomness = self.context.randomness.for_request("lattice", current.start.number, level.depth, digest)
        seed, noise = randomness.bytes(SEED_BYTES), randomness.bytes(SEED_BYTES)
        self._parts = self._encrypt(current, build, blocks, group, seed, noise)
        ciphertext = self._next_ciphertexts()
        return self.context.peers.send(
            {
                name: messages.LatticeRequest(
                    **vars(request),
                    log_delta=sizes.log_delta,
                    run=self._run,
                    seed=np.frombuffer(seed, dtype=np.uint8),
                    ciphertext=ciphertext,
                )
                for name, request in requests.items()
            }
        )

    def _encrypt(
        self, current: roles.ActiveRound, build: RowGroups, blocks: Blocks, group: Int32Array, seed: bytes, noise: bytes
    ) -> tuple[deque[tuple[slice, int]], Iterator[UInt8Array]]:
        """Start to encrypt the level; return its spans with their bytes, and an iterator of their ciphertexts."""
        spans = blocks.spans()

        def piece(number: int) -> Callable[..., UInt8Array]:
            seeds, span = (span_seed(seed, number), span_seed(noise, number)), spans[number]
            own = blocks.at(span, _NO_ROWS)
            return partial(encrypt_rows, self._key, *seeds, group[span], own, self._sizes, self.context.threads)

        parts = build.together(blocks.edges(spans), [current.start.gradients], piece)
        sizes = [blocks.at(span, _NO_ROWS).ciphertext_bytes() for span in spans]
        return deque(zip(spans, sizes, strict=True)), parts

    def _next_ciphertexts(self) -> UInt8Array:
        """Ciphertexts of the next spans, all or, if they stream, a few; `self._sent` is the range of their blocks."""
        waiting, parts = self._parts
        taken, size = list[slice](), 0
        while waiting and (not self._streams or size < BYTES_AT_ONCE):
            span, own = waiting.popleft()
            taken.append(span)
            size += own
        self._sent = slice(taken[0].start, taken[-1].stop) if taken else None
        if len(taken) == 1:
            return next(parts)
        packed, filled = own_pages(size), 0
        for part in itertools.islice(parts, len(taken)):
            packed[filled : filled + len(part)] = part
            filled += len(part)
        return packed

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> Mapping[PartyName, Int64Array]:
        sums: dict[PartyName, Int64Array] = {}
        while waiting:
            sent = self._sent or slice(0)
            answers = self.context.peers.collect(waiting, messages.LatticeSums)
            waiting = self._send_more(answers)  # peers sum these while we decrypt
            for name in list(answers):
                slots = current.layouts[name].slots
                by_block = self._decrypt(answers.pop(name), sent, slots)
                if len(by_block) == len(self._block_node) == len(level.build):  # one block per node
                    sums[name] = by_block
                    continue
                if name not in sums:
                    sums[name] = np.zeros((len(level.build), slots, 2), dtype=np.int64)
                np.add.at(sums[name], self._block_node[sent], by_block)
        return sums

    def _decrypt(self, answer: messages.LatticeSums, blocks: slice, slots: int) -> Int64Array:
        """Decrypt a party's sums of some of the level's blocks."""
        encrypted = EncryptedSums(answer.sums, answer.masks)
        return self._key.decrypt(encrypted, self._run[blocks], slots, self._sizes, self.context.threads)

    def _send_more(self, names: Iterable[PartyName]) -> roles.Waiting:
        """Send the level's next ciphertexts, if any are left. They are not kept here."""
        more = self._next_ciphertexts()
        return self.context.peers.send(dict.fromkeys(names, messages.LatticeMore(more))) if len(more) else {}


def digest_of(content: bytes, build: RowGroups, blocks: Blocks, group: Int32Array, log_delta: int) -> bytes:
    """Digest of everything encrypted: other values, or the same at other positions, get other randomness."""
    digest = hashlib.blake2b(content, digest_size=32)
    # Rows are hashed separately and the other arrays have one entry per block, so the encoding is unambiguous.
    rows = hashlib.blake2b(digest_size=32)
    for chunk in build.chunks():
        rows.update(chunk.tobytes())
    digest.update(rows.digest())
    for part in (blocks.begin, blocks.end, blocks.run, group):
        digest.update(part.tobytes())
    digest.update(bytes([log_delta]))
    return digest.digest()


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
    """Encrypt the rows of a span of blocks."""
    return key.encrypt_with(seed, noise, gradients, group, replace(blocks, rows=rows), sizes, threads)
