"""The parameters of the estimators, spelt out: scikit-learn reads them off the signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from veilboost.config import DEFAULTS, OptionValue
from veilboost.errors import EmptyTable, ImpossibleParameter, UnsupportedCombination
from veilboost.estimators.inputs import Parties
from veilboost.estimators.sklearn_base import BaseEstimator
from veilboost.types import PartyName


class Parameters(BaseEstimator):
    """
    Parameters
    ----------
    protocol : str
        How the parties' columns and the labels are protected; `veilboost protocols` lists the names.
    parties : int or mapping of party name to columns
        Who holds which columns of one matrix: so many parties in equal shares, the first one active; or the
        columns of each, by name or position. Where fit is given a table per party, this is not used.
    active : str, optional
        The party with the labels; unset: the first one.
    id : str, optional
        The column to align rows by, where there is a table per party.
    categorical : sequence
        Columns to take as categories although they hold numbers (text always is categories).
    objective : str or callable
        The loss to minimise, or a user's own `(margin, y) -> (g, h)`.
    classes : sequence, optional
        The classes of a classifier, where they may not come from the labels: `sealed` needs them, unless `objective` is
        "binary" and labels are 0 and 1. A label outside of them is refused; a class that no label has is fine.
    options : mapping, optional
        The protocol's own parameters, as `{"key_bits": 3072}`.
    threads : int
        How many threads a party uses.
    engine : str
        Where parties compute: "local", "disk" or "disk:FOLDER" (rows in files), "ray" (workers on this machine) or
        "ray://HOST:PORT" (a cluster).
    workers : int, optional
        How many workers the engine "ray" has; unset: one per core.

    All other parameters are those of `veilboost.config.TrainingConfig`, with XGBoost's names.
    """

    def __init__(
        self,
        *,
        protocol: str = "plain",
        parties: Parties = 2,
        active: PartyName | None = None,
        id: str | None = None,
        categorical: Sequence[Any] = (),
        objective: str | Callable[..., Any] = DEFAULTS.objective,
        classes: Sequence[Any] | None = None,
        n_estimators: int = DEFAULTS.n_estimators,
        max_depth: int = DEFAULTS.max_depth,
        learning_rate: float = DEFAULTS.learning_rate,
        max_bin: int = DEFAULTS.max_bin,
        binning: str = DEFAULTS.binning,
        proposal: str = DEFAULTS.proposal,
        categories: str = DEFAULTS.categories,
        reg_lambda: float = DEFAULTS.reg_lambda,
        reg_alpha: float = DEFAULTS.reg_alpha,
        gamma: float = DEFAULTS.gamma,
        min_child_weight: float = DEFAULTS.min_child_weight,
        min_node_rows: int = DEFAULTS.min_node_rows,
        max_delta_step: float = DEFAULTS.max_delta_step,
        subsample: float = DEFAULTS.subsample,
        sampling: str = DEFAULTS.sampling,
        top_rate: float = DEFAULTS.top_rate,
        other_rate: float = DEFAULTS.other_rate,
        colsample_bytree: float = DEFAULTS.colsample_bytree,
        scale_pos_weight: float = DEFAULTS.scale_pos_weight,
        base_score: float | None = DEFAULTS.base_score,
        order: str = DEFAULTS.order,
        weighted_bins: bool = DEFAULTS.weighted_bins,
        eval_metric: str = DEFAULTS.eval_metric,
        early_stopping_rounds: int | None = DEFAULTS.early_stopping_rounds,
        gradient_bits: int = DEFAULTS.gradient_bits,
        seed: int = DEFAULTS.seed,
        options: Mapping[str, OptionValue] | None = None,
        threads: int = 1,
        engine: str = "local",
        workers: int | None = None,
    ) -> None:
        self.protocol = protocol
        self.parties = parties
        self.active = active
        self.id = id
        self.categorical = categorical
        self.objective = objective
        self.classes = classes
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.learning_rate = learning_rate
        self.max_bin = max_bin
        self.binning = binning
        self.proposal = proposal
        self.categories = categories
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.gamma = gamma
        self.min_child_weight = min_child_weight
        self.min_node_rows = min_node_rows
        self.max_delta_step = max_delta_step
        self.subsample = subsample
        self.sampling = sampling
        self.top_rate = top_rate
        self.other_rate = other_rate
        self.colsample_bytree = colsample_bytree
        self.scale_pos_weight = scale_pos_weight
        self.base_score = base_score
        self.order = order
        self.weighted_bins = weighted_bins
        self.eval_metric = eval_metric
        self.early_stopping_rounds = early_stopping_rounds
        self.gradient_bits = gradient_bits
        self.seed = seed
        self.options = options
        self.threads = threads
        self.engine = engine
        self.workers = workers


def check_call(threads: object, early_stopping_rounds: object, eval_set: object) -> None:
    """What `TrainingConfig` does not check."""
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or cast(int, threads) < 1:
        raise ImpossibleParameter(f"threads={threads!r} is not a whole number of 1 or more")
    if eval_set is None:
        if early_stopping_rounds is not None:
            raise UnsupportedCombination("early_stopping_rounds needs validation rows", "give fit an eval_set")
    elif not isinstance(eval_set, tuple | list) or len(cast("Sequence[object]", eval_set)) != 2:
        raise ImpossibleParameter("eval_set is not a pair", "give (X, y)")


def choose_active(active: PartyName | None, parties: Sequence[Any]) -> PartyName:
    """The party that holds the labels: as asked, or the first."""
    if not parties:
        raise EmptyTable("there is no party", "name the parties and their columns")
    if not all(isinstance(party, str) for party in parties):
        raise ImpossibleParameter("a party's name is not text", "name every party")
    if active is not None and active not in parties:
        raise ImpossibleParameter(f"active={active!r} is none of the parties {', '.join(parties)}")
    return parties[0] if active is None else active
