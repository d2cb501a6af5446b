"""Readable sizes and times, and values that JSON can represent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast


def bytes_text(size: float) -> str:
    """`1.5 MB`, with decimal units."""
    if size < 1000:
        return f"{size:.0f} B"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1000:.1f} TB"


def seconds_text(seconds: float) -> str:
    """`350 us`, `12.3 ms`, `4.56 s`, `3 min 20 s`, `5 h 12 min`, `3 d 4 h`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s"
    whole = int(seconds)
    if whole < 2 * 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def epsilon_text(epsilon: float | None) -> str:
    """A privacy loss; None, which JSON has for infinity, is infinite."""
    return "infinite" if epsilon is None or math.isinf(epsilon) else f"{epsilon:.4g}"


def alike(by_party: Mapping[str, Any]) -> list[tuple[list[str], Any]]:
    """Group parties with equal values: participants mostly spend and learn the same."""
    groups: list[tuple[list[str], Any]] = []
    for name, value in by_party.items():
        names = next((names for names, known in groups if known == value), None)
        if names is None:
            groups.append(([name], value))
        else:
            names.append(name)
    return groups


def plain(value: Any) -> Any:
    """The value with string keys, lists for tuples, and None for NaN and infinity, which JSON cannot represent."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast(Sequence[Any], value)]
    return value
