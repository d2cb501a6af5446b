"""`veilboost report` on what the commands write, and the pages as a real browser shows them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import browser
from papers import page as papers_page
from parties import PARTIES, Town, make_certificates
from veilboost.errors import UnknownRun, UnreadableFile
from veilboost.evaluation.evaluate import Scored, evaluate
from veilboost.report import pages
from veilboost.report.plots import line_chart
from veilboost.report.runs import make_report

LARGEST = 3_000_000
WIDE, PHONE = 1200, 390
PATIENCE = 300  # seconds for three parties that share the machine with other tests


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("report")
    made = Town(folder, make_certificates(folder / "certs"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def demo_page(town: Town) -> Path:
    process = town.spawn("demo", "--protocol", "plain", "--folder", town.folder / "demo")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return make_page(town, "demo")


@pytest.fixture(scope="module")
def simulation_page(town: Town) -> Path:
    scene = ("--demo-data", "--protocol", "ldp", "--trees", "5", "--depth", "3", "--validation-size", "0.2")
    town.answer("simulate", *scene, "--audit", "--out", "simulated")
    return make_page(town, "simulated")


@pytest.fixture(scope="module")
def reproduction_page(town: Town) -> Path:
    """A reproduction's folder as `python -m papers` writes it."""
    target = town.folder / "reproduced" / "paper" / "figure-4"
    target.mkdir(parents=True)
    claim = {
        "paper": "paper", "target": "figure-4", "title": "Figure 4: loss over rounds", "reported": "the loss falls",
        "measured": "it falls", "holds": "yes", "why": "as published", "seconds": 3.0, "machine": {"cores": 2},
    }  # fmt: skip
    (target / "claim.json").write_text(json.dumps(claim))
    wide = ["round", "loss", *(f"a_column_with_a_long_name_{n}" for n in range(12))]
    lines = [wide, *([str(n), str(1 / n), *["x"] * 12] for n in range(1, 9))]
    (target / "table.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    curve = [(float(n), 1 / n) for n in range(1, 9)]
    (target / "plot.svg").write_text(line_chart("Loss", "round", "loss", {"ours": curve}))
    file = town.folder / "reproduced.html"
    found = papers_page.read_reproduction(town.folder / "reproduced")
    file.write_text(papers_page.reproduction_page(found))
    return file


@pytest.fixture(scope="module")
def evaluation_page(town: Town) -> Path:
    """Everything that an evaluation can hold."""
    random = np.random.default_rng(1)
    score = random.random(400)
    y, region = (random.random(400) < score).astype(float), np.array(["north", "south"])[random.integers(2, size=400)]
    found = evaluate(
        Scored("binary", y, score, segment=region, skipped={"without a score": 3}),
        thresholds=(0.1, 0.3), reference=random.random(400), segment_column="region", bootstrap=5,
    )  # fmt: skip
    file = town.folder / "evaluation.html"
    file.write_text(pages.evaluation_page("Evaluation of scores", found.to_dict()))
    return file


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Window]:
    reason = browser.missing()
    if reason is not None:
        if browser.required():
            pytest.fail(reason)
        pytest.skip(reason)
    with browser.window(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def make_page(town: Town, folder: str) -> Path:
    code, out, err = town.run("report", folder, "-o", f"{folder}.html")
    assert code == 0, err
    assert f"{folder}.html" in out
    file = town.folder / f"{folder}.html"
    assert file.stat().st_size < LARGEST
    return file


# --- what is made -----------------------------------------------------------------------------------------


def test_a_demonstration_is_told_with_all_its_parts(demo_page: Path, town: Town) -> None:
    told = town.answer("report", "demo")
    assert told["page"] is None
    assert list(told["parties"]) == ["bank", "shop", "telecom"]
    alone, together, central = told["quality"].values()
    assert alone < together <= central + 0.05
    curve = told["curves"]["test rows"]
    assert curve[-1] == [60.0, pytest.approx(together, abs=1e-6)]
    assert curve[-1][1] > curve[0][1]
    assert {"aligning rows", "opening rounds", "level 0", "level 4"} <= {step["step"] for step in told["steps"]}
    assert sum(told["model"]["importance_by_party"].values()) == pytest.approx(1.0)
    assert set(told["privacy"]) == {"bank", "shop", "telecom"}
    assert "https:" not in demo_page.read_text()


def test_one_partys_folder_tells_what_that_party_knows(demo_page: Path, town: Town) -> None:
    runs = {name: town.folder / "demo" / f"runs-{name}" / "credit" for name in PARTIES}
    shop = make_report([runs["shop"]]).data
    assert "importance_by_column" not in shop["model"]
    assert {each["party"] for each in shop["model"]["splits_by_column"]} == {"shop"}
    assert "bank, telecom" in shop["note"]
    assert {each["sender"] for each in shop["exchanges"]} == {"bank", "shop"}
    both = make_report([runs["shop"], runs["bank"]]).data
    assert both["model"]["trees"] == 60
    assert set(both["privacy"]) == {"bank", "shop"}
    # Every party's folder, without what only the demonstration knew.
    every = town.answer("report", *runs.values())
    assert every["model"]["importance_by_column"]
    assert every["quality"] == {}


def test_a_simulation_is_told_with_its_audit(simulation_page: Path, town: Town) -> None:
    told = town.answer("report", "simulated", "-o", "again.html")
    assert told["page"] == "again.html"
    assert told["findings"]
    assert set(told["curves"]) == {"test rows", "validation rows"}
    assert told["privacy"]["bank"]["composed"][0]["epsilon"] > 0
    assert (town.folder / "again.html").read_text() == simulation_page.read_text()


def test_a_horizontal_job_is_reported_too(town: Town) -> None:
    options = ("simulate", "--dataset", "breast_cancer", "--protocol", "secagg", "--participants", "5", "--trees", "2")
    town.answer(*options, "--out", "secagg")
    report = make_report([town.folder / "secagg"])
    told = report.data
    assert told["curves"]["test rows"][-1][1] == pytest.approx(told["quality"]["together, 5 participants"])
    assert {"CountsRequest", "SumsRequest"} <= {step["step"] for step in told["steps"]}
    assert "5 others" in report.html


def test_what_cannot_be_reported_is_refused(demo_page: Path, town: Town) -> None:
    assert "VB-1101" in town.refused("report", "demo", "-o", "no/such/folder.html")
    assert "VB-1706" in town.refused("report", "nowhere")
    folder = town.folder / "demo"
    with pytest.raises(UnreadableFile):
        make_report([folder], audit=folder / "bank.toml")
    with pytest.raises(UnknownRun, match="different runs"):
        make_report([folder / "runs-bank" / "credit"] * 2)


# --- what is seen -----------------------------------------------------------------------------------------

PAGES = ("demo_page", "simulation_page", "reproduction_page", "evaluation_page")
TEXT_SIZES = """
return [...document.querySelectorAll('figure svg text')].map(t => {
  const m = t.getScreenCTM(); return parseFloat(t.getAttribute('font-size')) * Math.hypot(m.a, m.b) })
"""
OUTSIDE = """
return performance.getEntriesByType('resource').map(e => e.name)
  .concat([...document.querySelectorAll('script,link,img,iframe,object,embed')].map(e => e.outerHTML))
"""


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_its_screen(
    page: str, width: int, request: pytest.FixtureRequest, window: browser.Window, tmp_path: Path
) -> None:
    file: Path = request.getfixturevalue(page)
    window.resize(width, 900)
    window.open(file)
    assert window.run("return document.documentElement.scrollWidth") == width
    assert window.run(OUTSIDE) == []
    assert window.complaints() == []
    assert min(window.run(TEXT_SIZES)) >= 9  # pixels
    shot = window.screenshot(browser.artefacts(tmp_path) / f"{file.stem}-{width}.png").read_bytes()
    assert int.from_bytes(shot[16:20], "big") == width
    assert int.from_bytes(shot[20:24], "big") > 900
    assert len(shot) > 20_000  # a blank page weighs much less


def test_the_content_is_there_for_all_who_read(demo_page: Path, window: browser.Window) -> None:
    window.resize(WIDE, 900)
    window.open(demo_page)
    seen = window.run("return document.body.innerText")
    for told in (
        "AUC, together, 3 parties",
        "PlainSums",
        "missed_payments",
        "does not protect",
        "without noise, to",
    ):
        assert told in seen, told
    drawn = window.run("return [...document.querySelectorAll('figure title')].map(t => t.textContent).join()")
    for told in ("Learning curve", "Bytes by step", "Seconds by step", "gain by party"):
        assert told in drawn, told
    # Every picture has a name and a description, every table a caption and headers for its rows and columns.
    unnamed = "return [...document.querySelectorAll('figure svg')].filter(s => !(s.querySelector('title').textContent"
    assert window.run(unnamed + " && s.querySelector('desc').textContent.length > 20)).length") == 0
    assert window.run("return document.querySelectorAll('figure svg').length") >= 6
    assert window.run("return [...document.querySelectorAll('table')].filter(t => !t.caption.innerText).length") == 0
    assert window.run("return document.querySelectorAll('td:not([data-label])').length") == 0
    levels = window.run("return [...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_the_keyboard_reaches_the_content(demo_page: Path, window: browser.Window) -> None:
    window.resize(WIDE, 900)
    window.open(demo_page)
    window.press_tab()
    first = window.run("const e = document.activeElement; return [e.innerText, e.getBoundingClientRect().left >= 0]")
    assert first == ["Skip to the content", True]
    window.press_tab()
    assert window.run("return document.activeElement.getAttribute('href')") == "#summary"


def test_the_dark_has_its_own_colours(simulation_page: Path, window: browser.Window, tmp_path: Path) -> None:
    window.resize(WIDE, 900)
    window.open(simulation_page)
    look = "const c = e => getComputedStyle(document.querySelector(e)); "
    look += "return [c('body').backgroundColor, c('figure .paper').fill, c('figure .f0').fill]"
    day = window.run(look)
    window.dark()
    night = window.run(look)
    assert all(a != b for a, b in zip(day, night, strict=True))
    assert night[0] == night[1]
    window.screenshot(browser.artefacts(tmp_path) / "simulated-dark.png")
