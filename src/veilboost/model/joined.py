"""The joined shares of all parties: a model that one machine can run, hash and export."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from veilboost.boost.grower import LEAF, Tree
from veilboost.boost.shap import ROWS_AT_ONCE, TreeShap
from veilboost.errors import DuplicateColumns, MissingShare, RowsDiffer
from veilboost.model.explanation import Explanation
from veilboost.model.share import ColumnInfo, ModelShare, Skeleton
from veilboost.types import (
    AnyArray,
    BoolArray,
    Column,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
    PartyName,
)

Columns: TypeAlias = Sequence[Column] | Mapping[PartyName, Sequence[Column]]

_ROWS_AT_ONCE = 16_384  # a chunk's values and temporaries fit into the processor's cache
_MIXED_SHARES = "use the shares of one and the same training"


@dataclass(frozen=True)
class JoinedTree(Tree):
    """One tree with the owners' split data, an entry per node.

    `left` and `right` are the children's numbers. At leaves these two, `owner` and `feature` are LEAF; `weight` is
    only used at leaves. A value goes left if it is below `threshold`, or, if `set_of` is not -1, if row `set_of` of
    the model's `left_sets` contains its category code. Missing values go left if `default_left`.
    """

    right: Int32Array
    feature: Int32Array
    threshold: Float32Array
    default_left: BoolArray
    set_of: Int32Array

    @property
    def inner(self) -> Int64Array:
        """The nodes that split."""
        return np.flatnonzero(self.left != LEAF)

    @property
    def leaves(self) -> Int64Array:
        return np.flatnonzero(self.left == LEAF)


@dataclass(frozen=True)
class JoinedModel:
    """All shares in the job's order. Features are numbered consecutively, party by party.

    `left_sets` has a row per split by categories and a column per category code.
    """

    shares: tuple[ModelShare, ...]
    skeleton: Skeleton
    trees: tuple[JoinedTree, ...]
    left_sets: BoolArray

    @cached_property
    def columns(self) -> tuple[ColumnInfo, ...]:
        """The columns of all parties, by feature number."""
        return tuple(info for share in self.shares for info in share.columns)

    @cached_property
    def column_owner(self) -> Int32Array:
        """The position, in `skeleton.parties`, of the party that owns each feature."""
        counts = [len(share.columns) for share in self.shares]
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    def left_categories(self, tree: JoinedTree, node: int) -> tuple[int, ...] | None:
        """The category codes that go left at a node; None for a threshold."""
        row = int(tree.set_of[node])
        return None if row < 0 else tuple(np.flatnonzero(self.left_sets[row]).tolist())

    def margins(self, columns: Sequence[Column]) -> Float64Array:
        """Margins before the link function, (K, rows), given the columns of all parties.

        Columns are found by name and must have the same rows. Categories that did not occur in training count as
        missing.
        """
        encoded = self._encode(columns)
        rows = len(encoded[0])
        out = np.repeat(self.skeleton.base_margin[:, np.newaxis], rows, axis=1)
        for begin in range(0, rows, _ROWS_AT_ONCE):
            chunk = slice(begin, begin + _ROWS_AT_ONCE)
            values = np.stack([column[chunk] for column in encoded], axis=1)
            for number, tree in enumerate(self.trees):
                # Tree after tree, as in training, so that the sums round alike.
                out[number % self.skeleton.trees_per_round, chunk] += tree.weight[self._leaves(tree, values)]
        return out

    @cached_property
    def shown_names(self) -> tuple[str, ...]:
        """Column names for a joint report, by feature number: `shop#1` if the shop does not share its names."""
        return tuple(
            info.name if share.share_names else f"{share.party}#{number}"
            for share in self.shares
            for number, info in enumerate(share.columns, start=1)
        )

    def contributions(self, columns: Columns, threads: int = 1) -> Float64Array:
        """The contribution of every feature to every margin (rows, K, features + 1): exact path-dependent TreeSHAP.

        The last are the expected margins; a row adds up to its margin. Equal to XGBoost's `pred_contribs` for the
        exported model, up to float32 sums. `columns` are found as in `margins`, or given by party.
        """
        values = np.stack(self._encode(columns))
        of_splits = [tree.feature[tree.inner] for tree in self.trees]
        feature = np.concatenate([np.empty(0, dtype=np.int32), *of_splits])
        groups, width = self.skeleton.trees_per_round, len(self.columns)
        shap = TreeShap(self.trees, groups, feature, feature, width, threads)
        owner, first = self.column_owner[feature], self.column_owner.searchsorted(np.arange(len(self.shares) + 1))
        out = np.empty((values.shape[1], groups, width + 1))
        for begin in range(0, len(out), ROWS_AT_ONCE):
            chunk = values[:, begin : begin + ROWS_AT_ONCE]
            left = np.empty((len(feature), (chunk.shape[1] + 7) // 8), dtype=np.uint8)
            for at, share in enumerate(self.shares):
                left[owner == at] = share.records.all_left(chunk[first[at] : first[at + 1]])
            out[begin : begin + ROWS_AT_ONCE] = shap.contributions(left, chunk.shape[1])
        out[..., -1] += self.skeleton.base_margin
        return out

    def explain(self, columns: Columns, threads: int = 1) -> Explanation:
        """The contributions of all features to the margins of rows, with names and values of the features."""
        found = self.contributions(columns, threads)
        given = columns if isinstance(columns, Mapping) else dict.fromkeys(self.skeleton.parties, columns)
        by_name = {share.party: {each.name: each for each in given[share.party]} for share in self.shares}
        parties = [share.party for share in self.shares for _ in share.columns]
        known = {at: by_name[party][self.columns[at].name] for at, party in enumerate(parties)}
        return Explanation.of(found, self.shown_names, parties, known, self.skeleton.classes)

    def _encode(self, columns: Columns) -> list[Float32Array]:
        """The values of all parties' columns, by feature number."""
        if not isinstance(columns, Mapping):
            if len({info.name for info in self.columns}) < len(self.columns):
                raise DuplicateColumns("two parties have a column of the same name", "let the parties predict jointly")
            columns = dict.fromkeys(self.skeleton.parties, columns)
        encoded = [values for share in self.shares for values in share.encode(columns[share.party])]
        if any(len(values) != len(encoded[0]) for values in encoded):
            raise RowsDiffer("the columns have different numbers of rows")
        return encoded

    def staged_margins(self, columns: Mapping[PartyName, Sequence[Column]]) -> Iterator[Float64Array]:
        """The margins after each round, for separate tables per party. Used for learning curves."""
        values = np.stack(self._encode(columns), axis=1)
        out = np.repeat(self.skeleton.base_margin[:, np.newaxis], len(values), axis=1)
        for number, tree in enumerate(self.trees):
            out[number % self.skeleton.trees_per_round] += tree.weight[self._leaves(tree, values)]
            if (number + 1) % self.skeleton.trees_per_round == 0:
                yield out.copy()

    def _leaves(self, tree: JoinedTree, values: Float32Array) -> AnyArray:
        """The leaf of each row of `values` (rows, features); all rows descend one level at a time."""
        node = np.zeros(len(values), dtype=np.int32)
        rows = np.arange(len(values)) if tree.nodes > 1 else np.arange(0)
        while len(rows):
            at = node[rows]
            value = values[rows, tree.feature[at]]
            left = value < tree.threshold[at]
            sets = tree.set_of[at]
            by_set = np.flatnonzero(sets >= 0)
            missing = np.isnan(value)
            if len(by_set):
                code = np.where(missing[by_set], 0, value[by_set]).astype(np.int64)
                left[by_set] = self.left_sets[sets[by_set], code]
            left = np.where(missing, tree.default_left[at], left)
            node[rows] = np.where(left, tree.left[at], tree.right[at])
            rows = rows[tree.left[node[rows]] != LEAF]
        return node

    def canonical(self) -> dict[str, Any]:
        """The function that the model computes, in a form that JSON represents exactly.

        It does not contain column owners, node numbers or gains. It contains the categories of used columns: thresholds
        over category codes have no meaning without them.
        """
        used = sorted({int(feature) for tree in self.trees for feature in tree.feature[tree.inner]})
        categorical = [info for info in (self.columns[f] for f in used) if info.categories is not None]
        return {
            "objective": self.skeleton.objective,
            "trees_per_round": self.skeleton.trees_per_round,
            "base_margin": [_exact(value) for value in self.skeleton.base_margin],
            "categories": {info.name: info.categories for info in categorical},
            "trees": [self._canonical_tree(tree) for tree in self.trees],
        }

    def _canonical_tree(self, tree: JoinedTree) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = []
        queue = [0]
        for node in queue:  # breadth first: the queue grows while it is read
            if tree.left[node] == LEAF:
                nodes.append({"weight": _exact(tree.weight[node])})
                continue
            info = self.columns[int(tree.feature[node])]
            split: dict[str, Any] = {"column": info.name, "missing_left": bool(tree.default_left[node])}
            members = self.left_categories(tree, node)
            if members is None:
                split["below"] = _exact(tree.threshold[node])
            else:
                split["among"] = sorted((info.categories or ())[code] for code in members)
            split["children"] = [len(queue), len(queue) + 1]
            queue.extend((int(tree.left[node]), int(tree.right[node])))
            nodes.append(split)
        return nodes

    def sha256(self) -> str:
        """The hash of `canonical()`: equal for models that predict alike with the same trees."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def join(shares: Mapping[PartyName, ModelShare]) -> JoinedModel:
    """Combine the model shares of all parties.

    Parameters
    ----------
    shares : mapping of party name to ModelShare
        The shares of all parties of one training run. Exactly one of them, the active party's, holds the skeleton of
        the trees.

    Returns
    -------
    JoinedModel
        A model that one machine can run, hash and export.

    Raises
    ------
    MissingShare
        If a share is missing or comes from another training run.

    Examples
    --------
    >>> from veilboost import VerticalClassifier, join, make_demo_data
    >>> model = VerticalClassifier(id="customer_id", n_estimators=3, max_depth=2)
    >>> joined = join(model.fit(make_demo_data(customers=500), "default").shares_)
    >>> len(joined.trees)
    3
    """
    holders = [share.skeleton for share in shares.values() if share.skeleton is not None]
    if len(holders) != 1:
        raise MissingShare(
            f"{len(holders)} shares contain the trees' skeleton; exactly one must",
            "add the active party's share" if not holders else _MIXED_SHARES,
        )
    skeleton = holders[0]
    for name in skeleton.parties:
        if name not in shares:
            raise MissingShare(f"the share of {name} is missing")
    for name in shares:
        if name not in skeleton.parties:
            raise MissingShare(f"{name} took no part in this model's training", _MIXED_SHARES)
    return _joined(skeleton, tuple(shares[name] for name in skeleton.parties))


def _joined(skeleton: Skeleton, shares: tuple[ModelShare, ...]) -> JoinedModel:
    sizes = np.array([tree.nodes for tree in skeleton.trees], dtype=np.int64)
    owner = np.concatenate([tree.owner for tree in skeleton.trees] or [np.empty(0, dtype=np.int32)])
    tree_of = np.repeat(np.arange(len(sizes)), sizes)
    begin = np.cumsum(sizes) - sizes
    node_of = np.arange(len(owner)) - begin[tree_of]
    # Filled for all trees at once, then divided by tree.
    feature = np.full(len(owner), LEAF, dtype=np.int32)
    threshold = np.zeros(len(owner), dtype=np.float32)
    default_left = np.zeros(len(owner), dtype=np.bool_)
    set_of = np.full(len(owner), -1, dtype=np.int32)
    width = max((len(info.categories or ()) for share in shares for info in share.columns), default=0)
    sets: list[BoolArray] = [np.empty((0, width), dtype=np.bool_)]
    first_feature, first_set = 0, 0
    for position, share in enumerate(shares):
        records = share.records
        own = np.flatnonzero(owner == position)
        if not (np.array_equal(records.tree, tree_of[own]) and np.array_equal(records.node, node_of[own])):
            raise MissingShare(f"the splits of {share.party} do not match the skeleton", _MIXED_SHARES)
        feature[own] = records.feature + first_feature
        threshold[own] = records.threshold
        default_left[own] = records.default_left
        set_of[own] = np.where(records.set_of < 0, -1, records.set_of + first_set)
        sets.append(_widened(records.left_sets, width))
        first_feature += len(share.columns)
        first_set += len(records.left_sets)
    trees = tuple(
        JoinedTree(
            **vars(tree),
            right=np.where(tree.left == LEAF, LEAF, tree.left + 1).astype(np.int32),
            feature=feature[start : start + tree.nodes],
            threshold=threshold[start : start + tree.nodes],
            default_left=default_left[start : start + tree.nodes],
            set_of=set_of[start : start + tree.nodes],
        )
        for tree, start in zip(skeleton.trees, begin.tolist(), strict=True)
    )
    return JoinedModel(shares, skeleton, trees, np.concatenate(sets))


def _widened(sets: BoolArray, width: int) -> BoolArray:
    """Sets as wide as the largest list of categories; a party stores its own only as wide as needed."""
    wide = np.zeros((len(sets), width), dtype=np.bool_)
    common = min(width, sets.shape[1])
    wide[:, :common] = sets[:, :common]
    return wide


def _exact(value: float | np.floating[Any]) -> str:
    """A float as hexadecimal text, minus zero as zero."""
    return (float(value) + 0.0).hex()
