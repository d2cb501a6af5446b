"""Pages say what the facts say, escape it, and are made of nothing but sound files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from outline import outline
from veilboost.errors import UnknownRun, UnreadableFile
from veilboost.report.facts import FILE, Facts, load_facts
from veilboost.report.pages import run_page
from veilboost.report.runs import make_report

pytestmark = pytest.mark.fast

EVIL = "<script>alert(1)</script>"
COMPOSED = {
    "adjacency": "label", "adversary": "passive parties", "releases": 3, "exact_releases": 1, "exact": ["sums"],
    "epsilon": None, "epsilon_of_noised": 1.5, "basic": 2.0, "advanced": 3.0, "renyi": 1.7, "pld": 1.5,
}  # fmt: skip
CLAIMED = {
    "protocol": "x", "what": "gradients", "adjacency": "label", "adversary": "passive parties", "releases": 3,
    "epsilon_per_release": 0.5, "delta_per_release": 0.0,
}  # fmt: skip
FINDING = {
    "attack": "labels from sums", "adversary": "shop", "victim": "bank", "data": "labels", "metric": "accuracy",
    "value": 0.9, "low": 0.85, "high": 0.95, "baseline": 0.5, "seconds": 0.1, "sentence": "nearly all labels",
    "verdict": "succeeded",
}  # fmt: skip


def facts(**changes: Any) -> Facts:
    given = Facts(
        title="A run",
        source="a test",
        protocol="plain",
        summary="nothing is hidden",
        settings={"rows": 100, "learning_rate": 0.1},
        parties={"bank": {"role": "active", "columns": 3}, "shop": {"role": "passive", "columns": None}},
        metric="auc",
        higher_is_better=True,
        quality={"alone, bank only": 0.7, "together, 2 parties": 0.8125},
        cost={"in all": (1.5, "s"), "sent": (2048.0, "B"), "messages": (12345.0, "")},
        bytes_sent={"bank": 1500, "shop": 548},
        exchanges=[
            {"sender": "bank", "receiver": "shop", "message": "Hello", "count": 2, "bytes": 1500,
             "reveals": [{"what": "which rows", "to": "shop"}]},
        ],
        learned={"bank": [], "shop": ["which rows"]},
        privacy={
            "bank": {"delta": 1e-6, "paper": [CLAIMED], "composed": [COMPOSED]},
            "shop": {"delta": 1e-6, "paper": [], "composed": []},
        },
        protections=[
            {"victim": "active", "data": "labels", "adversary": "passive", "status": "unprotected", "why": "in clear"}
        ],
        curves={"test rows": [(1.0, 0.7), (2.0, 0.8125)]},
        round_seconds=(0.5, 0.25),
        steps=[{"step": "level 0", "seconds": 0.5, "requests": 2, "bytes": {"bank": 1500, "shop": 548}}],
        waiting={"shop": 0.25},
        findings=[FINDING],
        model={
            "trees": 2, "depth": 3, "leaves": 9, "sha256": "abc", "splits": {"bank": 1, "shop": 2},
            "importance_by_party": {"shop": 0.6, "bank": 0.4},
            "importance_by_column": [{"party": "shop", "column": "shop#1", "value": 0.6}],
        },
    )  # fmt: skip
    return dataclasses.replace(given, **changes)


def test_a_page_holds_every_part_of_a_run() -> None:
    page = outline(run_page(facts()))
    assert "nav" in page.names
    text = page.text
    for told in (
        "AUC, together, 2 parties 0.8125", "1.50 s", "2.0 kB", "12 345", "level 0", "infinite", "gradients",
        "without noise, to passive parties: sums; the rest alone would cost 1.5", "shop: no release with noise",
        "which rows", "in clear", "labels from sums", "succeeded", "shop#1", "sha256 of the model: abc",
        "not known", "Learning curve: AUC on test rows", "does not protect: labels of the active party (unprotected)",
    ):  # fmt: skip
        assert told in text, told


def test_what_is_not_known_is_said() -> None:
    bare = facts(
        quality={}, curves={}, round_seconds=(), steps=(), waiting={}, privacy={}, findings=None, model=None,
        note="The job kept no rows.",
    )  # fmt: skip
    text = outline(run_page(bare)).text
    for told in (
        "Nothing was measured",
        "No ledger is available",
        "was not audited",
        "No model share",
        "kept no rows",
    ):
        assert told in text


def test_names_from_elsewhere_are_text_and_never_markup() -> None:
    hostile = facts(
        title=EVIL,
        protocol=EVIL,
        parties={EVIL: {"role": EVIL, "columns": 1}},
        learned={EVIL: [EVIL]},
        quality={EVIL: 0.5, "b": 0.6},
        settings={EVIL: EVIL},
        steps=[{"step": EVIL, "seconds": 0.5, "requests": 2, "bytes": {EVIL: 1}}],
        findings=[{**FINDING, "attack": EVIL, "verdict": EVIL, "metric": f'"{EVIL}'}],
        protections=[dict.fromkeys(("victim", "data", "adversary", "status", "why"), f'">{EVIL}')],
        curves={EVIL: [(1, 0.5)]},
    )
    assert EVIL in outline(run_page(hostile)).text


def test_facts_come_back_as_they_were_saved(tmp_path: Path) -> None:
    facts().save(tmp_path)
    again = load_facts(tmp_path / FILE)
    assert again.to_dict() == facts().to_dict()
    assert run_page(again) == run_page(facts())
    report = make_report([tmp_path])
    assert report.data == facts().to_dict()
    assert report.html == run_page(facts())


def test_what_an_audit_found_is_joined(tmp_path: Path) -> None:
    facts(findings=None).save(tmp_path)
    assert "was not audited" in make_report([tmp_path]).html
    (tmp_path / "audit.json").write_text(json.dumps({"findings": [FINDING]}))
    assert "nearly all labels" in make_report([tmp_path]).html
    (tmp_path / "other.json").write_text(json.dumps({"findings": [{"attack": "x"}]}))
    with pytest.raises(UnreadableFile):
        make_report([tmp_path], tmp_path / "other.json")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "veilboost-result", "version": 1}', '{"format": "veilboost-result", "version": 2}'],
)
def test_a_result_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UnreadableFile):
        make_report([tmp_path])


def test_a_folder_without_anything_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UnknownRun, match="neither a run nor"):
            make_report([path])
