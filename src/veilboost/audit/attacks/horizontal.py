"""Attacks by servers and helpers: labels, buckets and extremes of columns in `mal`, counts and values in `secagg`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from veilboost.audit.attack import Outcome, balanced_accuracy, declare, share_right
from veilboost.audit.solvers import between, least_squares
from veilboost.audit.view import Truth, View
from veilboost.boost.bins import equal_width
from veilboost.crypto.ore import api as ore
from veilboost.crypto.ore.schemes import scheme_named
from veilboost.data.table import PartyTable
from veilboost.fixedpoint import to_ordered
from veilboost.protocols.mal.messages import ComparisonKey, EncryptedExtremes, MaskedRows
from veilboost.protocols.mal.parameters import MalOptions
from veilboost.protocols.secagg.messages import CountsRequest, MaskedCounts
from veilboost.types import BoolArray, Column, Float64Array, Int64Array, PartyName, UInt8Array, UInt32Array, UInt64Array

MOST_ROWS = 3_000  # of a participant: with more rows per equation little can be recovered
_CLEAR = 1 - 1e-6  # leverage above which a mask is only rounding
_ENDS = ("low", "high")  # each end of each column has its own key
_NEAR = 0.1  # relative error below which a value counts as known
_LEAST, _MOST = ore.to_ordered(-1e300), ore.to_ordered(1e300)
_NARROW = 4.0  # ratio of ends up to which an interval is more precise than the known value


@dataclass(frozen=True)
class BucketSums:
    """One participant's rows: `inside` (slots, rows) marks the buckets of rows; `masked` (rows, classes) the labels.

    `others` is the label that the other participants' sums predict for a row, and `baseline` its balanced accuracy:
    what a server knows of a row without the row's own label, as from any model. `labels` are for scoring.
    """

    inside: Float64Array
    masked: Float64Array
    others: Float64Array
    baseline: float
    labels: Float64Array

    @property
    def rows(self) -> int:
        return self.inside.shape[1]

    @property
    def sums(self) -> Float64Array:
        """Sums (slots, classes) of zeros and ones, so integers up to rounding."""
        return np.rint(self.inside @ self.masked)

    def projected(self) -> Float64Array:
        """The labels (rows, classes) projected onto the span of the buckets: the shortest vector with these sums."""
        return least_squares(self.inside, self.sums)

    def leverage(self) -> Float64Array:
        """The share of each row's label that the sums alone determine: at 1, no mask that cancels can hide it."""
        _, size, directions = np.linalg.svd(self.inside, full_matrices=False)
        return (directions[size > 1e-9 * size.max(initial=0.0)] ** 2).sum(axis=0)

    def classes(self, score: Float64Array) -> Float64Array:
        """Labels by scores (rows, classes); with two classes, the sums determine the size of the second."""
        return _classes(score, self.masked.sum(axis=0))


def bucket_sums(view: View, truth: Truth, victim: PartyName) -> BucketSums | None:
    """A participant's rows as sent; None if they are missing or too many, or if the labels are not classes."""
    sent, labels = view.received(MaskedRows, victim), truth.labels(victim)
    # A participant that dropped rows does not report which: no guess can be scored.
    if not sent or len(sent[-1].buckets) != len(labels) or len(labels) > MOST_ROWS:
        return None
    masked = np.ascontiguousarray(sent[-1].labels.T)
    if not np.isin(labels, np.arange(max(2, masked.shape[1]))).all() or len(np.unique(labels)) < 2:
        return None
    inside = _indicators(sent[-1].buckets, sent[-1].buckets)
    rest = [each for peer in view.peers if peer != victim for each in view.received(MaskedRows, peer)[-1:]]
    others = _classes(_by_others(sent[-1].buckets, rest, masked.shape[1]), masked.sum(axis=0))
    baseline = max(balanced_accuracy(labels, others, "").value, 1 / len(np.unique(labels)))
    return BucketSums(inside, masked, others, baseline, labels)


def _classes(score: Float64Array, totals: Float64Array) -> Float64Array:
    if score.shape[1] > 1:
        return score.argmax(axis=1).astype(np.float64)
    guess = np.zeros(len(score))
    guess[np.argsort(-score[:, 0], kind="stable")[: max(round(float(totals[0])), 0)]] = 1.0
    return guess


