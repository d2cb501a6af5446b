"""`smm1`: bins from masked columns, and labels from the kernel vectors that mask them."""

from __future__ import annotations

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.attacks.gradients import scored, tells_two_classes
from veilboost.audit.replay import ReplayedLevel, rounds
from veilboost.audit.result import Outcome, share_right
from veilboost.audit.solvers import between, two_valued, used_vectors
from veilboost.audit.view import Truth, View
from veilboost.protocols.smm1.messages import Smm1Request, Smm1Response
from veilboost.protocols.vertical.kernels import KernelOptions
from veilboost.protocols.vertical.messages import ColumnsOffered
from veilboost.types import Float64Array, Int64Array, PartyName

_COLUMNS = 3
KNOWN = 20  # rows whose labels the attacker knows beforehand
_ROWS = 4_000


@declare("masked columns by linear programming", "active", "passive", "features", (Smm1Request,))
def smm1_columns(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """The active party takes its own kernel vectors off the masked columns and reads who is in which bin.

    A masked column is (I - ZZ')m, m a column of zeros and ones. Z are those of the vectors sent that are orthogonal to
    all masked columns; what is left is a two-valued vector behind a projector.
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
    # Columns are shown in a secret order: each is scored as the one it resembles most.
    hits = [max((guess == column for column in true.T), key=lambda each: int(each.sum())) for guess in found]
    common = float(np.mean([np.bincount(column).max() / len(column) for column in true.T]))
    value = float(np.mean(hits))
    return share_right(
        "bins right",
        np.concatenate(hits),
        common,
        f"masked columns of the first root give {value:.3f} of the bins",
        clusters=len(true),
    )


def _bins(
    root: ReplayedLevel, offsets: Int64Array, options: KernelOptions, rng: np.random.Generator
) -> list[Int64Array] | None:
    """The bin of every row by some of the columns shown."""
    request, answer = root.request, root.answer
    if not isinstance(request, Smm1Request) or not isinstance(answer, Smm1Response):
        return None
    rows = int(root.build.counts[0])
    # Where halves were sent the first one masks the same columns, by fewer conditions.
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
    """The last bin that has rows is not sent: it is whoever is in no other."""
    inside, _ = two_valued(seen, hidden, 0.0, 1.0, rng)
    return np.where(inside.any(axis=1), bins[inside.argmax(axis=1)] if inside.shape[1] else bins[-1], bins[-1])


@declare("kernel vectors with some labels known", "passive", "active", "labels", (Smm1Request,))
def smm1_labels(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Labels from the kernel vectors, for a passive party that knows some labels already.

    In the first tree all hessians are equal, and gradients are p - y: vectors orthogonal to both are orthogonal to y.
    That alone is also true of many other vectors between 0 and 1; known labels are what singles y out, where the
    vectors are many enough.
    """
    played = rounds(view, victim)
    if not played or not tells_two_classes(view, played[0]) or not played[0].levels:
        return None
    root = played[0].levels[0]
    request, rows = root.request, int(root.build.counts[0])
    if not isinstance(request, Smm1Request) or request.halves[0] or not KNOWN < rows <= _ROWS:
        return None
    vectors = KernelOptions.from_dict(view.config.options).count(rows, 2)
    kernel = request.kernel[: rows * vectors].reshape(rows, vectors)
    labels = truth.labels(victim)[played[0].fit]
    known = rng.permutation(rows) < KNOWN
    told = -kernel[known].T @ labels[known]  # what the other rows have to bring the products back to 0
    found = between(rng.normal(size=rows - KNOWN), kernel[~known].T, told, np.ones(rows - KNOWN))
    guess = np.zeros(rows - KNOWN) if found is None else (found > 0.5).astype(np.float64)
    return scored(
        truth,
        victim,
        played[0].fit[~known],
        guess,
        f"{vectors} kernel vectors and {KNOWN} known labels give {{value:.3f}} of the other labels",
    )
