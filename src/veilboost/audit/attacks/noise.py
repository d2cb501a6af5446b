"""Keys that others can derive or find: from the seed of a job or a model, or in a run folder.

`seeded_keys` is an attack from a passive party's view. `strip_noise` is not in the list of attacks and is called
directly: it removes the noise of a `sealed` model with keys derived from the model or found in a folder.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from pathlib import Path

import numpy as np

from veilboost.audit.attack import Outcome, declare
from veilboost.audit.attacks.gradients import labels_of, may_have_classes, scored
from veilboost.audit.view import Truth, View
from veilboost.crypto.csprng import KEY_BYTES, Csprng, JobRandomness, unsafe_key
from veilboost.crypto.fingerprint import content_digest
from veilboost.crypto.lattice.keys import Blocks, Ciphertext, PublicKey, SecretKey, Sizes
from veilboost.crypto.lattice.masks import MaskOwner, MaskSizes, add_rows, answer, make_masks, vector_key
from veilboost.fixedpoint import Scale, choose_scale
from veilboost.model.share import ModelShare, Skeleton
from veilboost.privacy.discrete import discrete_gaussian
from veilboost.protocols.lattice.messages import LatticeRequest, LatticeRound, MasksRequest, VectorRequest
from veilboost.protocols.sealed import parameters
from veilboost.protocols.vertical.messages import StatisticsRequest
from veilboost.types import Float64Array, Int64Array, PartyName

MOST_ROWS = 256  # rows whose gradients are decrypted one by one
MOST_GUESSES = 20_000  # guesses of the counts of a level's leaves: about ten seconds
WINDOW = 5.5  # standard deviations of the noise; both leaves of a stump lie within, except with probability 8e-8


def _keys_of(seed: int, party: PartyName) -> dict[str, bytes]:
    return {
        "the seed, as in release 0.1.0": hashlib.sha256(f"simulation {seed} {party}".encode()).digest(),
        "the seed, by unsafe_key": unsafe_key(seed, party),
    }


@declare("keys from the job's seed", "passive", "active", "labels", (LatticeRound,))
def seeded_keys(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from decrypted gradients, if the active party's key is derived from the seed, which all parties know.

    The public key identifies the right key. Each row gets its own bin, so that sums are values of single rows.
    """
    openings, asked = view.received(LatticeRound, victim), view.received(MasksRequest, victim)
    requests = view.received(StatisticsRequest, victim)
    if not openings or not requests or not may_have_classes(view):
        return None
    opening, request = openings[0], requests[0]
    if len(opening.fit) or len(request.build) != 1:  # not all rows, or several trees
        return None
    if isinstance(request, LatticeRequest) and len(request.run) != 1:  # several blocks
        return None
    read = np.arange(min(view.rows, MOST_ROWS), dtype=np.int32)
    guess, how = np.zeros(len(read)), "no key derived from the seed is the active party's"
    for name, key in _keys_of(view.config.random_state, victim).items():
        own = JobRandomness(key)
        secret = SecretKey(own.for_request("lattice key"))
        if secret.public_seed != opening.key_seed.tobytes():
            continue
        values = None
        if isinstance(request, LatticeRequest):
            values = _read_runs(secret, opening, request, view.rows, len(read))
        elif isinstance(request, VectorRequest):
            values = _read_vector(own, asked[0], request, view.rows, len(read))
        if values is not None:
            guess, how = labels_of(values[None].astype(np.float64)), f"{name}, decrypts the gradients"
    return scored(truth, victim, read, guess, f"{how}: {{value:.3f}} balanced accuracy of {len(read)} labels")


def _read_runs(secret: SecretKey, opening: LatticeRound, request: LatticeRequest, rows: int, read: int) -> Int64Array:
    """The gradients of the first `read` rows, which have a bin of their own."""
    end, bins = np.array([rows]), np.minimum(np.arange(rows, dtype=np.int32), read)[:, None]
    blocks = Blocks(np.arange(rows, dtype=np.int32), np.zeros(1, dtype=np.int64), end, request.run)
    slots, start = np.array([read + 1], dtype=np.int32), np.zeros(1, dtype=np.int32)
    sizes, sent = Sizes.of_scale(request.log_delta), Ciphertext(request.seed.tobytes(), request.ciphertext)
    public = PublicKey(opening.key_seed.tobytes(), opening.key)
    sums = public.sum(sent, blocks, [bins], start, start, slots, sizes, 1)
    return secret.decrypt(sums, request.run, read + 1, sizes, 1)[0, :read, 0]


def _read_vector(own: JobRandomness, asked: MasksRequest, request: VectorRequest, rows: int, read: int) -> Int64Array:
    """The same for a vector under reusable masks."""
    sizes, seed, noise = MaskSizes(asked.log_flood, asked.sum_bits), asked.seed.tobytes(), Csprng().bytes(KEY_BYTES)
    bins, offsets = (
        np.minimum(np.arange(rows), read).astype(np.uint16)[:, None],
        np.array([0, read + 1], dtype=np.int32),
    )
    all_rows, slots = np.arange(rows, dtype=np.int32), np.arange(read + 1, dtype=np.int32)
    masks, hiding = make_masks(seed, sizes, offsets, 0, read + 1, noise, 1, all_rows, bins)
    sums = answer(add_rows(request.numbers[0], bins, offsets), request.parts[0], slots, hiding, sizes, noise, 1)
    key = vector_key(own, request.nonces[0].tobytes())
    return MaskOwner(seed, rows, sizes).decrypt(sums, slots, masks, key, 1)[:read, 0]


