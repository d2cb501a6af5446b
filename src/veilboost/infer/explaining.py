"""Joint explanation of scores: exact TreeSHAP by the active party, from the assignments of all parties.

Every passive party sends the left/right assignments of the explained rows at all of its splits, visited or not, and
which splits share a column. Its values, thresholds and categories stay with it. How columns are named is the owner's
choice, one of `LEVELS`:

`none`
    No explanation.
`party`
    Only the sum of the owner's contributions. Columns are numbered in each tree anew, which an exact sum needs.
`columns`
    One contribution for each column, under a pseudonym such as `shop#3` that is the same for the whole model.
`names`
    One contribution for each column, under its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from veilboost.boost.shap import ROWS_AT_ONCE, TreeShap
from veilboost.errors import MalformedMessage, MissingShare, UnexpectedMessage
from veilboost.infer.messages import AllSplits, AllSplitsOfRows, BeginPrediction, SplitColumns, SplitColumnsRequest
from veilboost.model.explanation import Explanation
from veilboost.model.share import ModelShare, SplitRecords
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.types import Column, Float32Array, Int32Array, PartyName
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done, Message

NONE, PARTY, COLUMNS, NAMES = LEVELS = ("none", "party", "columns", "names")


# --- the active party ---------------------------------------------------------------------------------------------


class _Slots(NamedTuple):
    """The features of one party's splits, in order: its number, and the slot and names of its contributions."""

    feature: Int32Array
    slot: Int32Array
    names: tuple[str, ...]


