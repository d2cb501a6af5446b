"""Charts of explanations are well-formed, stay on their sheet, and tell their numbers in words."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from test_plots import SPACE, description, parse, stays_on_its_sheet, texts

from veilboost.model.explanation import Explanation
from veilboost.report.contributions import MOST_ROWS, beeswarm, beeswarms, picked_rows, sample, waterfall
from veilboost.report.pages import explanation_page

pytestmark = pytest.mark.fast


def explanation(rows: int = 500, features: int = 15, classes: int = 0) -> Explanation:
    rng = np.random.default_rng(1)
    shape = (rows, features, classes) if classes else (rows, features)
    values = rng.normal(size=shape) * np.linspace(1, 3, features).reshape((1, -1, *[1] * bool(classes)))
    data = rng.normal(size=(rows, features)).astype(object)
    data[:, 0] = "a <b> & c"
    names = tuple(f"<i>{at}</i>" for at in range(features))
    base = np.zeros((rows, classes) if classes else rows)
    outputs = tuple(f"k{at}" for at in range(classes)) if classes else None
    return Explanation(values, base, data, names, ("bank",) * features, outputs)


def test_a_beeswarm_has_a_point_for_every_finite_value() -> None:
    drawn = beeswarm("why", {"age": [(0.5, 0), (math.nan, 1), (-2.0, 2)], "x" * 60: [(1e9, 1)], "none": []})
    stays_on_its_sheet(drawn)
    root = parse(drawn)
    assert len(list(root.iter(f"{SPACE}circle"))) == 3
    assert "age: -2 to 0.5" in description(root)
    assert "none: no points" in description(root)
    stays_on_its_sheet(beeswarm("nothing", {}))


def test_crowded_points_stay_on_their_line() -> None:
    drawn = beeswarm("why", {"one": [(1.0, 0)] * 300, "two": [(1.0, 1)] * 300})
    heights = [float(each.attrib["cy"]) for each in parse(drawn).iter(f"{SPACE}circle")]
    assert max(heights[:300]) < min(heights[300:])


def test_a_waterfall_ends_at_the_margin_and_sums_up_the_rest() -> None:
    steps = {f"f{at}": (-1.0) ** at * (at + 1) for at in range(20)}
    drawn = waterfall("row", 0.5, steps)
    stays_on_its_sheet(drawn)
    root = parse(drawn)
    assert f"to {0.5 + sum(steps.values()):.4g}" in description(root)
    assert "8 others" in texts(root)
    bars = [each for each in root.iter(f"{SPACE}rect") if each.attrib.get("height") == "18"]
    assert len(bars) == 13
    stays_on_its_sheet(waterfall("no features", 0.5, {}))


def test_samples_are_small_and_hold_the_most_important_features() -> None:
    found = explanation()
    (one,) = json.loads(json.dumps(sample(found)))
    assert list(one["features"]) == [f"<i>{at}</i>" for at in np.argsort(-found.importance)[:12]]
    assert {len(points) for points in one["features"].values()} == {MOST_ROWS}
    assert {shade for points in one["features"].values() for _, shade in points} <= {0, 1, 2}
    several = sample(explanation(rows=30, classes=9))
    assert [each["class"] for each in several] == [f"k{at}" for at in range(6)]
    assert len(beeswarms(several)) == 6
    assert sample(explanation(rows=1, features=2))[0]["features"].keys() == {"<i>0</i>", "<i>1</i>"}


@pytest.mark.parametrize("classes", [0, 3])
def test_the_page_has_all_charts_and_escapes_names(classes: int) -> None:
    found = explanation(rows=40, classes=classes)
    page = explanation_page("credit", found, "the probability")
    assert page.count("<svg xmlns") == (classes or 1) + 3
    assert "<i>" not in page
    assert len(picked_rows(found)) == 3
    assert not picked_rows(found.take(np.arange(0)))
