"""One party's binned columns: histograms, routing and split records."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from veilboost import _native
from veilboost.boost.bins import ABOVE_ALL, NO_SETS, BinLayout, Sets, propose_cuts
from veilboost.boost.rows import NO_ASSIGNMENTS, Assignments, RowFiller, RowGroups
from veilboost.config import TrainingConfig
from veilboost.types import (
    AnyArray,
    BoolArray,
    Column,
    ColumnKind,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
)

CutProposal: TypeAlias = Callable[[int, Float32Array], Float32Array]  # from a column's number and values
Bins = AnyArray  # uint8, or uint16 where a feature has more than 256 slots


class Rule(NamedTuple):
    """A split in terms of values, as needed for prediction. `left_set` is None for a threshold."""

    feature: int
    threshold: np.float32
    default_left: bool
    left_set: tuple[int, ...] | None = None


class Rules(NamedTuple):
    """The same for several splits; `left_sets` is None if all are thresholds."""

    feature: Int32Array
    threshold: Float32Array
    default_left: BoolArray
    left_sets: Sequence[tuple[int, ...] | None] | None

    def in_all_columns(self, columns: Int32Array | None) -> Rules:
        """In the numbering of all columns; `columns` lists those that took part in the tree, None for all."""
        return self if columns is None else self._replace(feature=columns[self.feature])

    @staticmethod
    def of(rules: Sequence[Rule]) -> Rules:
        sets = [rule.left_set for rule in rules]
        return Rules(
            np.array([rule.feature for rule in rules], dtype=np.int32),
            np.array([rule.threshold for rule in rules], dtype=np.float32),
            np.array([rule.default_left for rule in rules], dtype=np.bool_),
            None if all(each is None for each in sets) else sets,
        )

    @staticmethod
    def joined(parts: Sequence[Rules]) -> Rules:
        sets = None if all(part.left_sets is None for part in parts) else [each for part in parts for each in part.sets]
        return Rules(
            np.concatenate([part.feature for part in parts]),
            np.concatenate([part.threshold for part in parts]),
            np.concatenate([part.default_left for part in parts]),
            sets,
        )

    @property
    def sets(self) -> Sequence[tuple[int, ...] | None]:
        """The left set of each split, None for a threshold."""
        return [None] * len(self.feature) if self.left_sets is None else self.left_sets

    def take(self, places: Int64Array) -> Rules:
        """Those at these places."""
        chosen: list[int] = places.tolist()
        sets = None if self.left_sets is None else [self.left_sets[place] for place in chosen]
        return Rules(self.feature[places], self.threshold[places], self.default_left[places], sets)

    def listed(self) -> list[Rule]:
        return list(map(Rule, self.feature.tolist(), self.threshold, self.default_left.tolist(), self.sets))


@dataclass(eq=False)
class Splits:
    """Candidates in their owner's terms, one per node: `left[k, b]` is 1 if bin b of feature[k] goes left."""

    feature: Int32Array
    bin: Int32Array
    default_left: BoolArray
    left: UInt8Array


class JointBins:
    """Columns in groups, with one number for each row and group: its bins in all columns of the group.

    A group takes one addition for each row, whatever its columns. Their sums follow from those of all combinations of
    bins, of which there are so many that only nodes with many rows gain.
    """

    MOST = 1100  # combinations of a group: 33 bins each of two columns
    GRADIENT_BITS = 14  # larger values do not fit into the kernel's sums

    def __init__(self, widths: Int32Array, columns: Bins) -> None:
        self._widths, self._columns = widths, columns
        groups: list[list[int]] = []
        sizes: list[int] = []
        for column in widths.argsort(kind="stable")[::-1].tolist():  # each to the first group that has room for it
            width = int(widths[column])
            at = next((at for at, size in enumerate(sizes) if size * width <= self.MOST), len(groups))
            if at == len(groups):
                groups.append([])
                sizes.append(1)
            groups[at].append(column)
            sizes[at] *= width
        self._groups, saved = groups, len(widths) - len(groups)
        self._least_rows = 32 * sum(sizes) / saved if saved and max(sizes) < 1 << 16 else math.inf

    def for_rows(self, count: int) -> tuple[Bins, Int32Array, Int32Array]:
        """The numbers (rows, groups), the columns of all groups, and how many of each; none if nodes are too small."""
        return self._numbers if count >= self._least_rows else NO_JOINT_BINS

    @cached_property
    def _numbers(self) -> tuple[Bins, Int32Array, Int32Array]:
        numbers = np.empty((self._columns.shape[1], len(self._groups)), dtype=np.uint16)
        for at, group in enumerate(self._groups):
            number = self._columns[group[0]].astype(np.uint16)
            for column in group[1:]:
                number *= np.uint16(self._widths[column])
                number += self._columns[column]
            numbers[:, at] = number
        columns = [column for group in self._groups for column in group]
        return numbers, np.array(columns, dtype=np.int32), np.array(list(map(len, self._groups)), dtype=np.int32)


