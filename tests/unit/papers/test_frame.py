"""Targets: resumed from their cells, written as files, judged by what is on disk."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from papers import fingerprint, law
from papers.check import Checked, check
from papers.experiments import experiments_at_hand
from papers.law import LAW
from papers.measure import cost_apart, learning, training_cost, training_seconds
from papers.rows import over_seeds
from papers.rules import Rule
from papers.runner import Cells, Progress, cells_of, expected_seconds, folder_of, reproduce
from papers.tables import ACTIVE, among, divided, hold_out, labels, synthetic
from papers.target import Cell, Claim, Context, Near, Row, Target
from veilboost.boost.metrics import auc, logloss
from veilboost.boost.objective import sigmoid
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.protocols.registry import all_protocols
from veilboost.report.plots import bar_chart


def make_target(measure: Callable[[str, int], Row], names: Sequence[str] = ("a", "b"), seeds: int = 2) -> Target:
    def cells(context: Context, sets: Sequence[str]) -> list[Cell]:
        return [
            Cell({"method": name, "seed": seed}, lambda name=name, seed=seed: measure(name, seed), lambda: 1, 10.0)
            for name in names
            for seed in range(seeds)
        ]

    return Target(
        "paper",
        "table-1",
        "a title",
        ("here", "absent"),
        ({"method": "a", "value": 1.5},),
        cells,
        list,
        Rule("Every value is there.", 0.0, lambda rows: [0.0 for _ in rows]),
        lambda rows: Claim("says", f"{len(rows)} methods", "because"),
        lambda rows, label: bar_chart(label, "x", {row["method"]: {"value": row["value"]} for row in rows}),
        {"value": Near(0.1)},
    )


@pytest.fixture
def context(tmp_path: Path) -> Context:
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(
        pa.table({"id": [2, 0, 1, 3], "x": [1.0, 2.0, 3.0, 4.0], "label": [0, 1, 1, 0]}), folder / "here.parquet"
    )
    return Context(folder, quick=True)


def test_writes_table_plot_and_claim(context: Context, tmp_path: Path) -> None:
    target = make_target(lambda name, seed: {"value": 1.0 + seed})
    found = reproduce(target, context, tmp_path)
    folder = folder_of(target, tmp_path)
    assert folder == tmp_path / "paper" / "table-1"
    with (folder / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["method"] for line in lines] == ["a", "b"]
    assert float(lines[0]["value"]) == 1.5
    assert float(lines[0]["value_sd"]) == 0.5
    claim = json.loads((folder / "claim.json").read_text())
    assert {"paper", "target", "title", "reported", "measured", "holds", "why", "seconds", "machine", "rows"} <= set(
        claim
    )
    assert claim["skipped"] == ["absent"]
    stored = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    assert claim["load"] == max(cell["load"] for cell in stored)
    assert claim["quick"] is True
    assert claim["published"] == [{"method": "a", "value": 1.5}]
    assert (folder / "plot.svg").read_text().startswith("<svg")
    assert (folder / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert found.holds == "yes"


def test_goes_on_where_it_was_stopped(context: Context, tmp_path: Path) -> None:
    measured: list[tuple[str, int]] = []

    def measure(name: str, seed: int) -> Row:
        if len(measured) == 3:
            raise KeyboardInterrupt
        measured.append((name, seed))
        return {"value": float(seed)}

    target = make_target(measure)
    assert expected_seconds(target, context, tmp_path) == 40.0
    with pytest.raises(KeyboardInterrupt):
        reproduce(target, context, tmp_path)
    assert expected_seconds(target, context, tmp_path) < 1.0, "as long as the other drawing of the same kind took"
    measured.clear()
    steps: list[Progress] = []
    found = reproduce(target, context, tmp_path, steps.append)
    assert measured == [("b", 1)]
    assert [step.stored for step in steps] == [True, True, True, False, True]
    assert [row["runs"] for row in found.rows] == [2, 2]


def test_a_target_reads_the_cells_of_another(context: Context, tmp_path: Path) -> None:
    target = make_target(lambda name, seed: {"value": 1.0})
    reader = replace(make_target(lambda name, seed: {"value": 2.0}), name="figure-1", reads=target.name)
    reproduce(target, context, tmp_path)
    assert expected_seconds(reader, context, tmp_path) == 0.0
    found = reproduce(reader, context, tmp_path)
    assert [row["value"] for row in found.rows] == [1.0, 1.0], "measured again"
    assert sorted(file.name for file in folder_of(reader, tmp_path).glob("*.js*")) == ["claim.json"]


def test_quick_and_full_cells_are_kept_apart(context: Context, tmp_path: Path) -> None:
    target = make_target(lambda name, seed: {"value": 1.0})
    reproduce(target, context, tmp_path)
    assert expected_seconds(target, context, tmp_path) == 0.0
    assert expected_seconds(target, Context(context.data), tmp_path) == 40.0


def test_cells_of_another_outcome_count_for_nothing(context: Context, tmp_path: Path) -> None:
    target = make_target(lambda name, seed: {"value": 1.0})
    reproduce(target, context, tmp_path)
    file = folder_of(target, tmp_path) / "cells.jsonl"
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({**entry, "fingerprint": "another"}) + "\n" for entry in entries))
    found = reproduce(target, context, tmp_path)
    assert [row["runs"] for row in found.rows] == [2, 2]
    assert len(file.read_text().splitlines()) == 8, "each was measured again"


def test_half_a_line_is_measured_again(context: Context, tmp_path: Path) -> None:
    target = make_target(lambda name, seed: {"value": 1.0})
    reproduce(target, context, tmp_path)
    file = folder_of(target, tmp_path) / "cells.jsonl"
    text = file.read_text()
    file.write_text(text[: len(text) - 20])
    found = reproduce(target, context, tmp_path)
    assert [row["runs"] for row in found.rows] == [2, 2]
    assert len(file.read_text().splitlines()) == 5, "half a line and one for each cell"


def test_durations_are_those_of_measured_cells(context: Context, tmp_path: Path) -> None:
    """A guess is corrected by the pace of what was measured."""
    stored = Cells(tmp_path, context)
    cells = [Cell({"method": name, "seed": seed}, lambda: {}, lambda: 1, 10.0) for name in "ab" for seed in (0, 1)]
    assert stored.expected(cells) == 40.0
    stored.add(cells[0], {"value": 1.0}, 5.0)
    assert stored.expected(cells) == 15.0, "the other drawing of a takes 5 s, both of b half of their guess"


def checked(context: Context, tmp_path: Path, again: float) -> list[Checked]:
    values = {"first": 1.0, "again": again}
    when = ["first"]
    target = make_target(lambda name, seed: {"value": values[when[0]], "free": 0.0}, names=("a",))
    reproduce(target, context, tmp_path)
    when[0] = "again"
    return list(check([target], context, tmp_path, 1.0))


@pytest.mark.parametrize(("again", "same"), [(1.0, True), (1.09, True), (1.2, False), (0.8, False)])
def test_a_second_measurement_must_be_near_the_first(
    context: Context, tmp_path: Path, again: float, same: bool
) -> None:
    found = checked(context, tmp_path, again)
    assert [each.same for each in found] == [same, same]
    assert {each.value for each in found} == {"value"}, "what is not in `repeats` may differ"


def test_drawings_that_differ_allow_as_much(context: Context, tmp_path: Path) -> None:
    shift = [0.0]
    target = make_target(lambda name, seed: {"value": float(seed) + shift[0]}, names=("a",))
    reproduce(target, context, tmp_path)
    shift[0] = 2.0
    (found,) = check([target], context, tmp_path, 0.1)
    quantile = 6366.2  # of Student's distribution with one degree of freedom, tan(pi (1/2 - 1e-4 / 2))
    assert found.allowed == pytest.approx(0.1 + math.sqrt(2.0) * quantile * math.sqrt(0.5), rel=1e-4)
    assert found.same


def test_a_check_of_noise_hardly_ever_fails_and_finds_other_noise(context: Context, tmp_path: Path) -> None:
    """Three drawings each of ten budgets. By the deviation of its own three drawings every tenth value would differ."""
    rng = np.random.default_rng(0)
    keys = [{"method": "a", "budget": budget, "seed": seed} for budget in range(10) for seed in range(3)]
    target = make_target(lambda name, seed: {})
    noisy = replace(
        target,
        repeats={"value": Near()},
        cells=lambda *_: [Cell(key, lambda: {"value": float(rng.normal())}, lambda: 1) for key in keys],
    )
    for cell in noisy.planned(context):
        cells_of(noisy, context, tmp_path).add(cell, cell.measure(), 1.0)
    found = [each for _ in range(100) for each in check([noisy], context, tmp_path, 1.0)]
    assert len(found) == 3000
    assert sum(not each.same for each in found) <= 3
    assert max(each.allowed for each in found) < 12.0, "a change by twelve deviations is found"


@pytest.mark.parametrize(
    ("amounts", "verdict"), [((), "open"), ((0.1, -0.05), "yes"), ((0.1, -0.2), "partly"), ((-0.2, -0.2, 0.1), "no")]
)
def test_a_rule_counts_cases_within_its_tolerance(amounts: tuple[float, ...], verdict: str) -> None:
    assert Rule("x.", 0.1, lambda _: amounts).verdict(()) == verdict


def test_fingerprints_follow_results_and_not_names(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainingConfig(objective="binary", n_estimators=3, max_depth=3, options={"eps_ap": 50.0})

    def print_of(own: TrainingConfig = config) -> Any:
        monkeypatch.setattr(fingerprint, "_KNOWN", {})
        return fingerprint.small_run(LAW.name, own)()

    first = print_of()
    assert print_of() == first, "the noise of a small run is fixed"
    assert print_of(replace(config, options={"eps_ap": 50.0, "chunk_megabytes": 4.0})) == first
    assert print_of(replace(config, options={"eps_ap": 5.0})) != first
    assert print_of(replace(config, learning_rate=0.2)) != first
    assert print_of(replace(config, n_estimators=4)) != first
    monkeypatch.setattr(law, "noisy_sums", lambda left, *_: left)
    assert print_of() != first, "a change of the noise shows"


def test_other_rows_have_another_digest() -> None:
    table = synthetic(50)
    assert fingerprint.digest_of_table(table) == fingerprint.digest_of_table(synthetic(50))
    assert fingerprint.digest_of_table(table) != fingerprint.digest_of_table(table.take(np.arange(49)))


def test_a_target_without_data_stays_open(context: Context, tmp_path: Path) -> None:
    found = reproduce(make_target(lambda name, seed: {}, names=()), context, tmp_path)
    assert found.holds == "open"
    assert "here, absent" in found.claim.why
    assert json.loads((folder_of(found.target, tmp_path) / "claim.json").read_text())["rows"] == []


def test_numbers_that_json_has_not_become_null(context: Context, tmp_path: Path) -> None:
    target = make_target(lambda name, seed: {"value": float("nan")})
    reproduce(target, context, tmp_path)
    claim = json.loads((folder_of(target, tmp_path) / "claim.json").read_text())
    assert claim["rows"][0]["value"] is None


@pytest.mark.parametrize("key", [{"a": 1, "b": "x"}, {"b": "x", "a": 1}])
def test_cells_do_not_mind_the_order_of_their_keys(context: Context, tmp_path: Path, key: dict[str, Any]) -> None:
    def cell(own: dict[str, Any]) -> Cell:
        return Cell(own, lambda: {}, lambda: 1)

    Cells(tmp_path, context).add(cell({"a": 1, "b": "x"}), {"value": 2}, 1.0)
    again = Cells(tmp_path, context)
    assert again.get(cell(key)) == {"a": 1, "b": "x", "value": 2}


def test_context_finds_tables_and_samples_them(context: Context) -> None:
    assert context.at_hand(("here", "absent")) == ["here"]
    assert context.missing(("here", "absent")) == ["absent"]
    whole = context.table("here")
    assert whole.ids.tolist() == [0, 1, 2, 3]
    assert whole.label is not None
    assert whole.label.tolist() == [1, 1, 0, 0]
    assert context.table("here", 2).rows == 2
    assert context.table("here", 2).ids.tolist() == context.table("here", 2).ids.tolist()


def test_over_seeds_takes_curves_point_by_point() -> None:
    rows = [{"m": "a", "seed": 0, "auc": [0.5, 1.0]}, {"m": "a", "seed": 1, "auc": [0.7, 1.0]}]
    (line,) = over_seeds(rows, ("m", "seed"))
    assert line["auc"] == pytest.approx([0.6, 1.0])
    assert line["auc_sd"] == pytest.approx([0.1, 0.0])
    assert line["runs"] == 2


def test_over_seeds_leaves_out_runs_without_a_value_and_keeps_text_that_all_share() -> None:
    rows = [{"m": "a", "seed": seed, "x": x, "t": "same", "u": u} for seed, x, u in ((0, 1.0, "p"), (1, 3.0, "q"))]
    (line,) = over_seeds([*rows, {**rows[0], "x": None}], ("m", "seed"))
    assert line == {"m": "a", "x": 2.0, "x_sd": 1.0, "t": "same", "u": None, "runs": 2}
    assert over_seeds(rows, ("m",)) == rows  # no seed: as measured


def _tables() -> dict[str, PartyTable]:
    return among(synthetic(200), 2)


def test_a_training_is_measured_in_a_process_of_its_own() -> None:
    config = TrainingConfig(objective="binary", n_estimators=2, max_depth=2)
    here = training_cost(_tables(), "plain", config)
    apart = cost_apart(_tables(), "plain", config)
    assert apart.sha256 == here.sha256
    assert apart.megabytes_per_tree == here.megabytes_per_tree
    assert apart.seconds_per_tree > 0
    warm = training_cost(_tables(), "plain", config, warm_up=True)
    assert warm.rounds_per_tree * 3 > here.rounds_per_tree * 2  # one tree more
    assert warm.cpu_seconds_per_tree > 0


def test_a_training_that_takes_too_long_is_given_up() -> None:
    config = TrainingConfig(objective="binary", n_estimators=100_000)
    with pytest.raises(TimeoutError, match="plain took more than"):
        cost_apart(_tables(), "plain", config, patience=0.01)


def test_a_training_that_breaks_down_is_told() -> None:
    with pytest.raises(RuntimeError, match="broke down"):
        cost_apart(_tables(), "nonsense", TrainingConfig(objective="binary"))


def test_the_law_of_masks_is_at_hand_and_gone_again() -> None:
    with experiments_at_hand():
        assert LAW.name in all_protocols()
    assert LAW.name not in all_protocols()


@pytest.mark.parametrize("own", [0.0, 0.5])
def test_learning_ends_where_the_joint_model_does(own: float) -> None:
    table = synthetic(400)
    config = TrainingConfig(objective="binary", n_estimators=5, max_depth=3)
    found = learning(table, own, 3, "plain", config)
    train, test = hold_out(table.rows, seed=3)
    run = simulate_training(divided(table.take(train), own), ACTIVE, "plain", replace(config, random_state=3))
    margin = simulate_prediction(run.shares, ACTIVE, divided(table.take(test), own))[0]
    assert len(found.auc) == 5
    assert found.auc[-1] == pytest.approx(auc(labels(table)[test], margin))
    assert found.loss[-1] == pytest.approx(logloss(labels(table)[test], sigmoid(margin)))


def test_estimates_of_time_grow_with_what_there_is_to_do() -> None:
    for protocol in ("plain", "ldp", "masked", "paillier", "smm1"):
        few, many = (training_seconds(protocol, rows, 4, 2) for rows in (1_000, 100_000))
        assert 0 < few < many
    keys = [training_seconds("paillier", 1_000, 4, 1, {"key_bits": bits}) for bits in (512, 2048)]
    assert keys[0] < keys[1]
