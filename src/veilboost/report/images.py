"""Drawings as pictures, for places that do not take SVG."""

from __future__ import annotations

import importlib
from typing import Any

from veilboost.errors import MissingExtra


def png_of(svg: str, zoom: float = 2.0) -> bytes:
    """A drawing as PNG, `zoom` pixels to a unit.

    Raises
    ------
    MissingExtra
        The extra `plots` is not installed.
    """
    try:
        resvg: Any = importlib.import_module("resvg_py")
    except ModuleNotFoundError:
        raise MissingExtra("a plot as PNG needs resvg-py", "pip install 'veilboost[plots]', or use the SVG") from None
    return bytes(resvg.svg_to_bytes(svg_string=svg, zoom=zoom, sans_serif_family="DejaVu Sans"))