def explain_joint(
    share: ModelShare,
    columns: Sequence[Column],
    rows: int,
    peers: Peers,
    begin: Mapping[PartyName, Message] | None = None,
    threads: int = 1,
) -> Explanation:
    """Explain the margins of rows with the passive parties.

    Parameters
    ----------
    share
        The active party's share.
    columns, rows
        Its columns of the rows, and their number.
    peers
        The passive parties.
    begin
        The message that opens a request for these rows at each peer; by default `BeginPrediction`.
    """
    skeleton = share.skeleton
    if skeleton is None:
        raise MissingShare(f"the share of {share.party} has no skeleton: only the active party can explain")
    absent = [name for name in skeleton.parties if name not in (share.party, *peers.names)]
    if absent:
        raise MissingShare(f"{', '.join(absent)} cannot be reached")
    values = share.matrix(columns, rows)
    peers.hold(begin or {name: BeginPrediction(rows) for name in peers.names}, Done)
    answers = peers.ask({name: SplitColumnsRequest() for name in peers.names}, SplitColumns)
    own_names = tuple(info.name for info in share.columns)
    found = {
        name: _Slots(share.records.feature, share.records.feature, own_names)
        if name == share.party
        else _slots(name, len(skeleton.nodes_of(name)[0]), answers[name])
        for name in skeleton.parties
    }
    owner = np.concatenate([np.empty(0, dtype=np.int32), *(tree.owner[tree.owner >= 0] for tree in skeleton.trees)])
    feature, slot = np.empty(len(owner), dtype=np.int32), np.empty(len(owner), dtype=np.int32)
    first = dict(zip(found, np.cumsum([0, *(len(each.names) for each in found.values())]).tolist(), strict=False))
    for at, (name, each) in enumerate(found.items()):
        # Numbers of different parties must differ; there are fewer features than splits and slots.
        feature[owner == at] = each.feature * len(found) + at
        slot[owner == at] = each.slot + first[name]
    names, parties = _distinct(found), [name for name, each in found.items() for _ in each.names]
    shap = TreeShap(skeleton.trees, skeleton.trees_per_round, feature, slot, len(names), threads)
    out = np.empty((rows, skeleton.trees_per_round, len(names) + 1))
    for low in range(0, rows, ROWS_AT_ONCE):
        high = min(low + ROWS_AT_ONCE, rows)
        pending = peers.send({name: AllSplitsOfRows(low, high) for name in peers.names})
        left = np.empty((len(owner), (high - low + 7) // 8), dtype=np.uint8)
        left[owner == skeleton.parties.index(share.party)] = share.records.all_left(values[:, low:high])
        for name, answer in peers.collect(pending, AllSplits).items():
            tree, node = skeleton.nodes_of(name)
            if not (np.array_equal(answer.tree, tree) and np.array_equal(answer.node, node)):
                raise MalformedMessage(f"{name} answered for other splits than its own")
            if answer.left.shape != (len(tree), left.shape[1]):
                raise MalformedMessage(f"{name} answered for the wrong number of rows")
            left[owner == skeleton.parties.index(name)] = answer.left
        out[low:high] = shap.contributions(left, high - low)
    out[..., -1] += skeleton.base_margin
    by_name = {column.name: column for column in columns}
    known = {first[share.party] + at: by_name[name] for at, name in enumerate(own_names)}
    return Explanation.of(out, names, parties, known, skeleton.classes)


def _slots(name: PartyName, splits: int, answer: SplitColumns) -> _Slots:
    """The slots of a passive party's splits: one for each column that it numbers over all trees, or one for all."""
    column = answer.column
    used = int(column.max()) + 1 if len(column) else 0
    if len(column) != splits or (len(column) and column.min() < 0) or used > splits:
        raise MalformedMessage(f"{name} numbered the columns of its splits wrongly")
    if not answer.over_trees:
        return _Slots(column, np.zeros_like(column), (name,))
    if answer.names and len(answer.names) != used:
        raise MalformedMessage(f"{name} sent the wrong number of column names")
    if len(set(answer.names)) < len(answer.names) or not all(each and each.isprintable() for each in answer.names):
        raise MalformedMessage(f"{name} sent column names that are equal, empty or not printable")
    return _Slots(column, column, answer.names or tuple(f"{name}#{number}" for number in range(1, used + 1)))


def _distinct(found: Mapping[PartyName, _Slots]) -> list[str]:
    """The names of all features; a name that two features have is preceded by its party."""
    every = [(party, name) for party, each in found.items() for name in each.names]
    names = Counter(name for _, name in every)
    told = [name if names[name] == 1 else f"{party}.{name}" for party, name in every]
    if len(set(told)) < len(told):  # another column has the name that one has with its party
        told = [f"{party}.{name}" for party, name in every]
    if len(set(told)) < len(told):
        raise MalformedMessage("columns of several parties have the same name, also with the names of the parties")
    return told


# --- a passive party ----------------------------------------------------------------------------------------------


class ExplanationResponder:
    """Answers for the explained rows (columns, rows) of one request, at a level that is not `none`."""

    def __init__(self, share: ModelShare, values: Float32Array, level: str) -> None:
        self._share, self._values, self._level = share, values, level

    def handle(self, message: Message) -> Message:
        if isinstance(message, BeginPrediction):
            if message.rows != self._values.shape[1]:
                raise MalformedMessage("the request has the wrong number of rows")
            return Done()
        if isinstance(message, SplitColumnsRequest):
            return split_columns(self._share, self._level)
        if isinstance(message, AllSplitsOfRows):
            if not 0 <= message.begin < message.end <= self._values.shape[1]:
                raise MalformedMessage("a request names rows that do not exist")
            records = self._share.records
            left = records.all_left(self._values[:, message.begin : message.end])
            return AllSplits(records.tree, records.node, left)
        raise UnexpectedMessage(f"{message.type_name()} is not a request for an explanation")


def split_columns(share: ModelShare, level: str) -> SplitColumns:
    """What a level reveals about the columns of the splits."""
    records = share.records
    if level == PARTY:
        return SplitColumns(_numbered(records, per_tree=True))
    column = _numbered(records, per_tree=False)
    used = np.empty(int(column.max(initial=-1)) + 1, dtype=np.int32)
    used[column] = records.feature
    names = tuple(share.columns[feature].name for feature in used.tolist()) if level == NAMES else ()
    return SplitColumns(column, over_trees=True, names=names)


def _numbered(records: SplitRecords, per_tree: bool) -> Int32Array:
    """Columns numbered in the order of their first split: the numbers show equality and nothing else."""
    found, numbers = np.empty(records.count, dtype=np.int32), dict[tuple[int, int], int]()
    trees = records.tree if per_tree else np.zeros_like(records.tree)
    used = dict[int, int]()
    for at, key in enumerate(zip(trees.tolist(), records.feature.tolist(), strict=True)):
        if key not in numbers:
            numbers[key] = used[key[0]] = used.get(key[0], -1) + 1
        found[at] = numbers[key]
    return found


def explanation_release(share: ModelShare, protocol: str, peer: PartyName, request: str, rows: int) -> ExactRelease:
    """What a passive party books before it answers; `request` names this request and no other."""
    what = "left/right assignments of explained rows at all of its splits, visited or not"
    return ExactRelease(
        what=what,
        adjacency=Adjacency.PASSIVE_RECORD,
        adversary=peer,
        protocol=protocol,
        release=f"explanation {request}, to {peer}: {what}",
        rows=rows,
        assignments=share.records.count,
        counted=False,
    )
