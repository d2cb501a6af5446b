"""The page of results is what its command makes out of the stored files, and says what is in them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.fast

BENCH = Path(__file__).resolve().parents[3] / "bench"
MACHINE = {"cpu": "a processor", "cores": 2, "python": "3.11", "versions": {"veilboost": "1", "xgboost-cpu": None}}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    for name in [name for name in sys.modules if name.split(".")[0] in {"results", "paper_pages", "blocks", "peers"}]:
        monkeypatch.delitem(sys.modules, name)
    return __import__("results")


def claim(**values: Any) -> dict[str, Any]:
    return {
        "paper": "mal", "target": "table-2", "title": "what noise costs", "reported": "little", "measured": "a | batch",
        "holds": "no", "rule": "Cases: all.", "cases": {"counted": 1, "of": 3}, "why": "See [1]. And more.",
        "seconds": 12.4, "days": ["2026-11-18"], "drawings": 3, "quick": True, "skipped": ["diabetes"],
        "machine": MACHINE, "published": [], "rows": [], **values,
    }  # fmt: skip


def store(folder: Path, entry: dict[str, Any]) -> Path:
    home = folder / entry["paper"] / entry["target"]
    home.mkdir(parents=True)
    (home / "claim.json").write_text(json.dumps(entry))
    (home / "table.csv").write_text("data,auc\nsusy,0.8\n")
    (home / "plot.svg").write_text("<svg/>")
    (home / "cells.jsonl").write_text("{}\n")
    return home


def test_the_pages_are_what_the_command_makes(results: ModuleType) -> None:
    assert results.PAGE.read_text() == results.page(), "run: python bench/results.py"
    for name, text in results.paper_pages.pages(results.FOLDER).items():
        assert (results.FOLDER / name).read_text() == text, "run: python bench/results.py"


def test_a_claim_is_told_whole_and_cannot_break_its_table(results: ModuleType, tmp_path: Path) -> None:
    store(tmp_path, claim())
    made = results.paper_pages.pages(tmp_path)["mal.md"]
    assert "## MAL, table 2" in made
    assert "| measured | a \\| batch |" in made
    assert "| why | See \\[1\\]. And more. |" in made
    assert "| holds | **no**: 1 of 3 cases |" in made
    assert "A quick run of 12 s, 3 drawings, 2026-11-18; not at hand: diabetes." in made
    assert "(mal/table-2/plot.svg)" in made


def test_the_summary_has_a_line_and_a_sentence_for_each_claim(results: ModuleType, tmp_path: Path) -> None:
    store(tmp_path, claim())
    made = results.page(tmp_path)
    assert "| [MAL, table 2](results/mal.md#mal-table-2) | little | **no** | 1 of 3 cases. See \\[1\\]. |" in made
    assert "| MAL, table 2 | quick | 2026-11-18 | 12 s | 3 | a processor | not recorded | diabetes |" in made
    assert "2 cores of a processor, Python 3.11, veilboost 1 | mal table-2 |" in made


def test_a_busy_machine_is_named_beside_what_was_measured_on_it(results: ModuleType, tmp_path: Path) -> None:
    store(tmp_path, claim(load=7.2))
    store(tmp_path, claim(target="table-3", load=1.4))
    made = results.paper_pages.pages(tmp_path)["mal.md"]
    assert made.count("**The machine was busy** (load 7 on 2 cores)") == 1
    assert "| a processor | 7 | diabetes |" in results.page(tmp_path)


def test_a_claim_without_a_rule_is_not_judged(results: ModuleType, tmp_path: Path) -> None:
    old = claim(holds="yes")
    del old["rule"], old["cases"], old["days"], old["drawings"]
    store(tmp_path, old)
    made = results.page(tmp_path)
    assert (
        "| **not judged** | Measured with release 1, before its rule was written; the verdict of that time was yes. |"
        in made
    )
    assert "See \\[1\\]" not in results.paper_pages.pages(tmp_path)["mal.md"], "its reason is not repeated"


def test_a_verdict_that_changed_is_listed_with_the_old_one_and_the_reason(results: ModuleType, tmp_path: Path) -> None:
    store(tmp_path, claim(target="table-3", holds="yes"))
    store(tmp_path, claim(target="table-2", holds="no"))
    made = results.paper_pages.changed(results.paper_pages.read_claims(tmp_path))
    assert "| MAL, table 3 | partly | **yes** | On all rows instead of a sample" in made
    assert "table 2" not in made, "its verdict is what it was"
    assert made in results.page(tmp_path)


def test_every_verdict_that_changed_has_a_reason(results: ModuleType) -> None:
    pages = results.paper_pages
    differ = [
        earlier
        for each in pages.read_claims(results.FOLDER)
        for earlier in [pages.EARLIER.get((each["paper"], each["target"]))]
        if earlier is not None and "rule" in each and each["holds"] != earlier.holds
    ]
    assert differ
    assert all(earlier.changed for earlier in differ)


def test_what_is_taken_is_what_the_page_needs_and_no_more(results: ModuleType, tmp_path: Path) -> None:
    store(tmp_path / "out", claim())
    results.take(tmp_path / "out", tmp_path / "kept")
    kept = sorted(file.name for file in (tmp_path / "kept" / "mal" / "table-2").iterdir())
    assert kept == ["cells.jsonl", "claim.json", "plot.svg", "table.csv"]
    assert results.page(tmp_path / "kept") == results.page(tmp_path / "out")


def test_records_of_a_benchmark_become_tables(results: ModuleType, tmp_path: Path) -> None:
    found = {
        "machine": MACHINE,
        "benchmark": "wire",
        "trees": 3,
        "sides": {"ours": {"seconds": 0.123456, "same": True}, "theirs": {"seconds": 1.0, "same": False}},
        "sets": [{"set": "a", "cost": {"ms": 1}}, {"set": "b", "bytes": 2}],
    }
    (tmp_path / "wire.json").write_text(json.dumps(found))
    made = results.page(tmp_path)
    assert "| trees | 3 |" in made
    assert "|  | seconds | same |\n| --- | --- | --- |\n| ours | 0.1235 | yes |\n| theirs | 1 | no |" in made
    assert "| set | cost, ms | bytes |\n| --- | --- | --- |\n| a | 1 |  |\n| b |  | 2 |" in made


def test_the_peers_tables_show_what_is_known_and_why_the_rest_is_not(results: ModuleType, tmp_path: Path) -> None:
    columns = sys.modules["peers.columns"].COLUMNS
    row = dict.fromkeys(columns) | {"system": "ours", "quality, few trees": 0.78321, "peak MB": 99.7, "lines": 12}
    settings = {
        "task": "multiclass", "metric": "accuracy", "classes": 7, "categorical": [1, 4], "rows": 10, "test_rows": 5,
        "trees": 60, "few_trees": 3, "max_depth": 6, "max_bin": 32, "learning_rate": 0.3, "reg_lambda": 1.0,
        "active_columns": 11, "repeats": 3,
    }  # fmt: skip
    found = {
        "machine": MACHINE, "measured": "2026-01-02", "runs": 2, "settings": settings, "rows": [row],
        "skipped": {"another": "no Python 3.10 here"},
        "details": {"noisy": {"quality_at_a_thousandth": 0.76, "load": 7.2, "over": {"wan": "not done in 5 s"}}},
    }  # fmt: skip
    (tmp_path / "peers.json").write_text(json.dumps({"benchmark": "peers", "sets": {"beans": found}}))
    made = results.page(tmp_path)
    assert "### beans" in made
    assert "| 2 cores of a processor, Python 3.11, veilboost 1 | peers beans |" in made
    assert "accuracy, 3 trees | accuracy, 60 trees" in made
    assert re.search(r"\|  \| ours \|.*\| 0\.7832 \|  \| 100 \| 12 \|", made)
    assert "11 columns with the labels, 2 columns of categories, depth 6" in made
    assert "in 2 runs, the best of 3" in made
    assert "**The machine was busy** (load 7 on 2 cores)" in made
    assert "noisy: with a thousandth of that budget its accuracy is still 0.7600" in made
    assert "Not measured over wan: noisy: not done in 5 s." in made
    assert "Not measured: another: no Python 3.10 here." in made


def test_everything_runs_every_benchmark_by_its_own_options(
    results: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name in {"everything", "common"}]:
        monkeypatch.delitem(sys.modules, name)
    everything = __import__("everything")
    for name in everything.BENCHES:
        text = (BENCH / f"{name}.py").read_text()
        shared = "arguments(" in text  # which has --data
        for word in everything.BENCHES[name]:
            assert not word.startswith("--") or word in text or (shared and word == "--data"), (name, word)
    ours = everything.command("wire", {"data": "DIR"})
    assert ours[1:] == [str(BENCH / "wire.py"), "--data", "DIR"], "an interpreter that is not there is asked for"
    assert everything.command("wire", {"data": "DIR", "central": "PY"})[-2:] == ["--xgboost", "PY"]
