"""Data sets that need no network: those of scikit-learn, and a synthetic demo data set.

In the demo data set a bank, a shop and a telecom have different features of partly the same customers. The bank
predicts who will default on a loan. Its own features are informative; those of the other two add more.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilboost.data.columns import ArrowTable, pyarrow, table_of
from veilboost.errors import InvalidParameter, UnknownDataset
from veilboost.fields import renamed
from veilboost.types import AnyArray, Float64Array


@dataclass(frozen=True)
class DatasetInfo:
    """A data set's description. `parties` is empty for a single table."""

    name: str
    rows: int
    features: int
    task: str
    about: str
    parties: tuple[str, ...] = ()


_DEMO = DatasetInfo(
    "demo",
    6000,
    22,
    "binary",
    "loan defaults, seen by a bank, a shop and a telecom that share about half of their customers",
    ("bank", "shop", "telecom"),
)
_SCIKIT_LEARN = (
    DatasetInfo("breast_cancer", 569, 30, "binary", "tumours, measured in images of cell nuclei"),
    DatasetInfo("diabetes", 442, 10, "regression", "progression of diabetes after one year"),
    DatasetInfo("digits", 1797, 61, "multiclass", "handwritten digits, without the pixels that are always empty"),
    DatasetInfo("iris", 150, 4, "multiclass", "three kinds of iris, by their petals and sepals"),
    DatasetInfo("wine", 178, 13, "multiclass", "three growers' wines, by their chemistry"),
)


def list_datasets() -> list[DatasetInfo]:
    """The data sets that `load_dataset` can load, the demo data set first."""
    return [_DEMO, *_SCIKIT_LEARN]


def load_dataset(name: str) -> ArrowTable | dict[str, ArrowTable]:
    """Load a built-in data set.

    Parameters
    ----------
    name : str
        A name from `list_datasets`.

    Returns
    -------
    pyarrow.Table or dict of str to pyarrow.Table
        One table with `id`, the features and `label`; for a data set with parties, a table for each party.

    Raises
    ------
    UnknownDataset
        There is no data set of this name.
    """
    if name == _DEMO.name:
        return make_demo_data(_DEMO.rows)
    if name not in {info.name for info in _SCIKIT_LEARN}:
        new = renamed(name, (_DEMO.name,))
        if new is not None:
            raise UnknownDataset(f"the data set {name!r} was renamed to {new!r}", f"use {new}")
        raise UnknownDataset(f"there is no data set {name!r}")
    bunch: Any = getattr(importlib.import_module("sklearn.datasets"), f"load_{name}")()
    data = np.asarray(bunch.data, dtype=np.float64)
    columns: dict[str, Any] = {"id": np.arange(len(data), dtype=np.int64)}
    for position, feature in enumerate(bunch.feature_names):
        if np.ptp(data[:, position]) > 0:
            columns[re.sub(r"\W+", "_", str(feature)).strip("_")] = data[:, position]
    return table_of(columns | {"label": np.asarray(bunch.target)})


ID = "customer_id"
LABEL = "default"
LEAST_CUSTOMERS = 50
# The share of all customers that each party has; all three have about half of them.
SHARES = {"bank": 0.85, "shop": 0.8, "telecom": 0.8}

EMPLOYMENT = ("employed", "self-employed", "student", "retired", "unemployed")
HOUSING = ("own", "mortgage", "rent", "with family")
DEPARTMENT = ("grocery", "electronics", "fashion", "garden", "toys", "alcohol")
PAYMENT = ("card", "cash", "instalments")
CONTRACT = ("yearly", "monthly", "prepaid")
DEVICE = ("budget", "middle", "flagship")

Block = tuple[dict[str, AnyArray], Float64Array]


def make_demo_data(customers: int = 6000, random_state: int = 0) -> dict[str, ArrowTable]:
    """The tables of the three parties; the same `random_state` gives the same tables.

    Parameters
    ----------
    customers : int
        The number of customers; each party has most of them, in an order of its own.
    random_state : int
        Seed of all random numbers.

    Returns
    -------
    dict of str to pyarrow.Table
        "bank" (with the label `default`), "shop" and "telecom", each with `customer_id`.
    """
    if customers < LEAST_CUSTOMERS:
        raise InvalidParameter(
            f"customers={customers} is less than {LEAST_CUSTOMERS}", f"set customers to {LEAST_CUSTOMERS} or more"
        )
    rng = np.random.default_rng(random_state)
    numbers = rng.choice(10 * customers, customers, replace=False)
    ids = np.array([f"C{number:06d}" for number in numbers])
    blocks = {
        "bank": _bank(rng, customers),
        "shop": _shop(rng, customers),
        "telecom": _telecom(rng, customers),
    }
    risk = sum((score for _, score in blocks.values()), start=np.zeros(customers))
    # With no unusual feature, about one customer in eight defaults.
    chance = 1 / (1 + np.exp(-(1.15 * (risk - np.median(risk)) - 2.0)))
    label = (rng.random(customers) < chance).astype(np.int64)
    tables: dict[str, ArrowTable] = {}
    for party, (columns, _) in blocks.items():
        known = rng.permutation(customers)[: round(SHARES[party] * customers)]
        arrays: dict[str, AnyArray] = {ID: ids}
        if party == "bank":
            arrays[LABEL] = label
        arrays |= columns
        tables[party] = table_of({name: _to_arrow(values[known]) for name, values in arrays.items()})
    return tables


