"""Bins of rows, from the sums per node and bin that an active party decrypts or receives in the clear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.audit.attack import Outcome, declare, share_right
from veilboost.audit.replay import ReplayedLevel, own_gradients, rounds
from veilboost.audit.solvers import between, nearest_pairs
from veilboost.audit.view import Truth, View
from veilboost.boost.bins import BinLayout
from veilboost.boost.columns import ColumnBlock
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.lattice.expansion import DenseSecretKey, DenseSizes
from veilboost.crypto.lattice.keys import Blocks, EncryptedSums, SecretKey, Sizes
from veilboost.crypto.lattice.masks import MaskOwner, MaskSizes, vector_key
from veilboost.crypto.paillier.ciphertexts import PairPacking
from veilboost.crypto.paillier.keys import PreparedRandomness
from veilboost.protocols.lattice.expansion_active import KEY_NAME, decrypt_nodes
from veilboost.protocols.lattice.messages import (
    BinMasks,
    ExpandedRequest,
    ExpandedSums,
    LatticeRequest,
    LatticeSums,
    MasksRequest,
    VectorRequest,
    VectorSums,
    cut_into_blocks,
    value_bits,
)
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.vertical.messages import BeginRound, BeginTraining, ClearSums, ColumnsOffered
from veilboost.protocols.vertical.round_state import ColumnShuffle
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName

MOST_EQUATIONS, MOST_CELLS, COLUMNS = 1500, 30_000_000, 2
PROGRAM_SIZE = 5_000  # rows times bins that linear programs are solved for
LINKING, PASSES = 400, 3  # nodes of the nearest rounds that identify columns, and passes over all rounds


@declare(
    "bins from sums", "active", "passive", "features", (ClearSums, PaillierSums, LatticeSums, VectorSums, ExpandedSums)
)
def histogram_bins(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The bin of each row, from exact sums per bin over many nodes and trees.

    Each sum is an equation about the rows of a bin, whose coefficients the active party knows: its own gradients. The
    solution nearest to the prior identifies many bins. With few rows, a linear program with every row in [0, 1]
    identifies all of them (half as many equations as rows determine a vector of zeros and ones, Mangasarian and Recht).
    The left/right assignments of winning splits, which every protocol reveals, narrow the bins down first; the baseline
    uses only these.
    """
    seen = histograms(view, truth, victim, rng)
    block = truth.block(victim)
    if seen is None or block.shared is None:
        return None
    nodes = _select(seen, view.rows)
    coefficients, known = equations(nodes, view.rows)
    fit = np.unique(np.concatenate([node.rows for node in nodes]))
    hits: list[BoolArray] = []
    chances: list[float] = []
    for column in rng.permutation(seen.layout.features)[:COLUMNS].tolist():
        low, high = int(seen.layout.offsets[column]), int(seen.layout.offsets[column + 1])
        possible = seen.possible(column, view.rows)[fit]
        guess = _solve(coefficients[:, fit], known[:, low:high], possible).argmax(axis=1)
        # The order of columns of the same shape is hidden from the active party: it finds the bins of one of them and
        # is scored by the nearest one.
        alike = np.flatnonzero(seen.layout.widths == seen.layout.widths[column])
        own = block.shared.bins[0][fit][:, alike].astype(np.int64)
        nearest = own[:, int((own == guess[:, None]).mean(axis=0).argmax())]
        hits.append(nearest == guess)
        by_assignments = possible[np.arange(len(fit)), nearest] / possible.sum(axis=1)
        chances.append(max(float(by_assignments.mean()), float(np.bincount(nearest).max() / len(fit))))
    rate, chance, each = float(np.mean(hits)), float(np.mean(chances)), len(fit) / max(len(coefficients), 1)
    sentence = (
        f"{rate:.3f} of rows are assigned to their true bin from {len(coefficients)} equations about {len(fit)} rows "
        f"({each:.2g} rows per equation); the left/right assignments of winning splits alone give {chance:.3f}"
    )
    return share_right("bins right", np.concatenate(hits), chance, sentence, clusters=len(fit))


