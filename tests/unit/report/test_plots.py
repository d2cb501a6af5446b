"""Charts are well-formed, stay on their sheet, and tell their numbers in words."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilboost.report.pages import TEMPLATES
from veilboost.report.plots import Scale, bar_chart, fit, line_chart, number_text, sheet
from veilboost.report.svg import COLOURS, size_of

pytestmark = pytest.mark.fast

SPACE = "{http://www.w3.org/2000/svg}"
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co")), max_size=30)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=32)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS) | st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=8)


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SPACE}text")]


def description(root: ElementTree.Element) -> str:
    found = root.find(f"{SPACE}desc")
    assert found is not None
    return found.text or ""


def places(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Where marks, lines and rectangles stand."""
    found: list[tuple[float, float]] = []
    for element in root.iter():
        given = element.attrib
        for x, y in (("cx", "cy"), ("x1", "y1"), ("x2", "y2"), ("x", "y")):
            if x in given and y in given and element.tag != f"{SPACE}svg":
                found.append((float(given[x]), float(given[y])))
        for pair in given.get("points", "").split():
            x, y = pair.split(",")
            found.append((float(x), float(y)))
    return found


def stays_on_its_sheet(svg: str) -> None:
    width, height = size_of(svg)
    for x, y in places(parse(svg)):
        assert -1 <= x <= width + 1
        assert -1 <= y <= height + 1


# --- bands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_y", [False, True])
def test_deviations_are_a_band_around_the_line(log_y: bool) -> None:
    drawn = line_chart(
        "t", "x", "y", {"a": [(0, 10.0, 2.0), (1, 12.0, 20.0)], "b": [(0, 11.0), (1, 11.0)]}, log_y=log_y
    )
    stays_on_its_sheet(drawn)
    root = parse(drawn)
    (band,) = [each for each in root.iter(f"{SPACE}polygon") if "fill-opacity" in each.attrib]
    corners = [tuple(map(float, pair.split(","))) for pair in band.attrib["points"].split()]
    *_, line = [each for each in root.iter(f"{SPACE}polyline") if each.attrib["class"] == "s0"]  # behind the legend's
    middle = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    (low, low_later, high_later, high) = corners
    assert [low[0], low_later[0]] == [high[0], high_later[0]] == [x for x, _ in middle]
    assert low[1] > middle[0][1] > high[1], "y grows downwards"
    assert low_later[1] > middle[1][1] > high_later[1]
    assert band.attrib["class"] == "f0"


# --- scales -----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e9, 1e9, width=32), min_size=1), st.booleans())
def test_an_axis_holds_its_values_and_names_few_of_them(values: list[float], log: bool) -> None:
    scale = fit(values, 0.0, 100.0, log=log)
    for value in values:
        if not log or value > 0:
            assert -1e-6 <= scale.place(value) <= 100 + 1e-6
    ticks = scale.ticks
    assert ticks == sorted(ticks)
    assert 1 <= len(ticks) <= 12
    labels = [label for _, label in scale.labels]
    assert len(set(labels)) == len(labels)  # neighbours are told apart


def test_numbers_are_short() -> None:
    told = [number_text(x) for x in (0.0, 0.25, 9168.0, 12_300.0, 1e6, 3.2e9)]
    assert told == ["0", "0.25", "9168", "12.3k", "1M", "3.2G"]
    assert Scale(0, 1, 0, 1).labels[1] == (0.2, "0.2")


# --- charts -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.dictionaries(NAMES, POINTS, max_size=10), NAMES, st.booleans(), st.booleans())
def test_any_lines_can_be_drawn(series: dict[str, list[tuple[float, float]]], title: str, x: bool, y: bool) -> None:
    stays_on_its_sheet(line_chart(title, "x", "y", series, log_x=x, log_y=y, across={"level": 0.5}))


@settings(max_examples=60)
@given(st.dictionaries(NAMES, st.dictionaries(NAMES, NUMBERS, max_size=4), max_size=5), st.booleans())
def test_any_bars_can_be_drawn(bars: dict[str, dict[str, float]], log: bool) -> None:
    stays_on_its_sheet(bar_chart("bars", "x", bars, log=log))