def _bank(rng: np.random.Generator, n: int) -> Block:
    age = np.clip(rng.normal(44, 14, n), 18, 85).round()
    employment = rng.choice(len(EMPLOYMENT), n, p=(0.6, 0.13, 0.09, 0.12, 0.06))
    housing = rng.choice(len(HOUSING), n, p=(0.25, 0.3, 0.35, 0.1))
    level = np.array([0.0, 0.1, -0.9, -0.4, -0.8])[employment]
    income = np.exp(rng.normal(10.4 + level, 0.45)).round(-1)
    utilisation = rng.beta(1.6, 2.6, n).round(3)
    loan_amount = np.exp(rng.normal(8.9, 0.7, n)).round(-2)
    months_at_bank = rng.gamma(2.0, 35.0, n).round()
    missed_payments = rng.poisson(0.35 + 0.5 * utilisation)
    burden = np.log(loan_amount / income)
    risk = (
        1.9 * (utilisation > 0.55)
        + 0.75 * np.minimum(missed_payments, 3)
        + 0.7 * np.clip(burden + 1.5, -1.5, 2.0)
        + np.array([0.0, 0.3, 0.2, -0.3, 1.2])[employment]
        - 0.4 * (months_at_bank > 60)
        + 0.4 * (age < 27)
    )
    return {
        "age": age.astype(np.int64),
        "income": _forget(rng, income, 0.06),
        "utilisation": _forget(rng, utilisation, 0.02),
        "loan_amount": loan_amount,
        "months_at_bank": months_at_bank.astype(np.int64),
        "missed_payments": missed_payments,
        "employment": _name(rng, EMPLOYMENT, employment, 0.03),
        "housing": _name(rng, HOUSING, housing, 0.0),
    }, risk


def _shop(rng: np.random.Generator, n: int) -> Block:
    department = rng.choice(len(DEPARTMENT), n, p=(0.36, 0.17, 0.19, 0.1, 0.1, 0.08))
    payment = rng.choice(len(PAYMENT), n, p=(0.62, 0.2, 0.18))
    basket_value = np.exp(rng.normal(3.6, 0.6, n)).round(2)
    visits_per_month = rng.gamma(2.2, 1.7, n).round(1)
    returns_share = rng.beta(1.2, 9.0, n).round(3)
    discount_share = rng.beta(2.0, 4.0, n).round(3)
    night_orders = rng.poisson(1.2, n)
    risk = (
        1.8 * ((payment == 2) & (basket_value > 30))
        + 1.2 * (returns_share > 0.14)
        + 1.2 * np.abs(np.log(basket_value) - 3.6)
        + np.array([-0.4, 0.6, 0.0, -0.6, 0.0, 1.0])[department]
        - 0.15 * np.minimum(visits_per_month, 6)
    )
    return {
        "basket_value": _forget(rng, basket_value, 0.04),
        "visits_per_month": visits_per_month,
        "returns_share": _forget(rng, returns_share, 0.08),
        "discount_share": discount_share,
        "night_orders": night_orders,
        "favourite_department": _name(rng, DEPARTMENT, department, 0.05),
        "payment": _name(rng, PAYMENT, payment, 0.0),
    }, risk


def _telecom(rng: np.random.Generator, n: int) -> Block:
    contract = rng.choice(len(CONTRACT), n, p=(0.45, 0.35, 0.2))
    device = rng.choice(len(DEVICE), n, p=(0.4, 0.4, 0.2))
    late_bills = rng.poisson(0.6, n)
    night_calls = rng.gamma(1.3, 4.0, n).round(1)
    data_gb = np.exp(rng.normal(2.3, 0.8, n)).round(2)
    contacts = rng.negative_binomial(4, 0.1, n)
    roaming_days = rng.poisson(2.0, n)
    risk = (
        1.1 * np.minimum(late_bills, 3)
        + 0.9 * (night_calls > 8)
        + np.array([-0.4, 0.0, 0.7])[contract]
        + 0.8 * ((device == 2) & (contract != 0))
        - 0.7 * (contacts > 40)
    )
    return {
        "late_bills": late_bills,
        "night_calls": _forget(rng, night_calls, 0.05),
        "data_gb": _forget(rng, data_gb, 0.03),
        "contacts": contacts,
        "roaming_days": roaming_days,
        "contract": _name(rng, CONTRACT, contract, 0.0),
        "device": _name(rng, DEVICE, device, 0.04),
    }, risk


def _forget(rng: np.random.Generator, values: Float64Array, share: float) -> Float64Array:
    return np.where(rng.random(len(values)) < share, np.nan, values)


def _name(rng: np.random.Generator, names: tuple[str, ...], codes: AnyArray, missing: float) -> AnyArray:
    named = np.array(names, dtype=object)[codes]
    named[rng.random(len(codes)) < missing] = None
    return named


def _to_arrow(values: AnyArray) -> object:
    return pyarrow().array(values, from_pandas=True)  # NaN becomes missing