def _by_others(target: UInt8Array, rest: list[MaskedRows], classes: int) -> Float64Array:
    """A regression on buckets with a ridge of one row per bucket; it needs only sums."""
    slots = _indicators(target, target)
    gram, sums = np.eye(len(slots)), np.zeros((len(slots), classes))
    for each in rest:
        inside = _indicators(target, each.buckets)
        gram += inside @ inside.T
        sums += inside @ each.labels.T
    return slots.T @ np.linalg.solve(gram, sums)


def _indicators(named: UInt8Array, buckets: UInt8Array) -> Float64Array:
    """Indicators (slots, rows of `buckets`) of the buckets that occur in `named`, column by column."""
    return np.concatenate(
        [buckets[:, column] == np.unique(named[:, column])[:, None] for column in range(named.shape[1])]
    ).astype(np.float64)


@declare("labels from sums per bucket", "server", "participant", "labels", (MaskedRows,))
def mal_labels(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from their sums per bucket, by linear programming and by projection.

    Each sum is an equation about labels of zero and one. Up to about two rows per equation, only one vector between 0
    and 1 fits: the labels (Mangasarian and Recht, 2011). Beyond that, the projection of the labels onto the buckets
    still ranks rows, and the number of ones is also a sum.
    """
    seen = bucket_sums(view, truth, victim)
    if seen is None:
        return None
    guess, only = labels_from_sums(seen, rng)
    how = "no other labels have these sums: they give" if only else "masked labels projected onto the buckets give"
    found = balanced_accuracy(
        seen.labels,
        guess,
        f"{len(seen.inside)} sums about {seen.rows} rows; {how} {{value:.3f}} of the labels; the other "
        f"participants' sums give {seen.baseline:.3f}",
    )
    # The remaining uncertainty about a label is partly random: a quarter of the way counts as success.
    return replace(found, baseline=seen.baseline, bar=seen.baseline + (1 - seen.baseline) / 4)


def labels_from_sums(seen: BucketSums, rng: np.random.Generator) -> tuple[Float64Array, bool]:
    """The label of each row, and whether it is the only solution: both directions reach the same point."""
    near, sums, highest = seen.projected(), seen.sums, np.ones(seen.rows)
    fitting = near.copy()
    for each in range(sums.shape[1]):
        towards = rng.normal(size=seen.rows)
        one, other = (between(sign * towards, seen.inside, sums[:, each], highest) for sign in (1.0, -1.0))
        if one is None or other is None or np.abs(one - other).max() > 1e-3:
            return seen.classes(near), False
        fitting[:, each] = one
    return seen.classes(fitting), True


@declare("labels that no mask can hide", "server", "participant", "labels", (MaskedRows,))
def mal_zero_masks(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels in the clear, because every mask that cancels in all buckets is zero at their rows."""
    seen = bucket_sums(view, truth, victim)
    if seen is None:
        return None
    clear = seen.leverage() > _CLEAR
    read = seen.masked.argmax(axis=1) if seen.masked.shape[1] > 1 else seen.masked[:, 0] > 0.5
    found = balanced_accuracy(
        seen.labels,
        np.where(clear, read, seen.others),
        f"{int(clear.sum())} of {seen.rows} labels are in the clear; these, and the other participants' sums for the "
        "rest, give {value:.3f} of the labels",
    )
    return replace(found, baseline=seen.baseline)


@declare("buckets as sent", "server", "participant", "features", (MaskedRows,))
def mal_buckets(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Buckets as sent: randomized response reports the true bucket more often than any other."""
    sent, table = view.received(MaskedRows, victim), truth.tables[victim]
    if not sent or len(sent[-1].buckets) != table.rows:
        return None
    numeric = [at for at, column in enumerate(table.columns) if column.categories is None]
    hits: list[BoolArray] = []
    fullest: list[float] = []
    for at, low, high in zip(numeric, sent[-1].low.tolist(), sent[-1].high.tolist(), strict=True):
        values = table.columns[at].values
        there = np.isfinite(values)
        if there.any():
            # All participants and the server receive the ranges, which determine the buckets.
            cuts = equal_width(low, high, view.config.max_bin)
            true = cuts.searchsorted(values[there], side="right")
            hits.append(sent[-1].buckets[there, at] == true)
            fullest.append(float(np.bincount(true).max() / len(true)))
    if not fullest:
        return None
    every = np.concatenate(hits)
    common = float(np.mean(fullest))
    sentence = f"{float(every.mean()):.3f} of the buckets sent are the true ones; the fullest bucket holds {common:.3f}"
    return share_right("buckets right", every, common, sentence, clusters=table.rows)


@declare("extremes of columns as sent", "server", "participant", "the lowest and highest value of all", (MaskedRows,))
def mal_ends(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The lowest and highest value of each column: exact values of single rows that everybody receives."""
    sent = view.received(MaskedRows)
    numeric = [
        [table.columns[at].values.astype(np.float64) for table in truth.tables.values()]
        for at, column in enumerate(truth.tables[victim].columns)
        if column.categories is None
    ]
    if not sent or not numeric:
        return None
    own = list(truth.tables).index(victim)
    received = np.stack((sent[-1].low, sent[-1].high), axis=1)
    mine = np.array([(np.nanmin(column[own]), np.nanmax(column[own])) for column in numeric])
    every = [np.concatenate(column) for column in numeric]
    owned = mine == np.array([(np.nanmin(column), np.nanmax(column)) for column in every])
    if not owned.any():
        return None
    value = float((received == mine)[owned].mean())
    sentence = f"{int(owned.sum())} extremes of columns are values of single rows of {victim}; everybody receives them"
    return Outcome("extremes received", value, 0.0, value, value, sentence)  # exact, so there is no interval


@declare(
    "extremes from their first difference", "comparer", "participant", "lowest and highest values", (EncryptedExtremes,)
)
def mal_extremes(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """A participant's lowest and highest values, inferred by a comparer that knows those of another participant.

    Order-revealing encryption reveals more than an order to the comparer: the position of the first difference of two
    values. With one value known, the comparer has the other's bits before that position and their order. How much this
    reveals depends on the scheme: the position of a bit reveals most, that of a byte little; without a position only
    the order is revealed.
    """
    sent = {peer: view.received(EncryptedExtremes, peer) for peer in truth.tables}
    known = next((peer for peer, found in sent.items() if found and peer != victim), None)
    keys = view.received(ComparisonKey)
    if known is None or not sent[victim] or not keys:
        return None
    options = MalOptions.from_dict(view.config.options)
    scheme = scheme_named(options.ore, options.ore_bits)
    values, anchors = (_extremes(truth.tables[peer].columns) for peer in (victim, known))
    ours, theirs = sent[victim][-1], sent[known][-1]
    guesses: list[tuple[float, float, float]] = []
    bits: list[int] = []
    for column in np.flatnonzero(ours.present & theirs.present).tolist():
        for end, name in enumerate(_ENDS):
            key = ore.derive(keys[-1].comparison.tobytes(), column, name)
            pair = [each.ciphertexts[column, end].tobytes() for each in (ours, theirs)]
            anchor = float(anchors[column, end])
            order, first = scheme.compare(key, *pair), scheme.first_difference(key, *pair)
            bits.append(first.stop if first.stop - first.start <= 1 else first.start)
            guesses.append((float(values[column, end]), guess_from(anchor, order, first, scheme.bits), anchor))
    true, guess, without = np.array(guesses).reshape(-1, 3).T
    if not len(true):
        return None
    hits, chance = (np.abs(each - true) <= _NEAR * np.abs(true) for each in (guess, without))
    return share_right(
        f"extremes within {_NEAR:.0%}",
        hits,
        float(chance.mean()),
        f"a comparer that knows one participant's extremes learns {np.mean(bits):.1f} of {scheme.bits} bits of "
        f"another's by {scheme.name}, and comes within {_NEAR:.0%} of {int(hits.sum())} of {len(hits)}",
    )


def guess_from(anchor: float, order: int, first: range, bits: int) -> float:
    """A value above (1), below (-1) or equal to (0) the anchor whose first different bit is in this range."""
    if order == 0:
        return anchor
    own = ore.to_ordered(anchor) >> (64 - bits)
    below = bits - first.start  # bits that are not shared
    low = own >> below << below
    high = low + (1 << below) - 1
    half = low + (1 << below - 1)
    if len(first) == 1:  # the bit itself differs
        low, high = (half, high) if order > 0 else (low, half - 1)
    low, high = (max(low, own), high) if order > 0 else (low, min(high, own))
    lowest, highest = (ore.from_ordered(min(max(end << (64 - bits), _LEAST), _MOST)) for end in (low, high))
    small, large = sorted((abs(lowest), abs(highest)))
    narrow = lowest * highest > 0 and large <= _NARROW * small
    return (lowest + highest) / 2 if narrow else anchor


def _extremes(columns: Sequence[Column]) -> Float64Array:
    """The true extremes (numeric columns, 2)."""
    numeric = [column.values.astype(np.float64) for column in columns if column.categories is None]
    return np.array([(np.nanmin(each), np.nanmax(each)) if np.isfinite(each).any() else (0, 0) for each in numeric])


@dataclass(frozen=True)
class Counted:
    """One step of the quantile search: values (columns, values), one masked answer, and the sum of all answers."""

    values: UInt32Array
    masked: UInt64Array
    total: Int64Array
    participants: int


def counted(view: View, participant: PartyName) -> Iterator[Counted]:
    """All steps in the server's view. Masks cancel in the sum over all participants."""
    answers = {peer: found for peer in view.peers if (found := view.received(MaskedCounts, peer))}
    for step, request in enumerate(view.sent(CountsRequest, participant)):
        shares = [each[step].counts for each in answers.values() if len(each) > step]
        if len(shares) == len(answers):
            total: UInt64Array = np.stack(shares).sum(axis=0)
            yield Counted(request.values, answers[participant][step].counts, total.view(np.int64), len(shares))


def sorted_values(table: PartyTable, ordinal: bool) -> list[UInt32Array]:
    """A table's numeric columns (and ordinal categories), sorted as in the search."""
    found: list[UInt32Array] = []
    for column in table.columns:
        if column.categories is None or ordinal:
            there = np.isfinite(column.values) if column.categories is None else column.values >= 0
            found.append(np.sort(to_ordered(column.values[there].astype(np.float32))))
    return found


@declare("one masked count", "server", "participant", "its own sums, counts and gradients", (MaskedCounts,))
def secagg_shares(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Whether a participant's count is above the average, read from its masked answer as if there were no mask.

    With sound masks an answer is uniform, and the guess is a coin toss.
    """
    own = sorted_values(truth.tables[victim], view.config.categories == "ordinal")
    true: list[BoolArray] = []
    guess: list[BoolArray] = []
    for step in counted(view, victim):
        pairs = zip(own, step.values, strict=True)
        counts = np.array([np.searchsorted(column, probed, side="right") for column, probed in pairs], dtype=np.int64)
        average = step.total / step.participants
        differs = counts != average
        true.append((counts > average)[differs])
        guess.append((step.masked.view(np.int64) > average)[differs])
    every, guesses = (np.concatenate([np.empty(0, dtype=np.bool_), *each]) for each in (true, guess))
    if len(np.unique(every)) < 2:
        return None
    return balanced_accuracy(
        every, guesses, f"whether each of {len(every)} counts is above the average: {{value:.3f}} of guesses are right"
    )


@declare("values found by the quantile search", "server", "participant", "rows, through sums of all", (MaskedCounts,))
def secagg_values(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Exact values of single rows, from the search for quantiles over all participants.

    The search ends at the two values around a cut point. If the counts of two neighbouring numbers differ, some
    participant has the larger one; the search does not reveal which.
    """
    own = sorted_values(truth.tables[victim], view.config.categories == "ordinal")
    steps = list(counted(view, victim))
    if not steps or not own:
        return None
    hits: list[BoolArray] = []
    for at, column in enumerate(own):
        probed, places = np.unique(np.concatenate([step.values[at] for step in steps]), return_index=True)
        found = _present(probed, np.concatenate([step.total[at] for step in steps])[places])
        hits.append(np.isin(column, found))
    every = np.concatenate(hits)
    sentence = (
        f"{float(every.mean()):.3f} of the values of {victim} are known exactly after {len(steps)} steps of the "
        "quantile search, but not whose they are"
    )
    return share_right("values known", every, 0.0, sentence)


def _present(probed: UInt32Array, counts: np.ndarray) -> UInt32Array:
    """Numbers that occur as values: the count at such a number exceeds the count at the number before."""
    next_to = probed[1:] == probed[:-1] + np.uint32(1)
    return probed[1:][next_to & (counts[1:] > counts[:-1])]
