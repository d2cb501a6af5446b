"""Categorical columns with many values: training uses only the values that are frequent enough to learn from.

A split by a set of categories orders them by their gradients. With a few rows in each category that order repeats the
labels of these rows: the tree memorises them. So a column of more than `MAX_CATEGORIES` values keeps its most frequent
ones, and treats the others as missing, as prediction treats values that did not occur in training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from veilboost.types import Column, Int32Array, Int64Array

MAX_CATEGORIES = 64
MIN_CATEGORY_ROWS = 100  # LightGBM's `min_data_per_group`


def frequent_codes(counts: Int64Array, max_categories: int) -> Int64Array:
    """The codes of the categories to keep, in order, from the number of rows of each category."""
    if len(counts) <= max_categories:
        return np.arange(len(counts))
    order = np.argsort(-counts, kind="stable")[:max_categories]  # of equal counts the first by name
    return np.sort(order[counts[order] >= MIN_CATEGORY_ROWS])


def renumbered(kept: Int64Array, categories: int) -> Int32Array:
    """The new code of every old code, and of -1 as the last entry; -1 for categories that are not kept."""
    codes = np.full(categories + 1, -1, dtype=np.int32)
    codes[kept] = np.arange(len(kept), dtype=np.int32)
    return codes


def category_counts(column: Column) -> Int64Array:
    """The number of rows of each category."""
    return np.bincount(column.values[column.values >= 0], minlength=len(column.categories or ()))


def with_categories(column: Column, categories: Sequence[str]) -> Column:
    """A categorical column in the codes of these categories; others become missing."""
    code = {category: at for at, category in enumerate(categories)}
    table = np.array([code.get(category, -1) for category in column.categories or ()] + [-1], dtype=np.int32)
    return Column(column.name, table[column.values], tuple(categories))  # the last entry maps the missing code -1
