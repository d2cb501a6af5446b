"""One party's share of a model.

Every party stores its split records: the column and threshold of each of its splits. The active party also stores the
skeleton: the shape of the trees, the owner of each split, and the leaf weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from veilboost import _native
from veilboost.boost.booster import RoundResult
from veilboost.boost.columns import Rule, Rules
from veilboost.boost.grower import Tree
from veilboost.boost.objective import Objective, objective_of
from veilboost.config import TrainingConfig
from veilboost.errors import ForeignColumns
from veilboost.privacy.statement import Noise
from veilboost.types import (
    AnyArray,
    BoolArray,
    Column,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
    PartyName,
    UInt8Array,
)

_DEEPEST = 100  # more than the levels of any tree
_PAIRS_AT_ONCE = 1 << 16  # limits memory: (record, row) pairs that are compared together


@dataclass(frozen=True)
class ColumnInfo:
    """A column as needed for prediction; `categories` is None for numbers."""

    name: str
    categories: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SplitRecords:
    """Split records, sorted by (tree, node).

    Values x < threshold go left. If `set_of` is not -1, the categories of row `set_of` of `left_sets` go left instead.
    """

    tree: Int32Array
    node: Int32Array
    feature: Int32Array
    threshold: Float32Array
    default_left: BoolArray
    set_of: Int32Array
    left_sets: BoolArray

    @staticmethod
    def of(rules: Mapping[tuple[int, int], Rule]) -> SplitRecords:
        """Create records from the rules of nodes (tree, node)."""
        keys = sorted(rules)
        tree, node = (np.array([key[part] for key in keys], dtype=np.int32) for part in (0, 1))
        return SplitRecords.in_order(tree, node, Rules.of([rules[key] for key in keys]))

    @staticmethod
    def in_order(tree: Int32Array, node: Int32Array, rules: Rules) -> SplitRecords:
        """Create records from the rules of these nodes, which are sorted."""
        sets = [members for members in rules.sets if members is not None]
        width = max((max(members, default=-1) + 1 for members in sets), default=0) or 1
        left_sets = np.zeros((len(sets), width), dtype=np.bool_)
        for row, members in enumerate(sets):
            left_sets[row, list(members)] = True
        is_set = np.array([members is not None for members in rules.sets], dtype=np.bool_)
        return SplitRecords(
            tree=tree,
            node=node,
            feature=rules.feature,
            threshold=rules.threshold,
            default_left=rules.default_left,
            set_of=np.where(is_set, np.cumsum(is_set) - 1, -1).astype(np.int32),
            left_sets=left_sets,
        )

    @property
    def count(self) -> int:
        return len(self.tree)

    def digest(self, trees: int) -> str:
        """A digest of which nodes these are, in a model of this many trees; `Skeleton.digest` is its counterpart."""
        return _digest(trees, self.tree, self.node)

    def find(self, tree: Int32Array, node: Int32Array) -> Int32Array:
        """Positions of these nodes' records; -1 for nodes without a record."""
        wanted, have = _keys(tree, node), self.sorted_keys
        if not len(have):
            return np.full(len(wanted), -1, dtype=np.int32)
        at = have.searchsorted(wanted)
        return np.where(have.take(at, mode="clip") == wanted, at, -1).astype(np.int32)

    @cached_property
    def sorted_keys(self) -> Int64Array:
        """The nodes as numbers: the tree in the upper 32 bits, the node in the lower ones."""
        return _keys(self.tree, self.node)

    @cached_property
    def levels(self) -> tuple[Int32Array, UInt8Array, UInt8Array]:
        """For each record, the place of its tree among those that have one, and the levels that its number allows.

        Nodes are numbered level by level and in pairs: level d has numbers from 2d - 1 to 2^(d+1) - 2.
        """
        numbers, place = self.node.astype(np.int64), np.unique(self.tree, return_inverse=True)[1]
        least, most = np.frexp(numbers + 1)[1] - 1, np.minimum((numbers + 1) // 2, _DEEPEST)
        return place.astype(np.int32), least.astype(np.uint8), most.astype(np.uint8)

    @cached_property
    def trees(self) -> int:
        """How many trees have a record."""
        return len(np.unique(self.tree))

    @property
    def rule_arrays(self) -> tuple[Int32Array, Float32Array, BoolArray, Int32Array, BoolArray]:
        """The rules, as kernels take them."""
        return self.feature, self.threshold, self.default_left, self.set_of, self.left_sets

    def goes_left(self, values: Float32Array, records: Int32Array, rows: Int32Array) -> BoolArray:
        """Which pairs (record, row) go left; `values` is (columns, rows), category codes as floats, NaN missing."""
        left = np.empty(len(rows), dtype=np.bool_)
        _native.goes_left(*self.rule_arrays, np.ascontiguousarray(values), records, rows, left)
        return left

    def all_left(self, values: Float32Array) -> UInt8Array:
        """Which rows go left at every record, reached or not: a row of packed bits for each record."""
        rows = np.arange(values.shape[1], dtype=np.int32)
        left = np.empty((self.count, (len(rows) + 7) // 8), dtype=np.uint8)
        batch = max(1, _PAIRS_AT_ONCE // max(1, len(rows)))
        for low in range(0, self.count, batch):
            some = np.arange(low, min(low + batch, self.count), dtype=np.int32)
            bits = self.goes_left(values, np.repeat(some, len(rows)), np.tile(rows, len(some)))
            left[some] = np.packbits(bits.reshape(len(some), len(rows)), axis=1)
        return left

    def rules(self) -> dict[tuple[int, int], Rule]:
        """The rules of nodes (tree, node), as passed to `of`."""
        keys = zip(self.tree.tolist(), self.node.tolist(), strict=True)
        return {key: self.rule(record) for record, key in enumerate(keys)}

    def first(self, trees: int) -> SplitRecords:
        """The records of the first `trees` trees."""
        return SplitRecords.of({key: rule for key, rule in self.rules().items() if key[0] < trees})

    def rule(self, record: int) -> Rule:
        row = int(self.set_of[record])
        members = None if row < 0 else tuple(np.flatnonzero(self.left_sets[row]).tolist())
        return Rule(int(self.feature[record]), self.threshold[record], bool(self.default_left[record]), members)


@dataclass(frozen=True)
class Skeleton:
    """The active party's knowledge of all trees."""

    protocol: str
    objective: str
    classes: tuple[str, ...] | None
    parties: tuple[PartyName, ...]
    trees_per_round: int
    trees: tuple[Tree, ...]
    base_margin: Float64Array
    config: TrainingConfig
    noise: Noise = Noise.SYSTEM  # the source of the noise, masks and keys of its training

    @property
    def loss(self) -> Objective:
        """The training objective. A custom one is not stored; its predictions are its margins, as in regression."""
        name = "regression" if self.objective == "custom" else self.objective
        return objective_of(name, self.config, max(2, self.trees_per_round))

    def nodes_of(self, party: PartyName) -> tuple[Int64Array, Int64Array]:
        """The trees and nodes that this party splits, in order."""
        position = self.parties.index(party)
        owned = [np.flatnonzero(tree.owner == position) for tree in self.trees]
        tree = np.repeat(np.arange(len(owned)), [len(nodes) for nodes in owned])
        return tree, np.concatenate([np.empty(0, dtype=np.int64), *owned])

    def digest(self, party: PartyName) -> str:
        """The digest that this party's records must have. It tells the party nothing that it does not know."""
        return _digest(len(self.trees), *self.nodes_of(party))


def _keys(tree: Int32Array, node: Int32Array) -> Int64Array:
    """Nodes as numbers, in the order of trees and nodes."""
    return (tree.astype(np.int64) << 32) | node


def _digest(trees: int, tree: AnyArray, node: AnyArray) -> str:
    content = np.concatenate(([trees], tree, node)).astype("<i8")
    return hashlib.sha256(content.tobytes()).hexdigest()


@dataclass(frozen=True)
class ModelShare:
    """What one party keeps of a model: its columns and split records; for the active party also the skeleton.

    `share_names`: whether the column names may appear in joint reports.
    """

    party: PartyName
    columns: tuple[ColumnInfo, ...]
    records: SplitRecords
    skeleton: Skeleton | None = None
    share_names: bool = True

    def first(self, trees: int) -> ModelShare:
        """The share of the model of the first `trees` trees."""
        skeleton = None if self.skeleton is None else replace(self.skeleton, trees=self.skeleton.trees[:trees])
        return replace(self, records=self.records.first(trees), skeleton=skeleton)

    def encode(self, columns: Sequence[Column]) -> list[Float32Array]:
        """Encode new rows of this party's columns for the records: floats, category codes, NaN for missing.

        A category that did not occur in training counts as missing.
        """
        by_name = {column.name: column for column in columns}
        absent = [info.name for info in self.columns if info.name not in by_name]
        if absent:
            raise ForeignColumns(f"{self.party} lacks {len(absent)} of the columns that it trained with")
        encoded: list[Float32Array] = []
        for info in self.columns:
            column = by_name[info.name]
            if (info.categories is None) != (column.categories is None):
                raise ForeignColumns(f"column {info.name!r} of {self.party} changed between number and category")
            encoded.append(_encode(info, column))
        return encoded

    def matrix(self, columns: Sequence[Column], rows: int) -> Float32Array:
        """`encode` as one matrix (columns, rows)."""
        encoded = self.encode(columns)
        return np.stack(encoded) if encoded else np.empty((0, rows), dtype=np.float32)


def _encode(info: ColumnInfo, column: Column) -> Float32Array:
    if info.categories is None or column.categories is None:
        return np.ascontiguousarray(column.values, dtype=np.float32)
    codes = {category: code for code, category in enumerate(info.categories)}
    table = np.array([codes.get(category, np.nan) for category in column.categories] + [np.nan], dtype=np.float32)
    return table[column.values]  # the last entry maps the missing code -1


@dataclass(frozen=True)
class MembershipChange:
    """A participant that was lost, or returned, while the others trained on.

    `round` and `level` count from 0. The round's trees were cut at this level; without a level they were complete.
    """

    party: PartyName
    event: Literal["lost", "returned"]
    round: int
    level: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.event == "returned":
            return f"{self.party} returned in round {self.round + 1}"
        if self.level is None:
            return f"{self.party} was lost after round {self.round + 1}"
        return f"{self.party} was lost in round {self.round + 1} at level {self.level + 1}"


@dataclass(frozen=True)
class TrainingOutcome:
    """The driver's result of a training job.

    `reports` are the participants' reports of how they protected their rows. `dropped` are the participants that were
    lost during training and did not return, with the reason; `membership` are all that were lost or returned, in order.
    `metric` is the validation metric, if there were validation rows.
    """

    share: ModelShare
    history: Sequence[RoundResult]
    reports: Mapping[PartyName, Mapping[str, Any]] = field(default_factory=dict[PartyName, Mapping[str, Any]])
    dropped: Mapping[PartyName, str] = field(default_factory=dict[PartyName, str])
    metric: str | None = None
    membership: Sequence[MembershipChange] = ()
