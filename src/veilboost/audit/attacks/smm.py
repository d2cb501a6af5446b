"""Attacks on `smm1` and `smm2`: columns and labels, from columns and gradients masked by kernel vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veilboost.audit.attack import Outcome, declare, share_right, wilson
from veilboost.audit.attacks.gradients import labels_of, may_have_classes, may_have_two_classes, scored
from veilboost.audit.replay import ReplayedLevel, rounds
from veilboost.audit.solvers import between, conjugate_gradients, two_valued, used_vectors
from veilboost.audit.view import Truth, View
from veilboost.protocols.smm1.messages import Smm1Request, Smm1Response
from veilboost.protocols.smm2.messages import Smm2Kernels, Smm2Masked, Smm2Options, Smm2Round
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.protocols.vertical.smm import KernelOptions, blocks_of
from veilboost.types import AnyArray, BoolArray, Float64Array, Int32Array, Int64Array, PartyName

_COLUMNS, _ROWS, _CORNER_ROWS = 3, 4_000, 1_000  # the amount of data used
KNOWN = 20  # labels that the attacker knows in advance
_STEPS, _EXACT = 2_000, 1e-11  # of conjugate gradients
_TRIES, _INTEGER = 12, 1e-6  # corners to search for, and the tolerance for integers


@declare("masked columns by linear programming", "active", "passive", "features", (Smm1Request,))
def smm1_columns(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The active party removes its own kernel vectors from the masked columns and reads the bins of rows.

    A masked column is (I - ZZ')m, where m is a column of zeros and ones. Z are the sent vectors that are orthogonal to
    all masked columns; this leaves a two-valued vector behind a projector.
    """
    offered = view.received(ColumnsOffered, victim)
    played = [one for one in rounds(view, victim) if one.levels and one.levels[0].messages]
    if not offered or not played:
        return None
    widths = np.diff(offered[0].offsets).astype(np.int64)
    if not played[0].opening.all_columns:
        widths = widths[played[0].opening.columns]
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(widths)))
    found = _bins(played[0].levels[0], offsets, KernelOptions.from_dict(view.config.options), rng)
    block = truth.block(victim)
    if not found or block.shared is None:
        return None
    true = block.shared.bins[0][played[0].fit].astype(np.int64)
    # Columns are sent in a secret order: each guess is scored by the most similar column.
    hits = [max((guess == column for column in true.T), key=lambda each: int(each.sum())) for guess in found]
    common = float(np.mean([np.bincount(column).max() / len(column) for column in true.T]))
    sentence = f"masked columns of the first root give {float(np.mean(hits)):.3f} of the bins"
    return share_right("bins right", np.concatenate(hits), common, sentence, clusters=len(true))


def _bins(
    root: ReplayedLevel, offsets: Int64Array, options: KernelOptions, rng: np.random.Generator
) -> list[Int64Array] | None:
    """The bin of every row in some of the columns."""
    request, answer = root.request, root.answer
    if not isinstance(request, Smm1Request) or not isinstance(answer, Smm1Response):
        return None
    rows = int(root.build.counts[0])
    # If halves were sent, the first one masks the same columns with fewer conditions.
    vectors = options.count(rows, 1 if request.halves[0] else 2)
    kernel = request.kernel[: rows * vectors].reshape(rows, vectors)
    slots = answer.slots[answer.starts[0] : answer.starts[1]].astype(np.int64)
    column = offsets.searchsorted(slots, side="right") - 1
    shown = np.unique(column)
    masked = answer.masked[: rows * (len(slots) - len(shown))].reshape(-1, rows).T
    hidden, seen = used_vectors(kernel, masked)
    at = 0
    found: list[Int64Array] = []
    for each in shown[:_COLUMNS].tolist():
        bins = slots[column == each] - offsets[each]
        found.append(_of_column(seen[:, at : at + len(bins) - 1], hidden, bins, rng))
        at += len(bins) - 1
    return found


def _of_column(seen: Float64Array, hidden: Float64Array, bins: Int64Array, rng: np.random.Generator) -> Int64Array:
    """The last bin with rows is not sent: it holds the rows that are in no other bin."""
    inside, _ = two_valued(seen, hidden, 0.0, 1.0, rng)
    return np.where(inside.any(axis=1), bins[inside.argmax(axis=1)] if inside.shape[1] else bins[-1], bins[-1])