def test_a_line_chart_tells_its_points_in_words() -> None:
    root = parse(line_chart("Loss", "round", "loss", {"ours": [(1, 0.5), (2, 0.25)], "bad": [(1, math.nan)]}))
    assert "ours: 0.5 at 1, 0.25 at 2." in description(root)
    assert "bad: no points." in description(root)
    assert root.attrib["role"] == "img"
    labelled = root.attrib["aria-labelledby"].split()
    assert [e.attrib["id"] for e in root if e.tag in {f"{SPACE}title", f"{SPACE}desc"}] == labelled
    assert len(list(root.iter(f"{SPACE}circle"))) == 3  # two points and the key of the legend


def test_a_long_line_is_told_by_its_turning_points() -> None:
    root = parse(line_chart("Loss", "round", "loss", {"ours": [(x, abs(x - 30.0)) for x in range(100)]}))
    assert "ours: 30 at 0, 0 at 30, 69 at 99." in description(root)


def test_bars_are_as_long_as_their_values() -> None:
    root = parse(bar_chart("AUC", "AUC", {"a": {"": 0.6}, "b": {"": 0.9}}, start=0.5, digits=2))
    long = [float(e.attrib["width"]) for e in root.iter(f"{SPACE}rect") if e.attrib.get("class") == "f0"]
    assert long[1] == pytest.approx(4 * long[0], rel=0.01)
    assert {"0.60", "0.90"} <= set(texts(root))


def test_intervals_stand_beside_bars() -> None:
    root = parse(bar_chart("s", "s", {"a": {"x": 2.0, "y": 1.0}}, errors={"a": {"x": 0.5}}))
    assert "2 ± 0.5" in texts(root)
    assert "a, x: 2 ± 0.5; a, y: 1" in description(root)


def test_charts_stand_on_one_sheet() -> None:
    charts = [line_chart(f"chart {n}", "x", "y", {"a": [(0, n), (1, 1)]}) for n in range(3)]
    root = parse(sheet("all", charts))
    inner = [element for element in root if element.tag == f"{SPACE}svg"]
    assert len(inner) == 3
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(set(ids)) == len(ids)
    assert inner[2].attrib["y"] > inner[0].attrib["y"]


def test_charts_of_one_sheet_share_looks_a_legend_and_an_axis() -> None:
    names = ["all", "few", "guess"]
    few = {"few": [(0.0, 0.6), (1.0, 0.7)]}
    chart = line_chart("c", "x", "y", few, order=names, across={"guess": 0.5}, dashed=("few",), reach=(0.1,))
    root = parse(chart)
    assert "few" not in texts(root)  # no legend of its own
    classes = [element.attrib.get("class") for element in root.iter(f"{SPACE}polyline")]
    assert {"s1", "s2"} <= set(classes)
    assert "0.2" in texts(root)
    legend = parse(sheet("all", [chart], names=names, dashed=("few",), across=("guess",)))
    own = [element for element in legend if element.tag == f"{SPACE}polyline"]
    assert [element.attrib["class"] for element in own] == ["s0", "s1", "s2"]
    assert [element.attrib.get("stroke-dasharray") for element in own] == [None, "6 4", "6 4"]
    marks = [e.attrib["class"] for e in legend if e.tag in {f"{SPACE}circle", f"{SPACE}polygon"}]
    assert marks == ["f0", "f1"]  # a level has none in the charts either


# --- colours ----------------------------------------------------------------------------------------------


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, bright = sorted((light(one), light(other)))
    return (bright + 0.05) / (dark + 0.05)


def colours_of(style: str) -> dict[str, str]:
    named = re.findall(r"--(\w+):(#[0-9a-f]{3,6})", style)
    return {name: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:]) for name, value in named}


def test_colours_are_seen_in_light_and_in_dark() -> None:
    style = (TEMPLATES / "style.css").read_text()
    day, night = (colours_of(part) for part in style.split("prefers-color-scheme:dark"))
    dark = re.findall(r"svg \.s\d{stroke:(#[0-9a-f]{6})}", style)
    assert dark == re.findall(r"svg \.f\d{fill:(#[0-9a-f]{6})}", style)
    assert len(COLOURS) == len(dark)
    for palette, lines in ((day, COLOURS), (night, dark)):
        for name in ("ink", "grey", "link", "bad", "fair", "good"):  # text: WCAG AA
            assert contrast(palette[name], palette["paper"]) >= 4.5, name
        assert contrast(palette["grey"], palette["shade"]) >= 4.5
        for line in lines:  # graphics
            assert contrast(line, palette["paper"]) >= 3, line
