"""Sums of a participant of `secagg` that was lost or returned: the difference of rounds with it and without it."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from veilboost.audit.attack import Outcome, balanced_accuracy, declare
from veilboost.audit.view import Truth, View
from veilboost.boost.columns import ColumnBlock
from veilboost.boost.rows import RowGroups
from veilboost.protocols.horizontal.full_model import block_with_cuts
from veilboost.protocols.horizontal.schema import Schema, encoded_table
from veilboost.protocols.secagg.messages import (
    CutsFound,
    MaskedSums,
    RosterAccepted,
    RosterRequest,
    SecaggGroup,
    SumsRequest,
)
from veilboost.types import BoolArray, Float64Array, PartyName, UInt64Array


class Root(NamedTuple):
    """The sums of hessians (slots,) of all rows of a round, and whose rows they are."""

    number: int
    participants: frozenset[PartyName]
    sums: Float64Array


def roots(view: View) -> list[Root]:
    """The sums of the roots, of all rounds in which everybody of the roster answered. The columns must be the same."""
    answers: dict[int, dict[PartyName, UInt64Array]] = {}
    for peer in view.peers:
        asked: SumsRequest | None = None
        for message in view.with_peer(peer):
            if isinstance(message, SumsRequest):
                asked = message
            elif isinstance(message, MaskedSums) and asked is not None and asked.depth == 0:
                answers.setdefault(asked.number, {})[peer] = message.sums
    members = {message.number: frozenset(message.participants) for message in view.sent(RosterRequest)}
    found: list[Root] = []
    for number, told in sorted(answers.items()):
        if frozenset(told) == members.get(number):
            total: UInt64Array = np.stack(list(told.values())).sum(axis=0)
            found.append(Root(number, members[number], total.view(np.int64)[0, :, 1].astype(np.float64)))
    return found


def difference(found: list[Root], party: PartyName) -> tuple[Float64Array, Float64Array] | None:
    """A participant's sums and those of all, by rounds next to each other of which one is without this participant."""
    for at, pair in enumerate(itertools.pairwise(found)):
        if pair[0].participants ^ pair[1].participants == frozenset({party}):
            lost = party in pair[0].participants
            with_it, without = pair if lost else pair[::-1]
            # The sums of the same rows change from round to round, about as much as in the round next to these.
            beyond = found[at + 2 : at + 3] if lost else found[max(at - 1, 0) : at]
            rest = without.sums
            if beyond and beyond[0].participants == without.participants:
                rest = 2 * rest - beyond[0].sums
            return with_it.sums - rest, with_it.sums
    return None


@declare(
    "the difference of rounds with and without a participant",
    "server",
    "participant",
    "sums of a lost participant",
    (RosterAccepted,),
)
def secagg_differences(view: View, truth: Truth, victim: PartyName, rng: np.random.Generator) -> Outcome | None:
    """Whether a participant has more of its rows in a bin than all together, from sums before and after its loss."""
    group, cuts, found = view.sent(SecaggGroup), view.sent(CutsFound), difference(roots(view), victim)
    if not group or not cuts or found is None or view.config.colsample_bytree < 1.0:
        return None
    schema, edges = Schema.from_json(group[0].schema), cuts[0]
    columns = [edges.cuts[begin:end] for begin, end in itertools.pairwise(edges.starts.tolist())]
    blocks = {
        name: block_with_cuts(encoded_table(table, schema)[0], table.rows, columns, schema.missing, view.config, 1)
        for name, table in truth.tables.items()
    }
    counts = {name: _counts(block) for name, block in blocks.items()}
    everyone = np.stack(list(counts.values())).sum(axis=0)
    offsets = blocks[victim].layout.offsets.tolist()
    true, guess = (_above(*pair, offsets) for pair in ((counts[victim], everyone), found))
    used = everyone > 0
    if len(np.unique(true[used])) < 2:
        return None
    return balanced_accuracy(
        true[used],
        guess[used],
        f"whether {victim} has more of its rows than all together in each of {int(used.sum())} bins, from the sums of "
        "two rounds: {value:.3f} of guesses are right",
    )


def _counts(block: ColumnBlock) -> Float64Array:
    """The number of rows in each bin."""
    every, ones = RowGroups.root(np.arange(block.rows, dtype=np.int32), 1), np.ones((1, block.rows, 2), dtype=np.int32)
    return block.histogram(block.shared_bins, ones, every)[0, :, 1].astype(np.float64)


def _above(own: Float64Array, every: Float64Array, offsets: list[int]) -> BoolArray:
    """Whether the share of each bin in its column is larger in `own` than in `every`."""
    found = np.zeros(len(own), dtype=np.bool_)
    for begin, end in itertools.pairwise(offsets):
        column = slice(begin, end)
        found[column] = own[column] * every[column].sum() > every[column] * own[column].sum()
    return found