@declare("kernel vectors with some labels known", "passive", "active", "labels", (Smm1Request,))
def smm1_labels(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the kernel vectors, for a passive party that knows some labels in advance.

    In the first tree all hessians are equal and gradients are p - y: vectors orthogonal to both are orthogonal to y.
    Many other vectors between 0 and 1 satisfy this too; with enough kernel vectors, known labels single out y.
    """
    played = rounds(view, victim)
    if not played or not may_have_two_classes(view, played[0]) or not played[0].levels:
        return None
    root = played[0].levels[0]
    request, rows = root.request, int(root.build.counts[0])
    if not isinstance(request, Smm1Request) or request.halves[0] or not KNOWN < rows <= _ROWS:
        return None
    vectors = KernelOptions.from_dict(view.config.options).count(rows, 2)
    kernel = request.kernel[: rows * vectors].reshape(rows, vectors)
    labels = truth.labels(victim)[played[0].fit]
    known = rng.permutation(rows) < KNOWN
    target = -kernel[known].T @ labels[known]  # products of the other rows, so that all sums are 0
    found = between(rng.normal(size=rows - KNOWN), kernel[~known].T, target, np.ones(rows - KNOWN))
    guess = np.zeros(rows - KNOWN) if found is None else (found > 0.5).astype(np.float64)
    sentence = f"{vectors} kernel vectors and {KNOWN} known labels give {{value:.3f}} of the other labels"
    return scored(truth, victim, played[0].fit[~known], guess, sentence)


@dataclass(frozen=True)
class MaskedBlock:
    """(I - ZZ') times the gradients and hessians (rows, 2) of a node's rows, and Z, a subset of the sent vectors."""

    place: int
    tree: int
    rows: Int32Array
    hidden: Float64Array
    seen: Float64Array
    totals: Int64Array


def masked_blocks(level: ReplayedLevel, options: Smm2Options) -> list[MaskedBlock]:
    """All blocks of all nodes of a level."""
    kernels = next((each for each in level.messages if isinstance(each, Smm2Kernels)), None)
    answer = next((each for each in level.messages if isinstance(each, Smm2Masked)), None)
    if kernels is None or answer is None:
        return []
    build = level.build
    counts = build.counts[kernels.node].tolist()
    vectors = blocks_of(kernels.kernel, [(rows, options.count(rows, 2)) for rows in counts])
    values = blocks_of(answer.masked, [(rows, 2) for rows in counts])
    found: list[MaskedBlock] = []
    for place, kernel, pairs in zip(kernels.node.tolist(), vectors, values, strict=True):
        rows = build.rows[build.begin[place] : build.end[place]]
        hidden, seen = used_vectors(kernel, np.asarray(pairs, dtype=np.float64))
        found.append(MaskedBlock(place, int(build.group[place]), rows, hidden, seen, answer.totals[place]))
    return found


@declare("one masked answer by linear programming", "passive", "active", "labels", (Smm2Kernels,))
def smm2_program(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from one masked answer about the first root, by linear programming.

    In the first tree all hessians are p(1 - p), so their exact sum reveals p, and gradients are p or p - 1: a
    two-valued vector behind a projector that the passive party made itself.
    """
    played = rounds(view, victim)
    if not played or not may_have_two_classes(view, played[0]) or not played[0].levels:
        return None
    opening = played[0].opening
    blocks = masked_blocks(played[0].levels[0], Smm2Options.from_dict(view.config.options))
    if not blocks or not isinstance(opening, Smm2Round):
        return None
    guess = first_labels(blocks[0], opening, rng).astype(np.float64)
    sentence = f"one answer under {blocks[0].hidden.shape[1]} kernel vectors gives {{value:.3f}} of the labels"
    return scored(truth, victim, blocks[0].rows, guess, sentence)


def first_labels(block: MaskedBlock, opening: Smm2Round, rng: np.random.Generator) -> BoolArray:
    """Labels of a block of the first tree, for the p that fits; two values of p match the sum of hessians."""
    gradients = block.seen[:, :1] / 2.0**opening.g_exponent
    spread = float(block.totals[1]) / 2.0**opening.h_exponent / len(block.rows)  # p(1 - p)
    step = float(np.sqrt(max(0.25 - spread, 0.0)))
    mean = float(block.totals[0]) / 2.0**opening.g_exponent / len(block.rows)
    guesses: list[tuple[bool, BoolArray]] = []
    for near in (0.5 - step, 0.5 + step):
        p = round((near - mean) * len(block.rows)) / len(block.rows) + mean  # p - mean is the share of ones
        high, fits = two_valued(gradients, block.hidden, p - 1.0, p, rng)
        guesses.append((bool(fits[0]), ~high[:, 0]))
    return max(guesses, key=lambda each: each[0])[1]


@declare("stacking the answers of a tree", "passive", "active", "labels", (Smm2Kernels,))
def smm2_stacking(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from all answers about one tree.

    Every block of every level reveals n - r' numbers about the same gradients, under a different mask. Once there are
    as many numbers as rows, one linear system gives every gradient and hessian, in any tree and for any loss.
    """
    played = rounds(view, victim)
    if not may_have_classes(view) or not played or not played[-1].levels:
        return None
    last = played[-1]
    options = Smm2Options.from_dict(view.config.options)
    blocks = [block for level in last.levels for block in masked_blocks(level, options)]
    if not blocks:
        return None
    found = np.stack(
        [stacked([each for each in blocks if each.tree == tree], view.rows, 0) for tree in range(last.trees)]
    )
    sentence = f"{len(blocks)} answers about the last round give {{value:.3f}} of the labels"
    return scored(truth, victim, last.fit, labels_of(found[:, last.fit]), sentence)


def stacked(blocks: Sequence[MaskedBlock], rows: int, kind: int) -> Float64Array:
    """Least squares for the gradients (kind 0) or hessians (kind 1) of all rows, 0 for rows without a block.

    The sum over blocks of |P (x - seen)|^2 is smallest where (sum of P) x = sum of seen, each on its own rows.
    """

    def sums(x: Float64Array) -> Float64Array:
        total = np.zeros(rows)
        for block in blocks:
            own = x[block.rows]
            total[block.rows] += own - block.hidden @ (block.hidden.T @ own)
        return total

    known = np.zeros(rows)
    for block in blocks:
        known[block.rows] += block.seen[:, kind]
    return conjugate_gradients(sums, known, _EXACT, _STEPS)


@declare("corners orthogonal to the kernel vectors", "active", "passive", "features", (Smm2Kernels,))
def smm2_columns(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The active party searches for split columns among all vectors that are orthogonal to the kernel vectors.

    Columns of zeros and ones that are orthogonal to all sent vectors are corners of a polytope. With nearly as many
    vectors as rows there are few corners, and most are split columns or unions of bins. With few vectors there are very
    many corners, and nothing identifies the true ones.
    """
    played = [one for one in rounds(view, victim) if one.levels]
    if not played:
        return None
    root = played[0].levels[0]
    rows = int(root.build.counts[0])
    vectors = Smm2Options.from_dict(view.config.options).count(rows, 2)
    kernels = next((each for each in root.messages if isinstance(each, Smm2Kernels)), None)
    if kernels is None or not len(kernels.node) or not 1 < rows <= _CORNER_ROWS or not vectors:
        return None
    kernel = kernels.kernel[: rows * vectors].reshape(rows, vectors)
    corners = [_corner(kernel, rng) for _ in range(_TRIES)]
    block = truth.block(victim)
    if block.shared is None:
        return None
    bins = block.shared.bins[0][played[0].fit]
    hits = np.array([each is not None and union_of_bins(each, bins) for each in corners])
    low, high = wilson(float(hits.mean()), _TRIES)
    return Outcome(
        "corners that are unions of bins",
        float(hits.mean()),
        0.0,
        low if hits.any() else 0.0,
        high,
        f"{int(hits.sum())} of {_TRIES} corners of what {vectors} kernel vectors allow are unions of true bins",
        bar=0.05,  # every such corner reveals assignments of a column; one or two may be luck
    )


def _corner(kernel: Float64Array, rng: np.random.Generator) -> BoolArray | None:
    """A corner of {x orthogonal to the vectors, all entries between 0 and 1}, if all its entries are 0 or 1."""
    rows, vectors = (int(size) for size in kernel.shape)
    x = between(rng.normal(size=rows), kernel.T, np.zeros(vectors), np.ones(rows))
    return x > 0.5 if x is not None and float(np.minimum(x, 1.0 - x).max()) < _INTEGER else None


def union_of_bins(corner: BoolArray, bins: AnyArray) -> bool:
    """Whether a corner is constant on every bin of some column, and not constant on all rows."""
    if not 0 < int(corner.sum()) < len(corner):
        return False
    for own in bins.T:
        inside = np.bincount(own, corner)
        if ((inside == 0) | (inside == np.bincount(own))).all():
            return True
    return False
