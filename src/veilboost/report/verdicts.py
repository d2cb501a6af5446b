"""What attacks found and what a protocol claims, as tables. Both are read as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from veilboost.report.page import Cell, table, verdict, words

_KINDS = {"succeeded": "succeeded", "resisted": "resisted"}  # any other verdict lies between


def findings_table(findings: Sequence[Mapping[str, Any]]) -> str:
    """Attacks beside their baselines; each finding as `Finding.to_dict` makes it."""
    if not findings:
        return words("No attack could use what this run recorded.")
    return words(
        "Every attack saw exactly what one party saw. Bars: the baseline in grey, what the attack reached in colour, "
        "its 95 % interval as a line.",
        "quiet",
    ) + table(
        "Attacks and what they reached",
        ("attack", "from → on", "measure", "result", "verdict"),
        [_finding(each) for each in findings],
    )


def protections_table(protections: Sequence[Mapping[str, Any]]) -> str:
    """Who is protected from whom; each as a `Protection`'s fields."""
    return table(
        "Sound: proved under named assumptions. Heuristic: no attack known at the stated sizes. "
        "Broken: an attack of ours succeeds. Open: nothing is claimed.",
        ("victim", "data", "adversary", "status", "why"),
        [
            (
                str(each["victim"]),
                str(each["data"]),
                str(each["adversary"]),
                verdict(str(each["status"])),
                str(each["why"]),
            )
            for each in protections
        ],
    )


def _finding(found: Mapping[str, Any]) -> tuple[str | Cell, ...]:
    word = str(found["verdict"])
    value, low, high, baseline = (float(found[key]) for key in ("value", "low", "high", "baseline"))
    numbers = f"{value:.3f} [{low:.3f}, {high:.3f}], baseline {baseline:.3f}"
    return (
        Cell(f"<strong>{escape(str(found['attack']))}</strong><br>{escape(str(found['sentence']))}", "words"),
        Cell(
            f"{escape(str(found['adversary']))} &rarr; {escape(str(found['victim']))}<br>{escape(str(found['data']))}"
        ),
        str(found["metric"]),
        Cell(f"{_bar(found)}{numbers}<br>{float(found['seconds']):.1f} s"),
        verdict(word, _KINDS.get(word, "better")),
    )


def _bar(found: Mapping[str, Any]) -> str:
    """Everything is 160 units wide."""
    places = (160 * min(max(float(found[key]), 0.0), 1.0) for key in ("value", "baseline", "low", "high"))
    value, base, low, high = places
    kind = _KINDS.get(str(found["verdict"]), "better")
    told = f"{found['metric']} {float(found['value']):.3f}, baseline {float(found['baseline']):.3f}"
    return (
        f'<svg class="{kind}" width="160" height="22" role="img" aria-label="{escape(told)}" style="display:block">'
        f'<rect y="2" width="160" height="18" style="fill:var(--bar)"/>'
        f'<rect y="5" width="{value:.1f}" height="12" fill="currentColor"/>'
        f'<rect y="2" width="{base:.1f}" height="18" fill="#888" opacity=".55"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="11" y2="11" stroke-width="2" style="stroke:var(--ink)"/></svg>'
    )
