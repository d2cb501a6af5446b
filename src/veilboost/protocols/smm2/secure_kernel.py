"""FedXGBoost Alg. 5: kernel vectors of split columns that are hidden among decoys."""

from __future__ import annotations

import numpy as np

from veilboost.crypto.csprng import Csprng
from veilboost.errors import UnsupportedCombination
from veilboost.protocols.smm2.blocks import Block, Room
from veilboost.protocols.smm2.options import Smm2Options
from veilboost.protocols.vertical.kernels import hidden_rows
from veilboost.protocols.vertical.null_space import gaussian, lengths, null_vectors
from veilboost.types import BoolArray, Float64Array

_TRIES = 20


def secure_kernel(block: Block, options: Smm2Options, source: Csprng, room: Room) -> list[tuple[Block, Float64Array]]:
    """A block with its kernel vectors (Alg. 5, line 10); two smaller ones where together they leave a row bare."""
    rows = len(block.groups)
    count = options.count(rows, 2)
    if not count:
        return [(block, np.empty((rows, 0)))]
    # Features can depend on each other so that two of their cuts differ by one row: then they are kept apart. The cuts
    # of one feature cannot, so there only an unlucky decoy can be the reason.
    for _ in range(_TRIES if len(block.cuts) == 1 else 1):
        kernel = null_vectors(_quasi_secure(block, options, source, room), count, source)
        if hidden_rows(kernel).all():
            return [(block, kernel)]
    if len(block.cuts) == 1:
        raise UnsupportedCombination(
            f"no kernel vectors of a node of {rows} rows hide every row", "lower l1 and l2, or raise min_child_weight"
        )
    return [found for half in block.split() for found in secure_kernel(half, options, source, room)]


def _quasi_secure(block: Block, options: Smm2Options, source: Csprng, room: Room) -> Float64Array:
    """M* = [M M' Y]: true splits, decoy splits, random real columns (Alg. 5, lines 6 to 8), scaled to length 1."""
    l1, l2 = options.added(len(block.groups))
    columns = block.matrix(l1 + l2, room)
    width = block.width
    decoys = _decoys(block, l1, options.decoys, source)
    # A decoy of one row would leave it bare as a true column of one row would: its complement takes its place.
    columns[:, width : width + l1] = decoys ^ (decoys.sum(axis=0) == 1)
    columns[:, width + l1 :] = gaussian(source, len(columns), l2)
    norm = lengths(columns)
    columns /= np.where(norm > 0, norm, 1.0)  # in place: they are most of the party's memory
    return columns


def _decoys(block: Block, count: int, kind: str, source: Csprng) -> BoolArray:
    """M' (rows, count): random bits as published; or steps of true features whose rows were dealt out anew.

    Random bits do not nest, and true splits of one feature do, which tells them apart. Steps of one dealing nest.
    """
    rows, features = len(block.groups), len(block.cuts)
    if kind == "random":
        return (np.frombuffer(source.bytes(rows * count), dtype=np.uint8).reshape(rows, count) & 1) == 1
    columns = np.empty((rows, count), dtype=np.bool_)
    per_feature = -(-count // features)
    done = turn = 0
    while done < count:
        cuts = len(block.cuts[turn % features].bins)
        steps = np.linspace(0, cuts - 1, min(per_feature, cuts, count - done)).round().astype(np.int64)
        dealt = np.argsort(np.frombuffer(source.bytes(8 * rows), dtype="<u8"), kind="stable")
        columns[:, done : done + len(steps)] = block.groups[dealt, turn % features, None] <= steps
        done += len(steps)
        turn += 1
    return columns
