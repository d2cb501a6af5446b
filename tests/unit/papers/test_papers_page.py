"""The page of a reproduction says what its claims say, and is made of nothing but sound files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outline import outline
from papers.page import read_reproduction, reproduction_page
from veilboost.errors import UnreadableFile
from veilboost.report.plots import bar_chart

pytestmark = pytest.mark.fast


def make_page(folder: Path) -> str:
    return reproduction_page(read_reproduction(folder))


def write_target(folder: Path, name: str, **changes: Any) -> Path:
    target = folder / "somepaper" / name
    target.mkdir(parents=True)
    claim = {
        "paper": "somepaper", "target": name, "title": f"The title of {name}", "reported": "0.8", "measured": "0.79",
        "holds": "yes", "why": "within the noise", "seconds": 12.0, "quick": True, "skipped": ["bank"],
        "machine": {"cpu": "a processor", "cores": 2, "versions": {"numpy": "2", "xgboost": None}}, "rows": [],
    } | changes  # fmt: skip
    (target / "claim.json").write_text(json.dumps(claim))
    (target / "table.csv").write_text('method,auc,curve\nours,0.79123456,"[0.5, 0.25]"\n')
    (target / "plot.svg").write_text(bar_chart(f"plot of {name}", "x", {"a": {"": 1.0}}))
    return target


def test_a_reproduction_is_shown_with_verdicts_in_the_papers_order(tmp_path: Path) -> None:
    write_target(tmp_path, "figure-10", holds="no")
    write_target(tmp_path, "figure-9", holds="partly")
    write_target(tmp_path, "table-2", holds="open")
    page = make_page(tmp_path)
    text = outline(page).text
    for told in (
        "does not hold", "holds partly", "not measured", "within the noise", "0.79123", "2 values, the last 0.25",
        "Table 2: The title", "a processor, cores 2, numpy 2", "--quick",
        "Data sets not at hand: bank", "plot of figure-9",
    ):  # fmt: skip
        assert told in text, told
    heads = re.findall(r"<h3>[^<]*: The title of (.*?)</h3>", page)
    assert heads == ["figure-9", "figure-10", "table-2"]
    assert [each.claim["target"] for each in read_reproduction(tmp_path)] == heads


@pytest.mark.parametrize(
    "plot",
    [
        "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "<svg xmlns='http://www.w3.org/2000/svg'><a href='http://x'/></svg>",
        "<!DOCTYPE svg [<!ENTITY a 'b'>]><svg xmlns='http://www.w3.org/2000/svg'>&a;</svg>",
        "</figure><img src=x>",
        "<svg xmlns='http://www.w3.org/2000/svg'><text>" + "x" * 300_000 + "</text></svg>",
    ],
)
def test_a_plot_that_is_more_than_a_drawing_is_refused(tmp_path: Path, plot: str) -> None:
    (write_target(tmp_path, "table-1") / "plot.svg").write_text(plot)
    with pytest.raises(UnreadableFile, match="not one of our drawings"):
        make_page(tmp_path)


def test_a_damaged_reproduction_is_refused(tmp_path: Path) -> None:
    target = write_target(tmp_path, "table-1")
    (target / "table.csv").write_text("a,b\n1\n")
    with pytest.raises(UnreadableFile, match="differ in length"):
        make_page(tmp_path)
    (target / "claim.json").write_text("{}")
    with pytest.raises(UnreadableFile, match="does not say"):
        make_page(tmp_path)


def test_without_plot_and_table_the_claim_is_still_told(tmp_path: Path) -> None:
    target = write_target(tmp_path, "table-1", holds="open", quick=False, skipped=[], machine={})
    for name in ("plot.svg", "table.csv"):
        (target / name).unlink()
    assert "within the noise" in outline(make_page(tmp_path)).text
