"""Every target of ELXGB runs from data to claim, and what it measures is what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from papers.elxgb import TARGETS, accuracy, alignment, guesses, inference, setting, training, verdicts
from papers.elxgb.setting import Point
from papers.experiments import experiments_at_hand
from papers.rows import picked
from papers.runner import expected_seconds, reproduce
from papers.tables import among
from papers.target import Context, Row, Target
from papers.unpacked import UNPACKED
from veilboost.party.simulation import simulate_training
from veilboost.protocols.registry import all_protocols

ROWS = 120


def write_data(folder: Path, *names: str) -> Path:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in names:
        columns = {f"x{k}": rng.normal(size=ROWS).astype(np.float32) for k in range(5)}
        label = (columns["x0"] + columns["x4"] + 0.3 * rng.normal(size=ROWS) > 0).astype(np.int64)
        pq.write_table(pa.table({"id": np.arange(ROWS), **columns, "label": label}), folder / f"{name}.parquet")
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One of the two data sets."""
    return write_data(tmp_path / "data", "default_credit")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few points, users and ids, and the short key wherever there is Paillier."""
    monkeypatch.setattr(setting, "SWEEP", (2, 5))
    monkeypatch.setattr(
        inference, "LONG", inference.Service("Paillier 2048", "paillier", (1, 1), 1.0, setting.SHORT_KEY)
    )
    for service in ("SHORT", "LATTICE"):
        own = getattr(inference, service)
        monkeypatch.setattr(inference, service, inference.Service(own.name, own.scheme, (2, 2), 0.1, own.keys))
    long_keys = tuple(training.Scheme(each.name, each.protocol, setting.SHORT_KEY, 1e-4) for each in training.ONCE)
    monkeypatch.setattr(training, "ONCE", long_keys)
    sizes = {parties: ((6, *lines[0][1:]), (7, *lines[1][1:])) for parties, lines in alignment._MILLISECONDS.items()}
    monkeypatch.setattr(alignment, "_MILLISECONDS", sizes)
    monkeypatch.setattr(alignment, "ECDH_SIZES", (6,))


def published(target: Target) -> tuple[Row, ...]:
    if target.name == "table-3":
        return tuple({"parties": p, "log2_rows": s, "mpsi_ms": 1e9, "elxgb_ms": 1} for p in (4, 5) for s in (6, 7))
    return target.published


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_runs_from_data_to_claim(
    target: Target, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "PUBLISHED", published(alignment.TABLE_3))
    context = Context(data, quick=True)
    found = reproduce(target, context, tmp_path / "out")
    folder = tmp_path / "out" / target.paper / target.name
    assert found.rows
    assert found.holds in {"yes", "partly", "no"}
    assert all(len(words) > 20 for words in (found.claim.reported, found.claim.measured, found.claim.why))
    assert "nan" not in found.claim.measured
    assert (folder / "plot.svg").read_text().startswith("<svg")
    stored = json.loads((folder / "claim.json").read_text())
    assert stored["skipped"] == [name for name in target.sets if name == "bank"]
    assert expected_seconds(target, context, tmp_path / "out") == 0.0, "a second run would measure again"


def test_the_full_sweeps_are_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    here = Context(Path("nowhere"))
    assert [point.value for point in setting.structures(here)] == [2, 3, 4, 5, 6] * 2
    assert [point.value for point in setting.structures(Context(Path("nowhere"), quick=True))] == [2, 5, 6, 2, 3, 6]
    assert (len(here.seeds), len(Context(Path("nowhere"), quick=True).seeds)) == (3, 1)
    config = setting.job(depth=6)
    assert (config.n_estimators, config.max_depth, config.max_bin, config.learning_rate) == (5, 6, 32, 0.3)
    assert Point("T", 2).depth == 3
    assert Point("epsilon", 4.0).epsilon == 4.0
    assert Point("T", 2).epsilon == 10.0


def test_without_noise_elxgb_is_as_accurate_as_plain(data: Path) -> None:
    table = Context(data).table("default_credit")
    ours = accuracy.accuracy(table, "elxgb", setting.job(backend="lattice", mechanism="none"), 3)
    assert ours == accuracy.accuracy(table, "plain", setting.job(), 3)


def test_more_noise_makes_guesses_worse_and_trees_add_up(tmp_path: Path) -> None:
    table = Context(write_data(tmp_path / "own", "bank")).table("bank")
    clear, noisy = (guesses.guesses(table, epsilon, 0.3, 0) for epsilon in (1000.0, 0.01))
    assert len(clear["trees"]) == setting.TREES
    assert min(clear["trees"]) > 0.85
    assert min(clear["together"], clear["together_auc"]) > 0.95
    assert all(0.3 < rate < 0.7 for rate in noisy["trees"])


def test_cells_of_the_service_count_again_whatever_the_noise() -> None:
    probe = inference._small.__wrapped__  # without the cache
    assert len({tuple(probe("lattice", setting.TREES, 6)) for _ in range(8)}) == 1


def test_only_the_first_tree_of_elxgb_costs_encryption(data: Path) -> None:
    table = Context(data).table("default_credit")
    for scheme, few, many in ((training.ELXGB, 1.0, 1.5), (training.SECUREBOOST, 1.8, 2.2)):
        one, two = (
            training.training(table, scheme.protocol, setting.job(trees, **scheme.options))["megabytes"]
            for trees in (2, 4)
        )
        assert few < two / one < many, scheme.name


def test_a_verdict_for_every_protocol_and_the_papers_ticks_beside_them() -> None:
    rows = verdicts.table([{**cell.key, **cell.measure()} for cell in verdicts.cells(Context(Path("nowhere")), ())])
    assert {row["protocol"] for row in rows} == set(all_protocols())
    labels = picked(rows, protocol="elxgb", subject="labels")[0]
    assert (labels["status"], labels["paper_label"]) == ("broken", "yes")
    assert verdicts.RULE.verdict(rows) in {"no", "partly"}


def test_the_short_key_is_never_used_without_being_allowed() -> None:
    for scheme in (*training.SCHEMES, *training.ONCE):
        if scheme.options.get("key_bits", 2048) < 2048:
            assert scheme.options["allow_insecure_key"] is True


# --- verdicts follow the numbers --------------------------------------------------------------------------


def costs(ours: float, theirs: float) -> list[Row]:
    """From T or D = 2 to 6 ELXGB grows by one factor and SecureBoost by another."""
    rows: list[Row] = [
        {"data": "bank", "method": scheme.name, "along": along, "value": value, "cpu_seconds": cost, "megabytes": cost}
        for scheme, factor in ((training.ELXGB, ours), (training.SECUREBOOST, theirs))
        for along in ("T", "D")
        for value, cost in ((2, 1.0), (5, factor), (6, factor))
    ]
    place = {"data": "bank", "along": "T", "value": 5}
    return [*rows, {**place, "method": training.UNPACKED.name, "cpu_seconds": 9.0, "megabytes": 9.0}]


def test_training_claims_hold_only_where_elxgb_grows_more_slowly() -> None:
    assert training.SECONDS_RULE.verdict(costs(1.1, 3.0)) == "yes"
    assert training.SECONDS_RULE.verdict(costs(3.0, 1.1)) == "no"
    assert training.BYTES_RULE.verdict(costs(1.1, 3.0)) == "yes"
    assert training.BYTES_RULE.verdict(costs(3.0, 1.1)) == "no"


def test_accuracy_claim_holds_only_near_xgboost() -> None:
    def rows(ours: float) -> list[Row]:
        return [
            {"data": "bank", "method": name, "along": "epsilon", "value": 2.0, "accuracy": found, "majority": 0.8}
            for name, found in ((accuracy.ELXGB, ours), (accuracy.CENTRAL, 0.9))
        ]

    assert accuracy.RULE.verdict(rows(0.89)) == "yes"
    assert accuracy.RULE.verdict(rows(0.85)) == "no"


def test_a_wrong_score_refutes_the_service() -> None:
    def rows(exact: float, by_depth: float) -> list[Row]:
        return [
            {
                "data": "bank", "method": inference.SHORT.name, "along": along, "value": value,
                "cpu_seconds_per_1000": seconds, "exact": exact,
                "exchanges_with_csp": value if along == "D" else 3,
            }
            for along, last in (("T", 2.0), ("D", by_depth))
            for value, seconds in ((2, 1.0), (6, last))
        ]  # fmt: skip

    assert [inference.RULE.verdict(rows(*given)) for given in ((1.0, 3.0), (1.0, 1.5), (0.0, 1.5))] == [
        "yes", "partly", "no",
    ]  # fmt: skip


def test_alignment_claim_asks_for_less_than_a_psi_on_the_same_machine() -> None:
    place = {"parties": 4, "log2_rows": 12}
    own: Row = {**place, "method": "hmac-sha512", "worst_party_ms": 10.0}
    assert alignment.RULE.verdict([own, {**place, "method": "ecdh", "worst_party_ms": 200.0}]) == "yes"
    assert alignment.RULE.verdict([own, {**place, "method": "ecdh", "worst_party_ms": 100.0}]) == "no"
    assert alignment.RULE.verdict([own]) == "open"


def test_guess_claim_asks_every_tree_to_agree_at_rate_1() -> None:
    def row(first: float, later: float, rate: float = 1.0) -> Row:
        rates = {"tree_1": first, "paper_tree_1": 0.877}
        rates |= {f"tree_{at}": later for at in range(2, 6)} | {f"paper_tree_{at}": 0.665 for at in range(2, 6)}
        return {"data": "bank", "rate": rate, "epsilon": 10.0, "together": 0.9, **rates}

    assert guesses.RULE.verdict([row(0.87, 0.66), row(0.87, 0.9, 0.3)]) == "yes"
    assert guesses.RULE.verdict([row(0.7, 0.66)]) == "partly"
    assert guesses.RULE.verdict([row(0.87, 0.8)]) == "no"


def test_unpacked_secureboost_gives_the_same_model_for_more_bytes(data: Path) -> None:
    table = Context(data).table("default_credit")
    tables = among(table, 2)
    config = setting.job(1, 2, **setting.SHORT_KEY)
    with experiments_at_hand():
        packed, unpacked = (simulate_training(tables, "party0", name, config) for name in ("paillier", UNPACKED.name))
    assert np.array_equal(packed.model.margins(table.columns), unpacked.model.margins(table.columns))
    assert unpacked.bytes_sent > 2 * packed.bytes_sent
