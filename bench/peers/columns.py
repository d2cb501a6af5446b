"""The columns of the peers' tables, and their display format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blocks import table

FEW, ALL = "quality, few trees", "quality, all trees"
COLUMNS = (
    "setting", "system", "protection", "key", "runs as", "seconds per tree", "seconds per tree, wan",
    "CPU seconds per tree", "MB per tree", FEW, ALL, "peak MB", "lines",
)  # fmt: skip


def as_markdown(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> str:
    """The table of a data set; `settings` say its metric and how many trees are few and all."""
    counts = {FEW: settings["few_trees"], ALL: settings["trees"]}
    titles = {which: f"{settings['metric']}, {count} trees" for which, count in counts.items()}
    head = tuple(titles.get(name, name) for name in COLUMNS)
    return table(head, [tuple(_shown(name, row.get(name)) for name in COLUMNS) for row in rows])


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if name in (FEW, ALL) else f"{value:.0f}" if name == "peak MB" else f"{value:.3g}"
    return str(value)
