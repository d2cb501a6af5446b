"""Every target of MaskedXGBoost and FedXGBoost runs from data to claim, on data of our own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from papers import measure
from papers.fedxgboost import losses, overhead, timing
from papers.maskedxgboost import attacks, communication, curves, table3, theorem3, tradeoff
from papers.runner import reproduce
from papers.target import PAPERS, Context, Target, targets_named, targets_of

ROWS = 80
OURS = [target for paper in ("maskedxgboost", "fedxgboost") for target in targets_of(paper)]
# Those of appendix H, and two of FedXGBoost, are others of these with other data.
DIFFERENT = [
    each
    for each in OURS
    if not each.group and (each.paper, each.name) not in {("fedxgboost", "table-2"), ("fedxgboost", "figure-5")}
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two data sets under the names of the papers'."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("give_credit", "default_credit"):
        columns = {f"x{k}": rng.normal(size=ROWS).astype(np.float32) for k in range(4)}
        label = (columns["x0"] + columns["x3"] + rng.normal(size=ROWS) > 0).astype(np.int64)
        pq.write_table(pa.table({"id": np.arange(ROWS), **columns, "label": label}), folder / f"{name}.parquet")
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few small trees, and no processes."""
    for module in (curves, table3, attacks, losses, timing, overhead, tradeoff):
        monkeypatch.setattr(module, "CONFIG", replace(module.CONFIG, n_estimators=3, max_depth=2))
    for module, name, value in (
        (attacks, "TREES", 4),
        (attacks, "EPSILONS_PP", (1.0, 8.0)),
        (attacks, "EPSILONS_AP", (8.0,)),
        (attacks, "DELTAS_AP", (1e-3,)),
        (communication, "ROWS", 60),
        (theorem3, "EPSILONS", (2.0, 6.0)),
        (theorem3, "RATIOS", (0.1, 1.0, 10.0)),
        (overhead, "ROWS", (50, 100, 150, 200)),
        (overhead, "POINT_ROWS", 150),
        (overhead, "SMALL", (50, 100)),
        (overhead, "LONG_KEY", replace(overhead.METHODS[1], reading="a long key")),
        (tradeoff, "EPSILONS", (tradeoff.DEFAULT.eps_ap,)),
        (tradeoff, "SETS", ("default_credit",)),
    ):
        monkeypatch.setattr(module, name, value)

    def in_here(tables, protocol, config, *, warm_up):
        return measure.training_cost(tables, protocol, replace(config, max_depth=2), warm_up=warm_up)

    monkeypatch.setattr(measure, "cost_apart", in_here)


@pytest.mark.parametrize("target", DIFFERENT, ids=lambda target: f"{target.paper}-{target.name}")
def test_a_target_runs_from_data_to_claim(target: Target, data: Path, tmp_path: Path) -> None:
    found = reproduce(target, Context(data, quick=True), tmp_path / "out")
    folder = tmp_path / "out" / target.paper / target.name
    assert found.rows
    assert found.holds in {"yes", "partly", "no"}
    assert all(len(words) > 20 for words in (found.claim.reported, found.claim.measured, found.claim.why))
    assert "nan" not in found.claim.measured
    assert (folder / "plot.svg").read_text().startswith("<svg")
    stored = json.loads((folder / "claim.json").read_text())
    assert stored["skipped"] == [name for name in target.sets if name not in ("give_credit", "default_credit")]
    assert stored["published"] or target.name == "trade-off"  # a claim of ours
    assert stored["rule"] == target.rule.text
    assert 0 <= stored["cases"]["counted"] <= stored["cases"]["of"]


@pytest.mark.parametrize("target", [each for each in OURS if each.sets], ids=lambda each: f"{each.paper}-{each.name}")
def test_a_target_without_its_data_is_skipped(target: Target, tmp_path: Path) -> None:
    context = Context(tmp_path, quick=True)
    named = {cell.key.get("data", "synthetic") for cell in target.planned(context)}
    assert named <= {"synthetic"}


@pytest.mark.parametrize("target", OURS, ids=lambda target: f"{target.paper}-{target.name}")
def test_a_full_run_has_more_cells_and_none_twice(target: Target, data: Path) -> None:
    quick, full = (target.planned(Context(data, quick)) for quick in (True, False))
    assert len(full) >= len(quick)
    for cells in (quick, full):
        keys = [json.dumps(dict(cell.key), sort_keys=True) for cell in cells]
        assert len(keys) == len(set(keys))


def test_names_of_targets() -> None:
    wanted = {"table-2", "table-3", "appendix-f", *(f"figure-{n}" for n in (4, 5, 7, 8, 9, 10))}
    assert wanted <= {target.name for target in targets_of("maskedxgboost")}
    assert {"table-1", "table-2", "figure-4", "figure-5", "smm-overhead"} == {t.name for t in targets_of("fedxgboost")}
    assert [target.name for target in targets_named("maskedxgboost", "appendix-h")] == [
        f"figure-{n}" for n in range(11, 16)
    ]
    for paper in PAPERS:
        assert all(target.paper == paper for target in targets_of(paper))