def _select(seen: Histograms, rows: int) -> list[Summed]:
    """The smallest nodes, which reveal most about each row, as many as fit into memory."""
    most = max(1, min(MOST_EQUATIONS, MOST_CELLS // max(rows, 1)) // 2)
    return sorted(seen.nodes, key=lambda node: len(node.rows))[:most]


def _solve(a: Float64Array, known: Float64Array, possible: BoolArray) -> Float64Array:
    """The weight (rows, bins) of each bin of one column for each row; -inf for impossible bins."""
    guess = least_solution(a, known, possible / possible.sum(axis=1, keepdims=True))
    if guess.size <= PROGRAM_SIZE:
        for each in range(known.shape[1]):
            solved = between(guess[:, each] - 0.5, a, known[:, each], possible[:, each].astype(np.float64))
            if solved is not None:
                guess[:, each] = solved
    return np.where(possible, guess, -np.inf)


# --- sums of all rounds, with columns matched across rounds ----------------------------------------------------


@dataclass(frozen=True)
class Summed:
    """Sums of one node: its rows with their (g, h), and the sums (slots, 2) per bin of the passive party."""

    round: int
    depth: int
    rows: Int32Array
    gradients: Int32Array
    sums: Int64Array


@dataclass(frozen=True)
class WinningSplit:
    """A winning split: rows of a node whose bin of a column is at most `place` go left, the others right."""

    column: int
    place: int
    left: Int32Array
    right: Int32Array


@dataclass(frozen=True)
class Histograms:
    """All nodes with sums, and the winning splits, whose left/right assignments every protocol reveals.

    The columns of later rounds are in the order of the first round.
    """

    layout: BinLayout
    nodes: Sequence[Summed]
    splits: Sequence[WinningSplit]

    def possible(self, column: int, rows: int) -> BoolArray:
        """The bins (rows, bins) that are consistent with the assignments of winning splits."""
        possible: BoolArray = np.ones((rows, int(self.layout.widths[column])), dtype=np.bool_)
        for split in self.splits:
            if split.column == column:
                possible[split.left, split.place + 1 :] = False
                possible[split.right, : split.place + 1] = False
        # A column that was matched wrongly may leave no bin: then nothing is known.
        possible[~possible.any(axis=1)] = True
        return possible


def histograms(view: View, truth: Truth, peer: PartyName, rng: np.random.Generator) -> Histograms | None:
    """The sums that the active party read of one passive party; None if it read no sums per bin."""
    offered = view.received(ColumnsOffered, peer)
    gradients = own_gradients(view)
    if not offered or gradients is None or view.config.colsample_bytree < 1.0 or view.config.proposal != "global":
        return None
    layout = BinLayout(offered[0].offsets, offered[0].missing, offered[0].kind)
    if view.sums.counts:
        gradients = [np.stack((each[..., 0], np.ones_like(each[..., 1])), axis=-1) for each in gradients]
    # Encrypted sums come with a new column order in every round, unless masks are reused.
    in_order = bool(view.received(ClearSums, peer) or view.received(BinMasks, peer))
    reader, recomputed = (
        SumsReader(view, layout, peer),
        _RecomputedSums(truth.block(peer), in_order, len(gradients), rng),
    )
    noised = view.sums.noise_bits(view.config) > 0
    by_round: list[list[Summed]] = []
    played = rounds(view, peer)[: len(gradients)]
    for one in played:
        found: list[Summed] = []
        for depth, level in enumerate(one.levels):
            sums = reader.read(level, one.opening)
            if sums is None and not noised:
                sums = recomputed.make(one.number, level, gradients[one.number])
            if sums is None:
                break  # `elxgb` has sums of its first tree only
            build = level.build
            for k in range(build.nodes):
                rows = build.rows[build.begin[k] : build.end[k]]
                own = gradients[one.number][build.group[k], rows]
                found.append(Summed(one.number, depth, rows, own, sums[k]))
        if not found:
            break
        by_round.append(found)
    moved = _unmoved(layout, by_round) if in_order else _relinked(layout, by_round, view.rows)
    nodes = [replace(node, sums=node.sums[moved[k]]) for k, found in enumerate(by_round) for node in found]
    splits = [
        split for k, order in enumerate(moved) for level in played[k].levels for split in _splits(layout, level, order)
    ]
    return Histograms(layout, nodes, [] if recomputed.used else splits) if nodes else None


def equations(nodes: Sequence[Summed], rows: int) -> tuple[Float64Array, Float64Array]:
    """Coefficients (equations, rows) and right-hand sides (equations, slots), each equation scaled to norm 1."""
    left: list[Float64Array] = []
    right: list[Float64Array] = []
    for node in nodes:
        for channel in (0, 1):
            weights = np.zeros(rows)
            weights[node.rows] = node.gradients[:, channel]
            size = float(np.linalg.norm(weights))
            if size > 0:
                left.append(weights / size)
                right.append(node.sums[:, channel] / size)
    slots = nodes[0].sums.shape[0] if nodes else 0
    return np.array(left).reshape(len(left), rows), np.array(right).reshape(len(right), slots)


def least_solution(a: Float64Array, known: Float64Array, prior: Float64Array) -> Float64Array:
    """The solution (rows, slots) of the equations that is nearest to the prior, (slots) or (rows, slots)."""
    gram = a @ a.T + 1e-6 * np.eye(len(a))  # equations have norm 1: the ridge matters only for repeated ones
    start = np.broadcast_to(prior, (a.shape[1], known.shape[1]))
    return start + a.T @ np.asarray(np.linalg.solve(gram, known - a @ start), dtype=np.float64)


def prior_of(layout: BinLayout) -> Float64Array:
    """The prior probability of each slot: quantile bins hold about the same number of rows."""
    return np.repeat(1.0 / layout.widths, layout.widths)


class SumsReader:
    """Reads a level's answer as the active party did, with its own key if necessary."""

    def __init__(self, view: View, layout: BinLayout, peer: PartyName) -> None:
        self._layout, self._rows, self._secret = layout, view.rows, view.secret
        # Masks are sent once per session: those of a resumed job replace earlier ones.
        self._masks = [each.masks for each in view.received(BinMasks, peer)]
        self._requests = view.sent(MasksRequest, peer)
        opening = view.sent(BeginTraining)
        self._value_bits = value_bits(view.config, opening[0].weight_bits if opening else 0)
        self._value_bits += view.sums.noise_bits(view.config)
        self._key = None if view.secret is None else SecretKey(view.secret.for_request("lattice key"))
        self._owner = view.secret.owner if isinstance(view.secret, PreparedRandomness) else None

    def read(self, level: ReplayedLevel, opening: BeginRound) -> Int64Array | None:
        """The sums (summed nodes of the level, slots, 2); None if the view cannot decrypt the answer."""
        answer, request = level.answer, level.request
        if isinstance(answer, ClearSums):
            return answer.sums
        if isinstance(answer, LatticeSums) and isinstance(request, LatticeRequest) and self._key is not None:
            # If a level's ciphertexts come in several messages, each has an answer for its own blocks.
            answers = [each for each in level.messages if isinstance(each, LatticeSums)]
            by_block = self._key.decrypt(
                EncryptedSums(np.concatenate([e.sums for e in answers]), np.concatenate([e.masks for e in answers])),
                request.run,
                self._layout.slots,
                Sizes.of_scale(request.log_delta),
                1,
            )
            node, _ = cut_into_blocks(
                level.build, self._rows, Sizes.of_scale(request.log_delta).rows_per_block(self._value_bits)
            )
            sums = np.zeros((len(request.build), self._layout.slots, 2), dtype=np.int64)
            np.add.at(sums, node, by_block)
            return sums
        if isinstance(answer, VectorSums) and isinstance(request, VectorRequest) and self._secret is not None:
            asked = self._requests[-1]
            owner = MaskOwner(asked.seed.tobytes(), self._rows, MaskSizes(asked.log_flood, asked.sum_bits))
            slots, masks = (
                np.arange(self._layout.slots, dtype=np.int32),
                np.concatenate(self._masks)[-self._layout.slots :],
            )
            keys = [vector_key(self._secret, nonce.tobytes()) for nonce in request.nonces]
            nodes = zip(answer.sums, keys, strict=True)
            return np.stack([owner.decrypt(sums, slots, masks, key, 1) for sums, key in nodes])
        if isinstance(answer, ExpandedSums) and isinstance(request, ExpandedRequest) and self._secret is not None:
            end = level.build.counts.cumsum()
            blocks = Blocks(level.build.listed(), end - level.build.counts, end, request.run)
            key, sizes = DenseSecretKey(self._secret.for_request(KEY_NAME)), DenseSizes(request.log_delta)
            return decrypt_nodes(key, answer, blocks, self._layout.slots, sizes, 1)
        if isinstance(answer, PaillierSums) and isinstance(opening, PaillierRound) and self._owner is not None:
            public, count = self._owner.public, len(request.build) * self._layout.slots
            plain = self._owner.decrypt(public.read_units(answer.packages))
            pairs = PairPacking(opening.g_bits, opening.h_bits).unpack(plain, count, public.n)
            return pairs.reshape(len(request.build), self._layout.slots, 2)
        return None


class _RecomputedSums:
    """Recomputes the exact sums that the active party decrypted, for views without its key, which ends with the job.

    The protocol's tests show that the decrypted sums are exact, with a new column order in every round unless they are
    `in_order`. The order drawn here differs, so the handles of winning splits have no meaning in it and splits are not
    used.
    """

    used = False

    def __init__(self, block: ColumnBlock, in_order: bool, rounds: int, rng: np.random.Generator) -> None:
        self._block = block
        own = np.arange(block.layout.slots)
        self._shown = [
            own if in_order else ColumnShuffle.draw(block.layout, Csprng(rng.bytes(16))).slots for _ in range(rounds)
        ]

    def make(self, number: int, level: ReplayedLevel, gradients: Int32Array) -> Int64Array | None:
        if self._block.shared is None or not isinstance(
            level.answer, PaillierSums | LatticeSums | VectorSums | ExpandedSums
        ):
            return None
        self.used = True
        return self._block.histogram(self._block.shared, gradients, level.build)[:, self._shown[number]]


def _splits(layout: BinLayout, level: ReplayedLevel, moved: Int64Array) -> Iterator[WinningSplit]:
    """The winning splits of a level on numeric columns without missing values; the first of tied handles counts."""
    if level.split_request is None:
        return
    first = np.empty_like(moved)
    first[moved] = np.arange(len(moved))
    handles = level.split_request.handles[level.split_request.starts[:-1]]
    column, place, _ = layout.locate((2 * first[handles >> 1]).astype(np.int32))
    for k, (_, _, left, right) in enumerate(level.assignments()):
        if not layout.missing[column[k]] and not layout.kind[column[k]]:
            yield WinningSplit(int(column[k]), int(place[k]), left, right)


def _unmoved(layout: BinLayout, by_round: Sequence[Sequence[Summed]]) -> list[Int64Array]:
    return [np.arange(layout.slots, dtype=np.int64) for _ in by_round]


def _relinked(layout: BinLayout, by_round: Sequence[Sequence[Summed]], rows: int) -> list[Int64Array]:
    """For each round, the slot that corresponds to each slot of the first round.

    Columns of the same shape are permuted in every round. The previous rounds predict a round's sums; columns of the
    same shape are paired to be nearest to the prediction. Further passes predict from all other rounds.
    """
    moved = _unmoved(layout, by_round)
    if layout.features < 2:
        return moved
    shapes: Int64Array = np.stack([layout.widths, layout.missing, layout.kind], axis=1).astype(np.int64)
    for again in range(PASSES):
        for number, found in enumerate(by_round):
            others = [k for k in range(len(by_round)) if (k != number if again else k < number)]
            known = [replace(node, sums=node.sums[moved[k]]) for k in others for node in by_round[k]]
            if not number or not known:
                continue
            a, now = equations(found, rows)
            near = sorted(known, key=lambda node: abs(node.round - found[0].round))[:LINKING]
            then = a @ least_solution(*equations(near, rows), prior_of(layout))
            moved[number] = _paired(layout, shapes, then, now)
    return moved


def _paired(layout: BinLayout, shapes: Int64Array, then: Float64Array, now: Float64Array) -> Int64Array:
    """The slots of `now` that correspond to those of `then`, both (equations, slots)."""
    moved: Int64Array = np.arange(layout.slots, dtype=np.int64)
    for shape in np.unique(shapes, axis=0):
        alike = np.flatnonzero((shapes == shape).all(axis=1))
        slots: list[Int64Array] = [
            np.arange(layout.offsets[column], layout.offsets[column + 1], dtype=np.int64) for column in alike.tolist()
        ]
        gap = np.array([[float(np.square(then[:, p] - now[:, q]).sum()) for q in slots] for p in slots])
        for p, q in nearest_pairs(gap):
            moved[slots[p]] = slots[q]
    return moved
