"""The counts that the search for cuts asked for in `secagg`: every participant's answer, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilboost.audit.view import View
from veilboost.data.table import PartyTable
from veilboost.ordered import to_ordered
from veilboost.protocols.secagg.messages import CountsRequest, MaskedCounts
from veilboost.types import Int64Array, PartyName, UInt32Array, UInt64Array


@dataclass(frozen=True)
class Counted:
    """One step of the search: values (columns, values), one participant's masked answer, and the sum of all answers."""

    values: UInt32Array
    masked: UInt64Array
    together: Int64Array
    participants: int


def counted(view: View, participant: PartyName) -> Iterator[Counted]:
    """All steps as the server saw them. Masks cancel in the sum over all participants."""
    answers = {peer: found for peer in view.peers if (found := view.received(MaskedCounts, peer))}
    for step, request in enumerate(view.sent(CountsRequest, participant)):
        shares = [each[step].counts for each in answers.values() if len(each) > step]
        if len(shares) == len(answers):
            together: UInt64Array = np.stack(shares).sum(axis=0)
            yield Counted(request.values, answers[participant][step].counts, together.view(np.int64), len(shares))


def sorted_values(table: PartyTable, ordinal: bool) -> list[UInt32Array]:
    """A table's numeric columns, and categories where they are taken for numbers, as the search orders them."""
    found: list[UInt32Array] = []
    for column in table.columns:
        if column.categories is None or ordinal:
            there = np.isfinite(column.values) if column.categories is None else column.values >= 0
            found.append(np.sort(to_ordered(column.values[there].astype(np.float32))))
    return found
