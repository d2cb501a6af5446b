"""What the server of `secagg` can read off the counts that the search for cuts asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from veilboost.audit.attack import declare
from veilboost.audit.result import Outcome, balanced_accuracy, share_right
from veilboost.audit.view import Truth, View
from veilboost.data.table import PartyTable
from veilboost.fixedpoint import to_ordered
from veilboost.protocols.secagg.messages import CountsRequest, MaskedCounts
from veilboost.types import BoolArray, Int64Array, PartyName, UInt32Array, UInt64Array


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


@declare("one share under its masks", "server", "participant", "its own sums, counts and gradients", (MaskedCounts,))
def secagg_shares(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Is a participant's count above the average? Read off its masked answer, as if there were no mask.

    Under masks that do their work an answer is uniform, and this is the toss of a coin.
    """
    own = sorted_values(truth.tables[victim], view.config.categories == "ordinal")
    true: list[BoolArray] = []
    guess: list[BoolArray] = []
    for step in counted(view, victim):
        pairs = zip(own, step.values, strict=True)
        counts = np.array([np.searchsorted(column, asked, side="right") for column, asked in pairs], dtype=np.int64)
        average = step.together / step.participants
        told = counts != average
        true.append((counts > average)[told])
        guess.append((step.masked.view(np.int64) > average)[told])
    every, guesses = (np.concatenate([np.empty(0, dtype=np.bool_), *each]) for each in (true, guess))
    if len(np.unique(every)) < 2:
        return None
    return balanced_accuracy(
        every, guesses, f"whether each of {len(every)} counts is above the average: {{value:.3f}} of the answers tell"
    )


@declare("values that the search for cuts found", "server", "participant", "rows, through sums of all", (MaskedCounts,))
def secagg_values(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Exact values of single rows, from the search for cuts over all participants.

    The search ends at the two values that a cut lies between. Where the counts of two neighbouring numbers differ,
    somebody has the larger one; whose it is is not told.
    """
    own = sorted_values(truth.tables[victim], view.config.categories == "ordinal")
    steps = list(counted(view, victim))
    if not steps or not own:
        return None
    hits: list[BoolArray] = []
    for at, column in enumerate(own):
        asked, places = np.unique(np.concatenate([step.values[at] for step in steps]), return_index=True)
        found = _present(asked, np.concatenate([step.together[at] for step in steps])[places])
        hits.append(np.isin(column, found))
    every = np.concatenate(hits)
    sentence = (
        f"{float(every.mean()):.3f} of the values of {victim} are known exactly after {len(steps)} steps of the search "
        "for cuts, though not whose they are"
    )
    return share_right("values known", every, 0.0, sentence)


def _present(asked: UInt32Array, counts: np.ndarray) -> UInt32Array:
    """Numbers that somebody has: more values are not above them than are not above the number before."""
    next_to = asked[1:] == asked[:-1] + np.uint32(1)
    return asked[1:][next_to & (counts[1:] > counts[:-1])]
