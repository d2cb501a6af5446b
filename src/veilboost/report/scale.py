"""Where a number stands on an axis, and which numbers an axis names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_FINEST = 1e-6  # of the largest value
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_SUFFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Scale:
    """Numbers from `low` to `high` on a line from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        low, high, at = (math.log10(x) if self.log else x for x in (self.low, self.high, value))
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high > low else 0.5)

    @property
    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)

    @property
    def labels(self) -> list[tuple[float, str]]:
        """The numbers that an axis names, and how."""
        found = self.ticks
        if self.log:
            return [(value, number_text(value)) for value in found]
        step = found[1] - found[0] if len(found) > 1 else abs(found[0]) or 1.0
        return [(value, number_text(value, step)) for value in found]


def fit(values: Iterable[float], start: float, end: float, *, log: bool = False, margin: float = 0.04) -> Scale:
    """A scale that holds all values with some room."""
    found = [value for value in values if math.isfinite(value) and not (log and value <= 0)]
    low, high = (min(found), max(found)) if found else (1.0, 10.0)
    if log:
        room = (high / low) ** margin if high > low else 3.0
        return Scale(low / room, high * room, start, end, log=True)
    largest = max(abs(low), abs(high))
    # Values that differ by less than an axis can name stand in its middle.
    room = (high - low) * margin if high - low > largest * _FINEST else largest * 0.1 or 1.0
    return Scale(low - room, high + room, start, end)


def number_text(value: float, step: float | None = None) -> str:
    """A number as short as it can be told apart from its neighbours `step` away."""
    if value == 0:
        return "0"
    for size, suffix in _SUFFIXES:
        # Thousands below ten thousand are read more easily in full.
        if abs(value) >= max(size, 1e4):
            return f"{value / size:.{_digits(step / size) if step else 3}{'f' if step else 'g'}}{suffix}"
    if step is None:
        return f"{value:.4g}"
    if step >= 1e-6:
        return f"{value:.{_digits(step)}f}"
    return f"{value:.{max(0, math.ceil(math.log10(abs(value) / step))) + 1}e}"


def _digits(step: float) -> int:
    """Digits after the point that a multiple of `step` needs."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return digits + (abs(step * 10**digits - round(step * 10**digits)) > 1e-6)


def _even_ticks(low: float, high: float, about: int = 5) -> list[float]:
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in _STEPS if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [float(f"{at * step:.10g}") for at in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [f * 10.0**power for power in range(first, last + 1) for f in factors]
        found = [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(found) <= most:
            return found or [low, high]
    return found[:: math.ceil(len(found) / most)]
