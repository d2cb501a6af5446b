"""What a stored measurement depends on: a digest of a small run with fixed noise.

A cell that was measured before counts as long as its fingerprint is the same. A rename of an option or of a module
leaves the fingerprint as it is; a change of the noise, of the scores or of the number of exchanges changes it. What a
small run cannot show (how fast a kernel is) does not change it either: seconds are compared by `--check`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from papers.experiments import experiments_at_hand
from papers.tables import among, synthetic
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import SERVER, simulate_training

Probe = Callable[[], Any]  # numbers that JSON can hold, always the same ones

_ROWS, _TREES, _DEPTH = 150, 2, 2
_SHORT_KEY = {"key_bits": 512, "allow_insecure_key": True}  # sums are exact whatever the key


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def digest_of_table(table: PartyTable) -> str:
    """Of all labels and values."""
    state = hashlib.sha256(repr([column.name for column in table.columns]).encode())
    for column in table.columns:
        values = np.asarray(column.values)
        state.update(values.astype(np.str_).tobytes() if values.dtype == object else values.tobytes())
    state.update(b"" if table.label is None else np.asarray(table.label).tobytes())
    return state.hexdigest()[:16]


def small_run(protocol: str, config: TrainingConfig, *, horizontal: bool = False) -> Probe:
    """A training on a few rows: what its model predicts, and how many exchanges it took."""

    def probe() -> Any:
        name = repr((protocol, config, horizontal))
        if name not in _KNOWN:
            _KNOWN[name] = _outcome(protocol, config, horizontal)
        # Trees and depth are more than a small run reaches.
        return [config.n_estimators, config.max_depth, *_KNOWN[name]]

    return probe


_KNOWN: dict[str, list[Any]] = {}


def _outcome(protocol: str, config: TrainingConfig, horizontal: bool) -> list[Any]:
    own: Mapping[str, Any] = config.options
    if protocol == "paillier" or "key_bits" in own:
        own = {**own, **_SHORT_KEY}
    trees = min(config.n_estimators, _TREES)
    depth = config.max_depth if horizontal else min(config.max_depth, _DEPTH)  # `mal` takes no depth but its own
    job = replace(config, n_estimators=trees, max_depth=depth, random_state=0, options=own)
    table = synthetic(_ROWS, 6)
    parts = np.array_split(np.arange(table.rows), 3)
    tables = {f"p{at}": table.take(part) for at, part in enumerate(parts)} if horizontal else among(table, 2)
    with experiments_at_hand():
        driver = SERVER if horizontal else next(iter(tables))
        run = simulate_training(tables, driver, protocol, job, unsafe_noise_seed=0)
    margins = run.model.margins(table.columns)[0]
    return [[float(f"{margin:.5g}") for margin in margins], run.rounds]
