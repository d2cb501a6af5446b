"""The columns of the peers' table, and their display format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from blocks import table

COLUMNS = (
    "setting", "system", "protection", "key", "runs as", "seconds per tree", "CPU seconds per tree", "MB per tree",
    "AUC, few trees", "AUC, all trees", "peak MB", "lines",
)  # fmt: skip


def as_markdown(rows: Sequence[Mapping[str, Any]], few: int, trees: int) -> str:
    head = tuple(name.replace("few trees", f"{few} trees").replace("all trees", f"{trees} trees") for name in COLUMNS)
    return table(head, [tuple(_shown(name, row[name]) for name in COLUMNS) for row in rows])


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if name.startswith("AUC") else f"{value:.0f}" if name == "peak MB" else f"{value:.3g}"
    return str(value)