def strip_noise(share: ModelShare, folder: Path | None = None) -> Outcome | None:
    """Remove the noise from the leaves of the first tree; this succeeds if all counts of positives are integers.

    The keys are those derived from the seed in the model, as in release 0.1.0 and as by `unsafe_noise_seed`, and every
    file in `folder` of a key's size. A key may have drawn noise by position, as in release 0.1.0, or by content: then
    counts are guessed, and right guesses reproduce the noise. Two leaves give integers by chance with a probability
    below 1e-6. At most `MOST_GUESSES` guesses are tried. None if the model has no such leaves.
    """
    skeleton = share.skeleton
    if skeleton is None or skeleton.protocol != "sealed" or skeleton.trees_per_round != 1 or not skeleton.trees:
        return None
    keys = _keys_of(skeleton.config.random_state, share.party)
    files = sorted(folder.rglob("*")) if folder is not None else []
    keys |= {each.name: each.read_bytes() for each in files if each.is_file() and each.stat().st_size == KEY_BYTES}
    leaves = _Leaves(skeleton)
    if len(leaves.rows) < 2:
        return None
    few = leaves.guesses <= MOST_GUESSES
    for name, key in keys.items():
        found = leaves.by_position(JobRandomness(key))
        if found is None and few:
            found = leaves.by_content(JobRandomness(key))
        if found is not None:
            counts = ", ".join(f"{k} of {n}" for k, n in zip(found.tolist(), leaves.rows.tolist(), strict=True))
            return Outcome("leaves stripped", 1.0, 0.0, 1.0, 1.0, f"{name} gives the positives of all leaves: {counts}")
    left = "" if few else f"; noise by content was not tried: {leaves.guesses:.0e} combinations of counts"
    return Outcome("leaves stripped", 0.0, 0.0, 0.0, 0.0, f"none of {len(keys)} keys removes the noise{left}")


class _Leaves:
    """The leaves of the first tree, where every g is 1/2 or -1/2 and every h is 1/4."""

    def __init__(self, skeleton: Skeleton) -> None:
        tree, config = skeleton.trees[0], skeleton.config
        depth = np.zeros(tree.nodes, dtype=np.int64)
        for node in np.flatnonzero(tree.left >= 0):
            depth[tree.left[node] : tree.left[node] + 2] = depth[node] + 1
        leaves = np.flatnonzero(tree.left < 0)
        by_level = [np.flatnonzero(depth[leaves] == level) for level in np.unique(depth[leaves])]
        self._levels, cover = by_level, tree.cover[leaves]
        self._scale: Scale = choose_scale(
            *skeleton.loss.bounds(1.0, np.zeros(1), np.zeros(1)), 1.0, config.gradient_bits
        )
        self.rows = np.rint(4.0 * cover).astype(np.int64)
        # The noisy sums of g, and their uncertainty, because weights have single precision.
        self._sums: Float64Array = (
            -tree.weight[leaves].astype(np.float64) / config.learning_rate * (cover + config.reg_lambda)
        )
        self._uncertainty = np.abs(self._sums) * 2.0**-23 + 4.0 * self._scale.g_unit
        noise = parameters.label_noise(parameters.options_of(config), config.n_estimators, config.max_depth)
        self._sigma, self._event = noise.leaf_sigma, repr(parameters.leaf_event(noise, 0, 2))
        centre, reach = self.rows / 2.0 - self._sums, WINDOW * self._sigma
        self._low = np.maximum(np.ceil(centre - reach), 0).astype(np.int64)
        self._high = np.minimum(np.floor(centre + reach), self.rows).astype(np.int64)

    @property
    def guesses(self) -> int:
        widths = np.maximum(self._high - self._low + 1, 1)
        return sum(math.prod(widths[level].tolist()) for level in self._levels)

    def by_position(self, key: JobRandomness) -> Int64Array | None:
        """The positives of all leaves, if noise was drawn by round and level."""
        noise = np.empty(len(self.rows))
        for number, level in enumerate(self._levels):
            noise[level] = self._drawn(key, ("leaves", 0, number), len(level))
        exact = self.rows / 2.0 - (self._sums - noise)
        found = np.rint(exact)
        fits = (np.abs(exact - found) <= self._uncertainty) & (found >= 0) & (found <= self.rows)
        return found.astype(np.int64) if fits.all() else None

    def by_content(self, key: JobRandomness) -> Int64Array | None:
        """The positives of all leaves, if noise was drawn by the sums that it hides."""
        found, closed = np.empty(len(self.rows), dtype=np.int64), b""
        for level in self._levels:
            for guess in itertools.product(*(range(self._low[leaf], self._high[leaf] + 1) for leaf in level)):
                g, rows = self.rows[level] / 2.0 - np.array(guess), self.rows[level]
                exact = np.stack((g / self._scale.g_unit, rows / 4.0 / self._scale.h_unit), axis=1).astype(np.int64)
                digest = content_digest(key, self._event, closed, exact)
                noise = self._drawn(key, ("leaves", digest), len(level))
                if (np.abs(g + noise - self._sums[level]) <= self._uncertainty[level]).all():
                    found[level], closed = guess, digest
                    break
            else:
                return None
        return found

    def _drawn(self, key: JobRandomness, name: tuple[str | int | bytes, ...], count: int) -> Float64Array:
        unit = self._scale.g_unit
        return discrete_gaussian(key.for_request(*name), self._sigma / unit, count).astype(np.float64) * unit
