"""Reusable masks at the active party: every node is a vector of all rows, with 0 outside the node."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.grower import Level
from veilboost.crypto.lattice.keys import DEGREE, FAMILIES, SEED_BYTES
from veilboost.crypto.lattice.masks import MaskOwner, MaskSizes, masks_seed, vector_key
from veilboost.errors import MalformedMessage
from veilboost.protocols.lattice import messages
from veilboost.protocols.lattice.layouts import ActiveLayout, slots_of
from veilboost.protocols.vertical import roles
from veilboost.types import Int64Array, PartyName, UInt8Array


class MaskedLevels(ActiveLayout):
    """Encrypts nodes as vectors. The masks of the passive parties' bins are requested once."""

    def __init__(self, context: roles.ActiveContext, sizes: MaskSizes) -> None:
        self._context, self.sizes = context, sizes
        # Derived from the job's own key, so that a resumed job encrypts as before.
        self._seed = masks_seed(context.randomness)
        self._owner = MaskOwner(self._seed, context.rows, sizes)
        self._keys: list[bytes] = []

    def begin_training(self, layouts: Mapping[PartyName, BinLayout]) -> None:
        sizes, peers = self.sizes, self._context.peers
        self._layouts = layouts
        self._masks: dict[PartyName, UInt8Array] = {
            name: np.empty((layout.slots, sizes.mask_bytes, DEGREE), dtype=np.uint8) for name, layout in layouts.items()
        }
        filled = {name: 0 for name, masks in self._masks.items() if len(masks)}
        seed = np.frombuffer(self._seed, dtype=np.uint8)
        while filled:
            requests = {
                name: messages.MasksRequest(seed, sizes.log_flood, sizes.sum_bits, first)
                for name, first in filled.items()
            }
            for name, answer in peers.ask(requests, messages.BinMasks).items():
                masks, first = self._masks[name], filled[name]
                last = first + len(answer.masks)
                if answer.masks.shape[1:] != masks.shape[1:] or not first < last <= len(masks):
                    raise MalformedMessage(f"{name} sent masks of other bins")
                masks[first:last], filled[name] = answer.masks, last
                if last == len(masks):
                    del filled[name]

    def ask(self, current: roles.ActiveRound, level: Level, requests: roles.Requests, content: bytes) -> roles.Waiting:
        build, sizes, owner = level.fit.of(level.build), self.sizes, self._owner
        gradients, listed = np.asarray(current.start.gradients), build.listed()
        ends = build.counts.cumsum().tolist()
        numbers = np.empty((build.nodes, owner.rows, FAMILIES * sizes.width), dtype=np.uint8)
        parts = np.empty((build.nodes, FAMILIES, DEGREE, sizes.width), dtype=np.uint8)
        nonces = np.empty((build.nodes, SEED_BYTES), dtype=np.uint8)
        self._keys = []
        for node, (group, end, count) in enumerate(zip(build.group.tolist(), ends, build.counts.tolist(), strict=True)):
            values, own = np.zeros((owner.rows, FAMILIES), dtype=np.int32), listed[end - count : end]
            values[own] = gradients[group, own]
            # Other values never meet the same secret; a resumed job repeats exactly.
            digest = hashlib.blake2b(values.tobytes(), key=content, digest_size=32).digest()
            place = "lattice nonce", current.start.number, level.depth, node, sizes.log_delta, sizes.bits, digest
            nonce = self._context.randomness.for_request(*place).bytes(SEED_BYTES)
            key = vector_key(self._context.randomness, nonce)
            owner.encrypt(values, key, numbers[node], parts[node], self._context.threads)
            nonces[node] = np.frombuffer(nonce, dtype=np.uint8)
            self._keys.append(key)
        return self._context.peers.send(
            {
                name: messages.VectorRequest(**vars(request), nonces=nonces, numbers=numbers, parts=parts)
                for name, request in requests.items()
            }
        )

    def read(self, current: roles.ActiveRound, level: Level, waiting: roles.Waiting) -> Mapping[PartyName, Int64Array]:
        columns = dict(zip(self._context.order, current.start.columns, strict=True))
        sums: dict[PartyName, Int64Array] = {}
        for name, answer in self._context.peers.collect(waiting, messages.VectorSums).items():
            slots = slots_of(self._layouts[name], columns[name])
            if answer.sums.shape != (len(self._keys), FAMILIES, len(slots)):
                raise MalformedMessage("the encrypted sums are of other nodes or bins")
            sums[name] = np.stack(
                [
                    self._owner.decrypt(node, slots, self._masks[name], key, self._context.threads)
                    for node, key in zip(answer.sums, self._keys, strict=True)
                ]
            )
        return sums
