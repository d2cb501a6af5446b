"""AUC over test rows for many budgets: what figures 4, 5, 9, 11, 12 and 15 are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from veilboost.protocols.masked.theorems import advanced_share
from veilboost.reproduce.context import Context
from veilboost.reproduce.expected import training_seconds
from veilboost.reproduce.learning import learning
from veilboost.reproduce.maskedxgboost.setting import CONFIG, DEPTH, OWN_COLUMNS, TREES, rows_of, seeds
from veilboost.reproduce.noise import DELTA, NON_PRIVATE, Method, federboost, masked
from veilboost.reproduce.target import Cell

MASKED, LDP, FIRST_ORDER, FEDERBOOST = "MaskedXGBoost", "XGBoost-LDP", "FedXGBoost-LDP", "FederBoost"
READINGS = ("composed", "per release")
EPS_PP = 1.0  # section 6.2


@dataclass(frozen=True)
class Curve:
    """A method at one budget of the active party (0: it has none) and one of the passive party."""

    method: Method
    eps_ap: float = 0.0
    eps_pp: float = EPS_PP


def masked_curve(reading: str, eps_ap: float, eps_pp: float = EPS_PP) -> Curve:
    """Theorems 2 and 3 as printed; W = 1 is all that Theorem 3 leaves at eps_PP = 1."""
    return Curve(masked(reading, eps_ap, formulas="printed", noise_vectors=1, eps_pp=eps_pp), eps_ap, eps_pp)


def without_budget() -> list[Curve]:
    """What does not change with eps_AP."""
    return [Curve(NON_PRIVATE, eps_pp=0.0), Curve(replace(federboost("per release", EPS_PP, 1), name=FEDERBOOST))]


def ldp_curve(name: str, mechanism: str, score: str, reading: str, eps_ap: float) -> Curve:
    """Noise on each gradient, anew at every level. Section 6.2: composed by the advanced bound, as for the masks."""
    whole = (eps_ap, DELTA)
    epsilon, delta = advanced_share(*whole, TREES * DEPTH) if reading == "composed" else whole
    options = {"mechanism": mechanism, "score": score, "per_node": True, "epsilon": epsilon, "delta": delta}
    return Curve(Method(name, reading, "ldp", options), eps_ap, 0.0)


def with_budget(reading: str, eps_ap: float) -> list[Curve]:
    return [
        masked_curve(reading, eps_ap),
        ldp_curve(LDP, "gaussian", "second", reading, eps_ap),
        ldp_curve(FIRST_ORDER, "laplace", "first", reading, eps_ap),
    ]


def cells_of(
    context: Context, sets: Iterable[str], curves: Sequence[Curve], keep: Callable[[list[float]], Any]
) -> list[Cell]:
    """A cell for each data set, curve and seed; `keep` says what of the AUC after each tree is kept as `auc`."""
    return [
        _cell(context, name, curve, seed, keep)
        for name in context.at_hand(sets)
        for curve in curves
        for seed in seeds(context)
    ]


def _cell(context: Context, name: str, curve: Curve, seed: int, keep: Callable[[list[float]], Any]) -> Cell:
    method = curve.method
    key = {
        "data": name,
        "method": method.name,
        "reading": method.reading,
        "eps_ap": curve.eps_ap,
        "eps_pp": curve.eps_pp,
        "seed": seed,
    }
    table = context.table(name, rows_of(context))
    seconds = training_seconds(method.protocol, table.rows, len(table.columns) // 2, TREES) + 0.5
    return Cell(key, partial(_measured, context, name, method, seed, keep), seconds)


def _measured(
    context: Context, name: str, method: Method, seed: int, keep: Callable[[list[float]], Any]
) -> dict[str, Any]:
    config = replace(CONFIG, options=method.options, **method.settings)
    found = learning(context.table(name, rows_of(context)), OWN_COLUMNS, seed, method.protocol, config)
    return {"auc": keep(found.auc)}
