"""Contributions of features to the scores of rows, with the attributes of `shap.Explanation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from veilboost.errors import MissingExtra
from veilboost.types import AnyArray, BoolArray, Column, Float64Array, PartyName


@dataclass(frozen=True)
class Explanation:
    """How much each feature moved the margin of each row away from the expected margin (TreeSHAP).

    A margin is the score before the link function: log odds for two classes, the value itself for regression.

    Attributes
    ----------
    values : ndarray of shape (rows, features) or (rows, features, classes)
        The contributions.
    base_values : ndarray of shape (rows,) or (rows, classes)
        The expected margin. Together with the contributions of a row, it adds up to the row's margin.
    data : ndarray of shape (rows, features)
        The values of the features; None (NaN if all features are numbers) where the explaining party has none.
    feature_names : tuple of str
        Names of columns, pseudonyms such as `shop#3`, or the name of a party for the sum of its columns.
    parties : tuple of str
        The owner of each feature.
    output_names : tuple of str or None
        The classes, if there are more than two.
    """

    values: Float64Array
    base_values: Float64Array
    data: AnyArray
    feature_names: tuple[str, ...]
    parties: tuple[PartyName, ...]
    output_names: tuple[str, ...] | None = None

    @staticmethod
    def of(
        contributions: Float64Array,
        names: Sequence[str],
        parties: Sequence[PartyName],
        known: Mapping[int, Column],
        classes: Sequence[str] | None,
    ) -> Explanation:
        """From contributions (rows, K, features + 1), and the columns whose values are known by feature number."""
        values, base = contributions[..., :-1].transpose(0, 2, 1), contributions[..., -1]
        outputs = None
        if values.shape[2] == 1:
            values, base = values[..., 0], base[..., 0]
        else:
            outputs = tuple(classes or map(str, range(values.shape[2])))
        data = _table([known.get(feature) for feature in range(len(names))], len(values))
        return Explanation(values, base, data, tuple(names), tuple(parties), outputs)

    @property
    def margins(self) -> Float64Array:
        """The margins (K, rows) that the rows add up to."""
        return np.atleast_2d((self.values.sum(axis=1) + self.base_values).T)

    @cached_property
    def importance(self) -> Float64Array:
        """The mean of the absolute contributions of each feature, summed over the classes."""
        mean = np.abs(self.values).mean(axis=0) if len(self.values) else np.zeros(self.values.shape[1:])
        return mean if mean.ndim == 1 else mean.sum(axis=1)

    def take(self, rows: AnyArray) -> Explanation:
        """Some of the rows, or all of them in another order."""
        return replace(self, values=self.values[rows], base_values=self.base_values[rows], data=self.data[rows])

    def spread(self, among: BoolArray) -> Explanation:
        """The same rows, in order, where `among` is true; the other rows are NaN, their data None."""
        out = {name: _spread(getattr(self, name), among) for name in ("values", "base_values", "data")}
        return replace(self, **out)

    @property
    def explained(self) -> Explanation:
        """The rows that have contributions: not those that were skipped."""
        return self.take(~np.isnan(self.base_values.reshape(len(self.base_values), -1)[:, 0]))

    def pick(self, features: Sequence[int]) -> Explanation:
        """Some of the features, or all of them in another order."""
        at = list(features)
        return replace(
            self,
            values=self.values[:, at],
            data=self.data[:, at],
            feature_names=tuple(self.feature_names[each] for each in at),
            parties=tuple(self.parties[each] for each in at),
        )

    def output(self, number: int) -> Explanation:
        """The explanation of one class."""
        if self.output_names is None:
            return self
        return replace(
            self, values=self.values[..., number], base_values=self.base_values[..., number], output_names=None
        )

    def reasons(self, top: int) -> list[list[str]]:
        """Reason codes: for each row the `top` features that raised its score most, the strongest first.

        For more than two classes, the score is that of the row's most probable class. Features that did not raise the
        score are left out.
        """
        raised = self.values
        if raised.ndim == 3:
            raised = raised[np.arange(len(raised)), :, self.margins.argmax(axis=0)]
        order = np.argsort(-raised, axis=1, kind="stable")[:, :top]
        return [
            [self.feature_names[feature] for feature in best if own[feature] > 0]
            for own, best in zip(raised, order.tolist(), strict=True)
        ]

    def to_shap(self) -> Any:
        """The same as a `shap.Explanation`, for the plots of the package `shap`."""
        try:
            shap: Any = import_module("shap")
        except ModuleNotFoundError:
            raise MissingExtra("to_shap needs the package shap", "run pip install 'veilboost[shap]'") from None
        return shap.Explanation(
            self.values,
            base_values=self.base_values,
            data=self.data,
            feature_names=list(self.feature_names),
            output_names=None if self.output_names is None else list(self.output_names),
        )


def _spread(rows: AnyArray, among: BoolArray) -> AnyArray:
    out = np.full((len(among), *rows.shape[1:]), None if rows.dtype == object else np.nan, dtype=rows.dtype)
    out[among] = rows
    return out


def _table(columns: Sequence[Column | None], rows: int) -> AnyArray:
    """The values of columns (rows, columns): numbers if all are numbers, otherwise objects."""
    numbers = all(column is None or column.categories is None for column in columns)
    data = np.full((rows, len(columns)), np.nan if numbers else None, dtype=np.float64 if numbers else object)
    for at, column in enumerate(columns):
        if column is not None and column.categories is not None:
            data[:, at] = np.array([*column.categories, None], dtype=object)[column.values]  # -1 is the last
        elif column is not None:
            data[:, at] = column.values
    return data
