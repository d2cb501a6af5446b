"""Whatever the options of a protocol: a job trains, or is refused with a coded error. It never ends in a traceback."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support import make_columns, make_labels
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.errors import VeilBoostError
from veilboost.fields import bare, info_of, kinds_of
from veilboost.party.simulation import SERVER, simulate_training
from veilboost.protocols.registry import all_protocols, protocol_named

EXAMPLES = int(os.environ.get("VEILBOOST_OPTION_EXAMPLES", "25"))
# Left out, or drawn from a few values, because a value costs time and takes no other path.
CHEAP: dict[str, st.SearchStrategy[Any]] = {
    "n_estimators": st.integers(1, 3),
    "max_depth": st.integers(1, 4),
    "key_bits": st.sampled_from([512, 777]),
    "allow_insecure_key": st.sampled_from([True, True, True, False]),
    "ore_bits": st.sampled_from([16, 17, 24]),
    "random_state": st.integers(0, 5),
    "r": st.integers(1, 40) | st.just(1_000_000),
    "l1": st.integers(0, 40) | st.just(10_000),
    "l2": st.integers(0, 40) | st.just(10_000),
    "clock": st.sampled_from([0.0, 1e-9, 0.01]),
    "noise_vectors": st.none() | st.integers(1, 5),
}


def values_of(cls: type[Any], item: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    if item.name in CHEAP:
        return CHEAP[item.name]
    info, hint = info_of(item), kinds_of(cls)[item.name]
    kind = bare(hint)
    if info.choices:
        found: st.SearchStrategy[Any] = st.sampled_from(info.choices)
    elif kind is bool:
        found = st.booleans()
    elif kind is int:
        low, high = int(max(info.low, -(2**31))), int(min(info.high, 2**31))
        found = st.integers(low, min(low + 40, high)) | st.sampled_from([low, high])
    else:
        low, high = max(info.low, -1e30), min(info.high, 1e30)
        common = st.floats(max(low, -3.0), min(high, 3.0))
        ends = [value for value in (low, high, 0.75, 0.9, 1.0, 1e-9, 1e-3) if low <= value <= high]
        found = (common | st.sampled_from(ends)).filter(lambda value: not (info.low_open and value == info.low))
    return found if kind is hint else st.none() | found


def fields_of(cls: type[Any], few: int) -> st.SearchStrategy[dict[str, Any]]:
    """Some fields set, the others left at their defaults: refusals would hide what lies behind them."""
    every = {item.name: values_of(cls, item) for item in dataclasses.fields(cls) if item.name != "options"}
    if not every:
        return st.just({})
    chosen = st.lists(st.sampled_from(sorted(every)), unique=True, max_size=few)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: every[name] for name in names}))


def tables(setting: str, objective: str, rows: int, seed: int) -> tuple[dict[str, PartyTable], str]:
    columns = make_columns(seed, rows=rows, numeric=3, categorical=2, missing=0.15)
    label = make_labels(seed, columns, "binary" if objective == "auto" else objective)
    ids = np.arange(rows)
    if setting == "vertical":
        first, second = tuple(columns[::2]), tuple(columns[1::2])
        return {"bank": PartyTable(ids, first, label), "shop": PartyTable(ids, second, None)}, "bank"
    whole = PartyTable(ids, tuple(columns), label)
    edges = [0, rows // 2, rows - rows // 5, rows]
    parts = {f"p{k}": whole.take(np.arange(edges[k], edges[k + 1])) for k in range(3)}
    return parts, SERVER


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", sorted(all_protocols()))
def test_options_end_in_a_model_or_in_a_coded_error(name: str) -> None:
    spec = protocol_named(name)
    trained, most = 0, 40 if spec.setting == "vertical" else 120

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        fields_of(TrainingConfig, 4),
        fields_of(spec.options, 4),
        st.integers(6, most),
        st.integers(0, 10),
    )
    @example({}, {}, most, 0)
    def search(changes: dict[str, Any], options: dict[str, Any], rows: int, seed: int) -> None:
        nonlocal trained
        quick = {"n_estimators": 2, "max_depth": 3, "max_bin": 8, "objective": "binary", **spec.fixed}
        if "key_bits" in {item.name for item in dataclasses.fields(spec.options)}:
            options = {"key_bits": 512, "allow_insecure_key": True} | options
        try:
            config = TrainingConfig.from_dict(quick | changes | {"options": options})
            parties, driver = tables(spec.setting, config.objective, rows, seed)
            run = simulate_training(parties, driver, name, config)
        except VeilBoostError:
            return
        trained += 1
        for part in run.shares.values():
            if part.skeleton is not None:
                assert all(math.isfinite(weight) for tree in part.skeleton.trees for weight in tree.weight.tolist())

    search()
    assert trained  # or the search was about refusals only