NO_JOINT_BINS: tuple[Bins, Int32Array, Int32Array] = (
    np.empty((0, 0), dtype=np.uint16),
    np.empty(0, dtype=np.int32),
    np.empty(0, dtype=np.int32),
)


@dataclass(frozen=True)
class LevelBins:
    """The binned rows of a level.

    Global proposal: one matrix and one list of cuts for all nodes. Local proposal: a matrix per group (tree that grows
    in parallel) and a list of cuts per node.
    """

    bins: Sequence[Bins]
    cuts: Sequence[Sequence[Float32Array]]
    per_node: bool
    columns: Bins | None = None  # the same bins stored by columns, (columns, rows), if there is one matrix
    joint: JointBins | None = None

    @property
    def to_route(self) -> Sequence[Bins]:
        """The matrices (rows, columns), stored by columns if possible: a split reads one column of scattered rows."""
        return self.bins if self.columns is None else [self.columns.T]

    def of_node(self, groups: RowGroups, node: int) -> Bins:
        """The bins of one node's rows, (rows, columns)."""
        matrix = self.bins[int(groups.group[node]) if len(self.bins) > 1 else 0]
        return matrix[groups.rows_at(node)]


@dataclass(frozen=True)
class ColumnBlock:
    """A party's columns in a job, binned according to the job's parameters.

    `shared` holds the bins of the global proposal; it is None if every node proposes its own cuts.
    """

    rows: int
    kinds: tuple[ColumnKind, ...]
    values: tuple[Float32Array, ...]
    categories: tuple[int, ...]
    cuts: tuple[Float32Array, ...]
    layout: BinLayout
    shared: LevelBins | None
    max_bin: int
    binning: str
    threads: int

    @staticmethod
    def build(
        columns: Sequence[Column],
        rows: int,
        config: TrainingConfig,
        weights: Float64Array | None = None,
        fit_rows: Int32Array | None = None,
        threads: int = 1,
        propose: CutProposal | None = None,
    ) -> ColumnBlock:
        """Bin the columns. Cuts are proposed from `fit_rows` (all by default); quantiles use `weights`.

        If given, `propose` returns the cuts of a numeric column from its number and values instead.
        """
        kinds, categories = kinds_of(columns, config)
        values = tuple(as_float(column) for column in columns)
        missing = [bool(np.isnan(column).any()) for column in values]
        own = slice(None) if fit_rows is None else fit_rows
        weights = None if weights is None else weights[own]
        cuts: list[Float32Array] = []
        for number, (kind, column, count) in enumerate(zip(kinds, values, categories, strict=True)):
            if kind is not ColumnKind.NUMERIC:
                cuts.append(category_cuts(count))
            elif propose is not None:
                cuts.append(propose(number, column[own]))
            elif config.proposal == "local":
                cuts.append(np.empty(0, dtype=np.float32))
            else:
                cuts.append(propose_cuts(column[own], weights, config.max_bin, config.binning))
        block = ColumnBlock.with_cuts(values, rows, kinds, categories, cuts, missing, config, threads)
        if block.shared is None:
            return block
        by_column = np.ascontiguousarray(block.shared.bins[0].T)
        joint = JointBins(block.layout.widths, by_column) if config.gradient_bits <= JointBins.GRADIENT_BITS else None
        return replace(block, shared=replace(block.shared, columns=by_column, joint=joint))

    @staticmethod
    def with_cuts(
        values: Sequence[Float32Array],
        rows: int,
        kinds: tuple[ColumnKind, ...],
        categories: tuple[int, ...],
        cuts: Sequence[Float32Array],
        missing: Sequence[bool],
        config: TrainingConfig,
        threads: int,
    ) -> ColumnBlock:
        """Bin the columns by these cuts. With local proposal, nothing is binned yet."""
        local = config.proposal == "local"
        bins = [
            config.max_bin if local and kind is ColumnKind.NUMERIC else len(edges) + 1
            for kind, edges in zip(kinds, cuts, strict=True)
        ]
        layout = BinLayout.of(bins, missing, kinds)
        shared = None
        if not local:
            matrix = np.empty((rows, len(values)), dtype=_dtype(layout))
            _bin_into(matrix, values, cuts, threads)
            shared = LevelBins([matrix], [cuts], per_node=False)
        return ColumnBlock(
            rows, kinds, tuple(values), categories, tuple(cuts), layout, shared, config.max_bin, config.binning, threads
        )

    @property
    def shared_bins(self) -> LevelBins:
        """The bins that are valid for all nodes and trees."""
        if self.shared is None:
            raise TypeError("these columns are binned separately for every node")
        return self.shared

    def without_values(self) -> ColumnBlock:
        """The same bins without the values."""
        return replace(self, values=(np.empty(0, dtype=np.float32),) * len(self.values))

    def subset(self, features: Int32Array) -> ColumnBlock:
        """The same rows with only these columns, for one tree of a run that samples columns."""
        chosen: list[int] = features.tolist()
        cuts = tuple(self.cuts[f] for f in chosen)
        shared = None
        if self.shared is not None:
            matrix = np.ascontiguousarray(self.shared.bins[0][:, features])
            columns = None if self.shared.columns is None else self.shared.columns[features]
            shared = LevelBins([matrix], [cuts], per_node=False, columns=columns)
        return replace(
            self,
            kinds=tuple(self.kinds[f] for f in chosen),
            values=tuple(self.values[f] for f in chosen),
            categories=tuple(self.categories[f] for f in chosen),
            cuts=cuts,
            layout=self.layout.subset(features),
            shared=shared,
        )

    def level_bins(self, fit: RowGroups, routed: RowGroups) -> LevelBins:
        """The bins of this level: the same for all levels, or proposed from each node's rows."""
        if self.shared is not None:
            return self.shared
        # FedXGBoost Alg. 5: quantiles of the node's own rows, feature by feature.
        groups = int(fit.group.max(initial=0)) + 1
        matrices: list[Bins] = [
            np.zeros((self.rows, len(self.values)), dtype=_dtype(self.layout)) for _ in range(groups)
        ]
        cuts: list[list[Float32Array]] = []
        for node in range(fit.nodes):
            own = fit.rows_at(node)
            every = np.concatenate((own, routed.rows_at(node)))
            at_node = [self._cuts_of(feature, own) for feature in range(len(self.values))]
            part = np.empty((len(every), len(self.values)), dtype=_dtype(self.layout))
            _bin_into(part, [values[every] for values in self.values], at_node, self.threads)
            matrices[int(fit.group[node])][every] = part
            cuts.append(at_node)
        return LevelBins(matrices, cuts, per_node=True)

    def _cuts_of(self, feature: int, rows: Int32Array) -> Float32Array:
        if self.kinds[feature] is not ColumnKind.NUMERIC:
            return self.cuts[feature]
        proposed = propose_cuts(self.values[feature][rows], None, self.max_bin, self.binning)
        # Padded to full width, so that missing values have their slot in the layout.
        return np.pad(proposed, (0, self.max_bin - 1 - len(proposed)), constant_values=ABOVE_ALL)

    # --- rows -------------------------------------------------------------------------------------------

    def all_rows(self) -> Int32Array:
        return self._all_rows

    @cached_property
    def _all_rows(self) -> Int32Array:
        return np.arange(self.rows, dtype=np.int32)

    def placed(self, values: AnyArray) -> AnyArray:
        """Values (trees, rows, ...) of a round for all rows, stored where the rows are."""
        return values

    def filler(self) -> RowFiller:
        """The same for values that are received in pieces."""
        return RowFiller(self.rows)

    # --- sums and routes --------------------------------------------------------------------------------

    def histogram(self, bins: LevelBins, gradients: Int32Array, rows: RowGroups) -> Int64Array:
        """Sums of (g, h) for every node of `rows`: shape (nodes, slots, 2)."""
        out = np.empty((rows.nodes, self.layout.slots, 2), dtype=np.int64)
        if not self.layout.features:
            return out
        joint = NO_JOINT_BINS if bins.joint is None else bins.joint.for_rows(rows.size)
        for matrix, nodes in _by_matrix(bins.bins, rows):
            part = rows if nodes is None else rows.of(nodes)
            sums = out if nodes is None else np.empty((len(nodes), self.layout.slots, 2), dtype=np.int64)
            kernel = _native.histogram_u8 if matrix.dtype == np.uint8 else _native.histogram_u16
            kernel(  # pyright: ignore[reportCallIssue]
                matrix,  # pyright: ignore[reportArgumentType]
                self.layout.offsets,
                *joint,
                gradients,
                part.rows,
                part.begin,
                part.end,
                part.group,
                sums,
                self.threads,
            )
            if nodes is not None:
                out[nodes] = sums
        return out

    def splits_of(self, handles: Int32Array, sets: Sets = NO_SETS) -> Splits:
        """The splits of these handles; `sets` are the bins that go left by those that split by a set."""
        layout, count = self.layout, len(handles)
        feature, place = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
        default_left, left = np.empty(count, dtype=np.bool_), np.empty((count, max(layout.widest, 1)), dtype=np.uint8)
        parts = layout.offsets, layout.missing, layout.kind
        _native.splits_of(handles, *parts, *sets, feature, place, default_left, left)
        return Splits(feature, place, default_left, left)

    def route(self, bins: LevelBins, rows: RowGroups, splits: Splits) -> Assignments:
        """1 for every row of `rows.listed()` that goes left by its node's split."""
        if not rows.size:
            return NO_ASSIGNMENTS
        routed: list[tuple[BoolArray, Assignments]] = []
        for matrix, nodes in _by_matrix(bins.to_route, rows):
            part = rows if nodes is None else rows.of(nodes)
            out = np.empty(part.size, dtype=np.uint8)
            picked = slice(None) if nodes is None else nodes
            kernel = _native.route_u8 if matrix.dtype == np.uint8 else _native.route_u16
            kernel(  # pyright: ignore[reportCallIssue]
                matrix,  # pyright: ignore[reportArgumentType]
                part.rows,
                part.begin,
                part.end,
                splits.feature[picked],
                splits.left[picked],
                out,
                self.threads,
            )
            if nodes is None:
                return out
            chosen = np.zeros(rows.nodes, dtype=np.bool_)
            chosen[nodes] = True
            routed.append((chosen, out))
        return rows.merged(routed)

    def rules_of(self, splits: Splits, bins: LevelBins, positions: Int64Array) -> Rules:
        """The splits of the nodes at these positions of the level, as thresholds or sets of categories."""
        slots = self.layout.offsets[splits.feature] + splits.bin
        if bins.per_node:
            nodes: list[int] = positions.tolist()
            values = [self._thresholds_by(bins.cuts[node])[slot] for node, slot in zip(nodes, slots, strict=True)]
            thresholds = np.array(values, dtype=np.float32)
        else:
            thresholds = self._thresholds[slots]
        left_sets: list[tuple[int, ...] | None] | None = None
        if not self.layout.all_numeric:
            left_sets = [
                None
                if self.kinds[feature] is ColumnKind.NUMERIC
                else tuple(splits.left[k, : self.categories[feature]].nonzero()[0].tolist())
                for k, feature in enumerate(splits.feature.tolist())
            ]
        return Rules(splits.feature, thresholds, splits.default_left, left_sets)

    @cached_property
    def _thresholds(self) -> Float32Array:
        return self._thresholds_by(self.cuts)

    def _thresholds_by(self, cuts: Sequence[Float32Array]) -> Float32Array:
        """The threshold of a split at each slot. Splits above all cuts and by categories have none."""
        thresholds = np.full(self.layout.slots, ABOVE_ALL, dtype=np.float32)
        for kind, edges, start in zip(self.kinds, cuts, self.layout.offsets[:-1].tolist(), strict=True):
            if kind is ColumnKind.NUMERIC:
                thresholds[start : start + len(edges)] = edges
        return thresholds


