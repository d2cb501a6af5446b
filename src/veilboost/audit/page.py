"""Findings as one page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from veilboost.audit.result import Finding
from veilboost.privacy.statement import Statement

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}p.lead{color:#444}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.45rem .6rem;border-bottom:1px solid #ddd;
vertical-align:top}th{font-weight:600}
td.number{font-variant-numeric:tabular-nums;white-space:nowrap}
.verdict{font-weight:600}
.succeeded,.broken,.open{color:#a40000}.better,.heuristic{color:#8a5a00}.resisted,.sound{color:#00602b}
svg{display:block}@media print{body{margin:0}}
@media (max-width:40rem){table,tbody,tr,td{display:block}thead{display:none}
tr{border-bottom:2px solid #999;padding:.4rem 0}
td{border:0;padding:.15rem 0}}
"""


def page(protocol: str, findings: Sequence[Finding], statement: Statement) -> str:
    """The page of one run."""
    rows = "\n".join(_row(finding) for finding in findings)
    claims = "\n".join(
        f"<tr><td>{escape(each.victim)}</td><td>{escape(each.data)}</td><td>{escape(each.adversary)}</td>"
        f'<td class="verdict {each.status}">{each.status}</td><td>{escape(each.why)}</td></tr>'
        for each in statement.protections
    )
    none = "" if findings else "<p>No attack could use what this run recorded.</p>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Audit of a run by {escape(protocol)}</title><style>{_STYLE}</style></head><body>
<h1>Audit of a run by {escape(protocol)}</h1>
<p class="lead">Every attack saw exactly what one party saw. Bars: the baseline in grey, what the attack reached in
colour, its 95 % interval as a line.</p>
<h2>What the attacks found</h2>{none}
<table><thead><tr><th>attack</th><th>from &rarr; on</th><th>measure</th><th>result</th><th>verdict</th></tr></thead>
<tbody>{rows}</tbody></table>
<h2>What the protocol claims</h2>
<table><thead><tr><th>victim</th><th>data</th><th>adversary</th><th>status</th><th>why</th></tr></thead>
<tbody>{claims}</tbody></table>
</body></html>
"""


def _row(finding: Finding) -> str:
    found = finding.outcome
    kind = {"succeeded": "succeeded", "resisted": "resisted"}.get(finding.verdict, "better")
    numbers = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}], baseline {found.baseline:.3f}"
    return (
        f"<tr><td><strong>{escape(finding.attack)}</strong><br>{escape(found.sentence)}</td>"
        f"<td>{escape(finding.adversary)} &rarr; {escape(finding.victim)}<br>{escape(finding.data)}</td>"
        f"<td>{escape(found.metric)}</td>"
        f'<td class="number">{_bar(finding)}{numbers}<br>{finding.seconds:.1f} s</td>'
        f'<td class="verdict {kind}">{escape(finding.verdict)}</td></tr>'
    )


def _bar(finding: Finding) -> str:
    """Everything is 200 units wide."""
    found = finding.outcome
    value, base, low, high = (200 * min(max(x, 0.0), 1.0) for x in (found.value, found.baseline, found.low, found.high))
    colour = {"succeeded": "#a40000", "resisted": "#00602b"}.get(finding.verdict, "#8a5a00")
    label = f"{found.metric} {found.value:.3f}, baseline {found.baseline:.3f}"
    return (
        f'<svg width="200" height="22" role="img" aria-label="{escape(label)}">'
        f'<rect y="2" width="200" height="18" fill="#f0f0f0"/><rect y="5" width="{value:.1f}" height="12" '
        f'fill="{colour}"/><rect y="2" width="{base:.1f}" height="18" fill="#888" opacity=".55"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="11" y2="11" stroke="#000" stroke-width="2"/></svg>'
    )
