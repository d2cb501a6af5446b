"""Which rows lie in which bin, from sums per node and bin that an active party read, whatever they travelled under."""

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
from veilboost.crypto.lattice.keys import EncryptedSums, SecretKey, Sizes
from veilboost.crypto.paillier.ciphertexts import PairPacking
from veilboost.crypto.paillier.keys import PreparedRandomness
from veilboost.protocols.lattice.messages import LatticeRequest, LatticeSums, cut_into_blocks, value_bits
from veilboost.protocols.paillier.messages import PaillierRound, PaillierSums
from veilboost.protocols.vertical.messages import BeginRound, BeginTraining, ClearSums, ColumnsOffered
from veilboost.protocols.vertical.round_state import ColumnShuffle
from veilboost.types import BoolArray, Float64Array, Int32Array, Int64Array, PartyName

MOST_EQUATIONS, MOST_CELLS, COLUMNS = 1500, 30_000_000, 2
PROGRAM_SIZE = 5_000  # rows times bins that linear programs are solved for
LINKING, PASSES = 400, 3  # nodes of the nearest rounds that tell which column is which, and how often all are asked


@declare("bins from sums", "active", "passive", "features", (ClearSums, PaillierSums, LatticeSums))
def histogram_bins(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Which rows lie in which bin, from exact sums per bin over many nodes and trees.

    Every sum is an equation about the rows of a bin, with coefficients that the active party knows: its own gradients.
    The solution nearest to the prior names many bins; where rows are few, a linear program with every row in [0, 1]
    names all of them (a vector of zeros and ones is determined by half as many equations as rows, Mangasarian and
    Recht). The sides of winning cuts, which every protocol tells, narrow the bins down before; the baseline is what
    they give alone.
    """
    seen = histograms(view, truth, victim, rng)
    block = truth.block(victim)
    if seen is None or block.shared is None:
        return None
    nodes = _chosen(seen, view.rows)
    coefficients, known = equations(nodes, view.rows)
    fit = np.unique(np.concatenate([node.rows for node in nodes]))
    hits: list[BoolArray] = []
    chances: list[float] = []
    for column in rng.permutation(seen.layout.features)[:COLUMNS].tolist():
        low, high = int(seen.layout.offsets[column]), int(seen.layout.offsets[column + 1])
        possible = seen.possible(column, view.rows)[fit]
        guess = _solve(coefficients[:, fit], known[:, low:high], possible).argmax(axis=1)
        # Columns of the same shape stand in an order that the active party is not told: it finds the bins of one of
        # them, and is scored by the one it comes nearest to.
        alike = np.flatnonzero(seen.layout.widths == seen.layout.widths[column])
        own = block.shared.bins[0][fit][:, alike].astype(np.int64)
        nearest = own[:, int((own == guess[:, None]).mean(axis=0).argmax())]
        hits.append(nearest == guess)
        by_sides = possible[np.arange(len(fit)), nearest] / possible.sum(axis=1)
        chances.append(max(float(by_sides.mean()), float(np.bincount(nearest).max() / len(fit))))
    rate, chance, each = float(np.mean(hits)), float(np.mean(chances)), len(fit) / max(len(coefficients), 1)
    sentence = (
        f"{rate:.3f} of rows are put into their true bin from {len(coefficients)} equations about {len(fit)} rows "
        f"({each:.2g} rows to an equation); the sides of winning cuts alone give {chance:.3f}"
    )
    return share_right("bins right", np.concatenate(hits), chance, sentence, clusters=len(fit))


def _chosen(seen: Histograms, rows: int) -> list[Summed]:
    """The smallest nodes tell most about each of their rows; no more of them than fit into memory."""
    most = max(1, min(MOST_EQUATIONS, MOST_CELLS // max(rows, 1)) // 2)
    return sorted(seen.nodes, key=lambda node: len(node.rows))[:most]


def _solve(a: Float64Array, known: Float64Array, possible: BoolArray) -> Float64Array:
    """How much each row (rows, bins) belongs to each bin of one column; nothing where it cannot."""
    guess = least_solution(a, known, possible / possible.sum(axis=1, keepdims=True))
    if guess.size <= PROGRAM_SIZE:
        for each in range(known.shape[1]):
            solved = between(guess[:, each] - 0.5, a, known[:, each], possible[:, each].astype(np.float64))
            if solved is not None:
                guess[:, each] = solved
    return np.where(possible, guess, -np.inf)


# --- the sums, column by column over rounds --------------------------------------------------------------------------


@dataclass(frozen=True)
class Summed:
    """Sums of one node: its rows with their (g, h), and (slots, 2) that the passive party's bins add up to."""

    round: int
    depth: int
    rows: Int32Array
    gradients: Int32Array
    sums: Int64Array


@dataclass(frozen=True)
class Cut:
    """A winning cut: rows of a node whose bin of a column is at most `place`, and rows whose bin is above."""

    column: int
    place: int
    left: Int32Array
    right: Int32Array


@dataclass(frozen=True)
class Histograms:
    """All nodes that were summed, and the winning cuts, whose sides every protocol tells.

    Columns of later rounds stand where those of the first round stood.
    """

    layout: BinLayout
    nodes: Sequence[Summed]
    cuts: Sequence[Cut]

    def possible(self, column: int, rows: int) -> BoolArray:
        """(rows, bins) that the sides of winning cuts alone leave open."""
        open_: BoolArray = np.ones((rows, int(self.layout.widths[column])), dtype=np.bool_)
        for cut in self.cuts:
            if cut.column == column:
                open_[cut.left, cut.place + 1 :] = False
                open_[cut.right, : cut.place + 1] = False
        # Where a column was taken for another one nothing may be left: then nothing is known.
        open_[~open_.any(axis=1)] = True
        return open_


def histograms(view: View, truth: Truth, peer: PartyName, rng: np.random.Generator) -> Histograms | None:
    """What the active party read of one passive party; None where it read no sums per bin."""
    offered = view.received(ColumnsOffered, peer)
    gradients = own_gradients(view)
    if not offered or gradients is None or view.config.colsample_bytree < 1.0 or view.config.proposal != "global":
        return None
    layout = BinLayout(offered[0].offsets, offered[0].missing, offered[0].kind)
    if view.sums.counts:
        gradients = [np.stack((each[..., 0], np.ones_like(each[..., 1])), axis=-1) for each in gradients]
    reader, again = SumsReader(view, layout), _SumsAgain(truth.block(peer), len(gradients), rng)
    noised = view.sums.noise_bits(view.config) > 0
    by_round: list[list[Summed]] = []
    played = rounds(view, peer)[: len(gradients)]
    for one in played:
        found: list[Summed] = []
        for depth, level in enumerate(one.levels):
            sums = reader.read(level, one.opening)
            if sums is None and not noised:
                sums = again.make(one.number, level, gradients[one.number])
            if sums is None:
                break  # `elxgb` sums its first tree only
            build = level.build
            for k in range(build.nodes):
                rows = build.rows[build.begin[k] : build.end[k]]
                own = gradients[one.number][build.group[k], rows]
                found.append(Summed(one.number, depth, rows, own, sums[k]))
        if not found:
            break
        by_round.append(found)
    # Columns change places every round where sums are encrypted.
    in_order = bool(view.received(ClearSums, peer))
    moved = _unmoved(layout, by_round) if in_order else _relinked(layout, by_round, view.rows)
    nodes = [replace(node, sums=node.sums[moved[k]]) for k, found in enumerate(by_round) for node in found]
    cuts = [cut for k, order in enumerate(moved) for level in played[k].levels for cut in _cuts(layout, level, order)]
    return Histograms(layout, nodes, [] if again.used else cuts) if nodes else None


def equations(nodes: Sequence[Summed], rows: int) -> tuple[Float64Array, Float64Array]:
    """Coefficients (equations, rows) and right sides (equations, slots), each equation scaled to length 1."""
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
    """Of all (rows, slots) that solve the equations the one nearest to the prior, (slots) or (rows, slots)."""
    gram = a @ a.T + 1e-6 * np.eye(len(a))  # equations have length 1: the ridge only helps repeated ones
    start = np.broadcast_to(prior, (a.shape[1], known.shape[1]))
    return start + a.T @ np.asarray(np.linalg.solve(gram, known - a @ start), dtype=np.float64)


def prior_of(layout: BinLayout) -> Float64Array:
    """The chance of each slot when nothing is known: quantile bins hold about the same."""
    return np.repeat(1.0 / layout.widths, layout.widths)


class SumsReader:
    """Reads a level's answer as the active party did, with its own key where it needs one."""

    def __init__(self, view: View, layout: BinLayout) -> None:
        self._layout, self._rows = layout, view.rows
        opening = view.sent(BeginTraining)
        self._value_bits = value_bits(view.config, opening[0].weight_bits if opening else 0)
        self._value_bits += view.sums.noise_bits(view.config)
        self._key = None if view.secret is None else SecretKey(view.secret.for_request("lattice key"))
        self._owner = view.secret.owner if isinstance(view.secret, PreparedRandomness) else None

    def read(self, level: ReplayedLevel, opening: BeginRound) -> Int64Array | None:
        """(nodes of the level that were summed, slots, 2); None where the view cannot open the answer."""
        answer, request = level.answer, level.request
        if isinstance(answer, ClearSums):
            return answer.sums
        if isinstance(answer, LatticeSums) and isinstance(request, LatticeRequest) and self._key is not None:
            # Where a level's ciphertexts come in several messages, each is answered for its own blocks.
            told = [each for each in level.messages if isinstance(each, LatticeSums)]
            by_block = self._key.decrypt(
                EncryptedSums(np.concatenate([e.sums for e in told]), np.concatenate([e.masks for e in told])),
                request.run,
                self._layout.slots,
                Sizes(request.log_delta - 2),
                1,
            )
            node, _ = cut_into_blocks(
                level.build, self._rows, Sizes(request.log_delta - 2).rows_per_block(self._value_bits)
            )
            sums = np.zeros((len(request.build), self._layout.slots, 2), dtype=np.int64)
            np.add.at(sums, node, by_block)
            return sums
        if isinstance(answer, PaillierSums) and isinstance(opening, PaillierRound) and self._owner is not None:
            public, count = self._owner.public, len(request.build) * self._layout.slots
            plain = self._owner.decrypt(public.read_units(answer.packages))
            pairs = PairPacking(opening.g_bits, opening.h_bits).unpack(plain, count, public.n)
            return pairs.reshape(len(request.build), self._layout.slots, 2)
        return None


class _SumsAgain:
    """The active party's key ends with its job; then the exact sums that it decrypted are made again.

    That what it decrypted are the exact sums, columns in an order of the round's own, is what the protocol's tests say.
    The order is another one here, so the handles of winning cuts mean nothing in it and cuts are not used.
    """

    used = False

    def __init__(self, block: ColumnBlock, rounds: int, rng: np.random.Generator) -> None:
        self._block = block
        self._shown = [ColumnShuffle.draw(block.layout, Csprng(rng.bytes(16))).slots for _ in range(rounds)]

    def make(self, number: int, level: ReplayedLevel, gradients: Int32Array) -> Int64Array | None:
        if self._block.shared is None or not isinstance(level.answer, PaillierSums | LatticeSums):
            return None
        self.used = True
        return self._block.histogram(self._block.shared, gradients, level.build)[:, self._shown[number]]


def _cuts(layout: BinLayout, level: ReplayedLevel, moved: Int64Array) -> Iterator[Cut]:
    """The winning cuts of a level in columns of numbers without missing values; of tied handles the first counts."""
    if level.split_request is None:
        return
    first = np.empty_like(moved)
    first[moved] = np.arange(len(moved))
    handles = level.split_request.handles[level.split_request.starts[:-1]]
    column, place, _ = layout.locate((2 * first[handles >> 1]).astype(np.int32))
    for k, (_, _, left, right) in enumerate(level.sides()):
        if not layout.missing[column[k]] and not layout.kind[column[k]]:
            yield Cut(int(column[k]), int(place[k]), left, right)


def _unmoved(layout: BinLayout, by_round: Sequence[Sequence[Summed]]) -> list[Int64Array]:
    return [np.arange(layout.slots, dtype=np.int64) for _ in by_round]


def _relinked(layout: BinLayout, by_round: Sequence[Sequence[Summed]], rows: int) -> list[Int64Array]:
    """For each round, which slot stands for each slot of the first: columns that look alike change places every round.

    What the rounds before tell predicts a round's sums; of all ways to pair columns of the same shape the one is taken
    that comes nearest to them. Then all is done again with what all other rounds tell.
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
    """The slots of `now` that stand for those of `then`, both (equations, slots)."""
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
