"""Encrypted sums per label, for many labellings of the same ciphertexts, with as few multiplications as we know how.

Every labelling by itself would cost a multiplication per ciphertext. But ciphertexts that have the same labels in all
of several labellings can be multiplied once for all of them. So the labellings are halved again and again, and at
each half those that agree in all of it are merged first: a merge of k costs k - 1 multiplications and saves as many
in each of the two halves below. It never costs more, and for 12 columns of 32 bins about half as much.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from veilboost.crypto.paillier.halves import Halves, join
from veilboost.crypto.paillier.integers import big
from veilboost.crypto.paillier.keys import PublicKey
from veilboost.types import AnyArray, Int64Array

_MOST_CODE = 1 << 62


def sums_by_label(key: PublicKey, values: Halves, labels: AnyArray, widths: Sequence[int]) -> list[int]:
    """Sums of the ciphertexts with each label of each labelling; empty ones are the trivial encryption of 0.

    `labels` is (ciphertexts, labellings), labelling f has labels 0 .. widths[f] - 1; results lie end to end.
    """
    offsets = [0, *itertools.accumulate(widths)]
    sums = [big(1)] * offsets[-1]
    if not sums or not len(values.x):
        return sums
    n, square = key.n, key.square
    pending = [(values, labels, 0, len(widths))]
    while pending:
        items, labels, first, last = pending.pop()
        merged, labels = _merge(items, labels, widths[first:last], square)
        if last - first == 1:
            for x, t, label in zip(merged.x, merged.t, labels[:, 0].tolist(), strict=True):
                sums[offsets[first] + label] = join(x, t, n, square)
            continue
        middle = (first + last) // 2
        pending.append((merged, labels[:, : middle - first], first, middle))
        pending.append((merged, labels[:, middle - first :], middle, last))
    return sums


def _merge(items: Halves, labels: AnyArray, widths: Sequence[int], square: int) -> tuple[Halves, AnyArray]:
    """Items with the same labels throughout become one."""
    codes = _codes(labels, widths)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if len(starts) == len(order):
        return items, labels
    xs, ts = items.x, items.t
    x: list[int] = []
    t: list[int] = []
    at: list[int] = order.tolist()
    for low, high in itertools.pairwise([*starts.tolist(), len(at)]):
        product, total = xs[at[low]], ts[at[low]]
        for k in at[low + 1 : high]:  # the hot loop: one addition of ciphertexts each
            product = product * xs[k] % square
            total += ts[k]
        x.append(product)
        t.append(total)
    return Halves(x, t), labels[order[starts]]


def _codes(labels: AnyArray, widths: Sequence[int]) -> Int64Array:
    """One number per row, equal where all labels are."""
    codes = labels[:, 0].astype(np.int64)
    room = widths[0]
    for column, width in enumerate(widths[1:], start=1):
        if room * width >= _MOST_CODE:
            distinct, codes = np.unique(codes, return_inverse=True)
            room = len(distinct)
        codes = codes * width + labels[:, column]
        room *= width
    return codes
