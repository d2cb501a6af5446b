"""The complete model of horizontal training: as a message, and column blocks with given cut points."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, cast

import numpy as np

from veilboost.boost.bins import BinLayout
from veilboost.boost.columns import ColumnBlock, LevelBins, as_float, category_cuts, kind_of, kinds_of
from veilboost.boost.grower import LEAF, Tree
from veilboost.config import TrainingConfig
from veilboost.errors import MalformedMessage, VeilBoostError
from veilboost.model.share import ColumnInfo, ModelShare, Skeleton, SplitRecords
from veilboost.protocols.horizontal.schema import Schema
from veilboost.types import BoolArray, Column, ColumnKind, Float32Array, Float64Array, Int32Array, UInt8Array
from veilboost.wire.message import ArraySpec, Message, Reveals

HOLDER = "model"  # owner of the only share of such a model; the server and every participant have a copy


@dataclass(frozen=True)
class TrainedModel(Message):
    """Server to participant: the complete model."""

    reveals: ClassVar[tuple[Reveals, ...]] = (
        Reveals(
            "the model: column, threshold or categories of every split, covers, gains, leaf weights", "participant"
        ),
    )
    about: str
    sizes: Annotated[Int32Array, ArraySpec("int32", 1)]
    left: Annotated[Int32Array, ArraySpec("int32", 1)]
    weight: Annotated[Float32Array, ArraySpec("float32", 1)]
    gain: Annotated[Float64Array, ArraySpec("float64", 1)]
    cover: Annotated[Float64Array, ArraySpec("float64", 1)]
    base_margin: Annotated[Float64Array, ArraySpec("float64", 1)]
    feature: Annotated[Int32Array, ArraySpec("int32", 1)]
    threshold: Annotated[Float32Array, ArraySpec("float32", 1)]
    default_left: Annotated[UInt8Array, ArraySpec("uint8", 1)]
    set_of: Annotated[Int32Array, ArraySpec("int32", 1)]
    left_sets: Annotated[UInt8Array, ArraySpec("uint8", 2)]


def full_model(
    protocol: str, schema: Schema, trees: Sequence[Tree], base: Float64Array, records: SplitRecords, config: Any
) -> ModelShare:
    """Return a model as a single share that owns all columns."""
    skeleton = Skeleton(
        protocol=protocol,
        objective=schema.objective,
        classes=schema.classes,
        parties=(HOLDER,),
        trees_per_round=schema.trees_per_round,
        trees=tuple(trees),
        base_margin=base,
        config=config,
    )
    return ModelShare(HOLDER, schema.columns, records, skeleton)


def skeleton_of(share: ModelShare) -> Skeleton:
    """The skeleton of a model that `full_model` returned."""
    return cast(Skeleton, share.skeleton)


def to_message(share: ModelShare) -> TrainedModel:
    skeleton = skeleton_of(share)
    records, trees = share.records, skeleton.trees
    about = {
        "protocol": skeleton.protocol,
        "objective": skeleton.objective,
        "classes": skeleton.classes,
        "trees_per_round": skeleton.trees_per_round,
        "columns": [(info.name, info.categories) for info in share.columns],
        "config": skeleton.config.to_dict(),
    }
    return TrainedModel(
        about=json.dumps(about),
        sizes=np.array([tree.nodes for tree in trees], dtype=np.int32),
        left=_joined([tree.left for tree in trees], np.int32),
        weight=_joined([tree.weight for tree in trees], np.float32),
        gain=_joined([tree.gain for tree in trees], np.float64),
        cover=_joined([tree.cover for tree in trees], np.float64),
        base_margin=skeleton.base_margin,
        feature=records.feature,
        threshold=records.threshold,
        default_left=records.default_left.view(np.uint8),
        set_of=records.set_of,
        left_sets=records.left_sets.view(np.uint8),
    )


def from_message(message: TrainedModel) -> ModelShare:
    """Return the model that a server sent; raise `MalformedMessage` if it is inconsistent."""
    try:
        about = cast("dict[str, Any]", json.loads(message.about))
        columns = tuple(
            ColumnInfo(str(name), None if categories is None else tuple(map(str, categories)))
            for name, categories in about["columns"]
        )
        classes = None if about["classes"] is None else tuple(map(str, about["classes"]))
        config = TrainingConfig.from_dict(about["config"])
        trees, records = _trees(message), _records(message, columns)
        per_round = int(about["trees_per_round"])
        if per_round < 1 or len(trees) % per_round or len(message.base_margin) != per_round:
            raise ValueError("trees")
        objective, protocol = str(about["objective"]), str(about["protocol"])
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, VeilBoostError) as error:
        raise MalformedMessage("the received model is inconsistent") from error
    skeleton = Skeleton(protocol, objective, classes, (HOLDER,), per_round, trees, message.base_margin, config)
    return ModelShare(HOLDER, columns, records, skeleton)


def _trees(message: TrainedModel) -> tuple[Tree, ...]:
    sizes, left = message.sizes.astype(np.int64), message.left
    if (sizes < 1).any() or any(
        len(each) != sizes.sum() for each in (left, message.weight, message.gain, message.cover)
    ):
        raise ValueError("sizes")
    begin = np.cumsum(sizes) - sizes
    inner = np.flatnonzero(left != LEAF)
    first = np.repeat(begin, sizes)[inner]
    child = first + left[inner]
    # Children come after their parents and have only one: no walk down a tree can loop.
    if (child <= inner).any() or (child + 1 >= np.repeat(begin + sizes, sizes)[inner]).any():
        raise ValueError("children")
    parents = np.bincount(np.concatenate((child, child + 1)), minlength=len(left))
    expected = np.ones(len(left), dtype=np.int64)
    expected[begin] = 0
    if not np.array_equal(parents, expected):
        raise ValueError("parents")
    owner = np.where(left == LEAF, LEAF, 0).astype(np.int32)
    pieces: tuple[Any, ...] = (left, owner, message.weight, message.gain, message.cover)
    return tuple(
        Tree(*(piece[start : start + size] for piece in pieces))
        for start, size in zip(begin.tolist(), sizes.tolist(), strict=True)
    )


def _records(message: TrainedModel, columns: Sequence[ColumnInfo]) -> SplitRecords:
    inner = message.left != LEAF
    count = int(inner.sum())
    pieces = (message.feature, message.threshold, message.default_left, message.set_of)
    if any(len(piece) != count for piece in pieces):
        raise ValueError("splits")
    if count and not (0 <= message.feature.min() <= message.feature.max() < len(columns)):
        raise ValueError("columns")
    if count and not (-1 <= message.set_of.min() <= message.set_of.max() < len(message.left_sets)):
        raise ValueError("sets")
    tree = np.repeat(np.arange(len(message.sizes), dtype=np.int32), message.sizes)
    first = np.repeat(np.cumsum(message.sizes) - message.sizes, message.sizes)
    node = (np.arange(len(tree)) - first).astype(np.int32)
    return SplitRecords(
        tree=tree[inner],
        node=node[inner],
        feature=message.feature,
        threshold=message.threshold,
        default_left=message.default_left != 0,
        set_of=message.set_of,
        left_sets=cast(BoolArray, message.left_sets != 0),
    )


def _joined(pieces: Sequence[Any], kind: Any) -> Any:
    return np.concatenate([np.empty(0, dtype=kind), *pieces]).astype(kind, copy=False)


def block_with_cuts(
    columns: Sequence[Column],
    rows: int,
    cuts: Sequence[Float32Array],
    missing: Sequence[bool],
    config: TrainingConfig,
    threads: int,
) -> ColumnBlock:
    """Bin columns by the cut points that all participants share; each category has its own bin, whatever `cuts` is."""
    kinds, categories = kinds_of(columns, config)
    edges = [
        given if kind is ColumnKind.NUMERIC else category_cuts(count)
        for kind, count, given in zip(kinds, categories, cuts, strict=True)
    ]
    values, config = [as_float(column) for column in columns], replace(config, proposal="global")
    return ColumnBlock.with_cuts(values, rows, kinds, categories, edges, missing, config, threads)


def block_of_bins(
    schema: Schema, cuts: Sequence[Float32Array], config: TrainingConfig, bins: Any, threads: int
) -> ColumnBlock:
    """Return columns without values, as a server has them: only cut points and, for these rows, bins."""
    kinds = [kind_of(info.categories, config) for info in schema.columns]
    return ColumnBlock(
        rows=len(bins),
        kinds=tuple(kinds),
        values=(np.empty(0, dtype=np.float32),) * len(kinds),
        categories=tuple(len(info.categories or ()) for info in schema.columns),
        cuts=tuple(cuts),
        layout=BinLayout.of([len(each) + 1 for each in cuts], list(schema.missing), kinds),
        shared=LevelBins([np.ascontiguousarray(bins)], [cuts], per_node=False),
        max_bin=config.max_bin,
        binning=config.binning,
        threads=threads,
    )