def _by_matrix(matrices: Sequence[Bins], rows: RowGroups) -> list[tuple[Bins, Int64Array | None]]:
    """The nodes that use each matrix; None: all of them, in order."""
    if len(matrices) == 1:
        return [(matrices[0], None)]
    return [(matrix, np.flatnonzero(rows.group == group)) for group, matrix in enumerate(matrices)]


def kinds_of(columns: Sequence[Column], config: TrainingConfig) -> tuple[tuple[ColumnKind, ...], tuple[int, ...]]:
    """The kind of each column, and its number of categories."""
    kinds = tuple(kind_of(column.categories, config) for column in columns)
    return kinds, tuple(len(column.categories or ()) for column in columns)


def kind_of(categories: Sequence[str] | None, config: TrainingConfig) -> ColumnKind:
    """How a column with these categories is split; None: it has numbers."""
    if categories is None or config.categories == "ordinal":
        return ColumnKind.NUMERIC
    few = len(categories) < config.max_cat_to_onehot
    return ColumnKind.ONEHOT if few or config.categories == "onehot" else ColumnKind.SETS


def as_float(column: Column) -> Float32Array:
    """Values as float32; category codes are treated as numbers, a missing code (-1) becomes NaN."""
    if column.categories is None:
        return np.ascontiguousarray(column.values, dtype=np.float32)
    return codes_as_float(column.values)


def codes_as_float(codes: Int32Array) -> Float32Array:
    return np.where(codes < 0, np.float32(np.nan), codes.astype(np.float32))


def category_cuts(categories: int) -> Float32Array:
    """One bin per category code, whatever rows a node has."""
    return np.arange(1, categories, dtype=np.float32) - np.float32(0.5)


def _dtype(layout: BinLayout) -> type[np.uint8] | type[np.uint16]:
    return np.uint8 if layout.widest <= 256 else np.uint16


def _bin_into(bins: Bins, values: Sequence[Float32Array], cuts: Sequence[Float32Array], threads: int) -> None:
    kernel = _native.bin_columns_u8 if bins.dtype == np.uint8 else _native.bin_columns_u16
    kernel(values, cuts, bins, 0, threads)  # pyright: ignore[reportArgumentType]
