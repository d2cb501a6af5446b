"""Tables as drawings, and drawings as PNG."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from papers.pictures import png_of, table_chart
from veilboost.report.plots import line_chart

pytestmark = pytest.mark.fast


def test_a_table_can_be_a_drawing() -> None:
    root = ElementTree.fromstring(  # noqa: S314
        table_chart("T", ("method", "AUC"), [("a <b>", "0.9"), ("c", "0.8")], note="Two cores.")
    )
    assert {"a <b>", "0.9", "Two cores."} <= {element.text for element in root.iter() if element.tag.endswith("text")}


def test_a_picture_is_twice_as_large() -> None:
    svg = line_chart("a", "x", "y", {"a": [(0, 0), (1, 1)]}, width=300, height=200)
    png = png_of(svg)
    assert png.startswith(b"\x89PNG")
    assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (600, 400)
