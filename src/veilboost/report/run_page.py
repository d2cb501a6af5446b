"""The page of a run: how good, how fast, how many bytes, what was spent, who learned what, what attacks found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from veilboost.report.facts import Facts
from veilboost.report.page import Cell, Section, bullets, charts, document, table, tiles, words
from veilboost.report.plots import bar_chart, line_chart
from veilboost.report.units import bytes_text, epsilon_text, seconds_text
from veilboost.report.verdicts import findings_table, protections_table

_WIDE = 460  # of a chart: two stand side by side, and one is readable on a phone
_MANY = 25  # more columns than these are not drawn
_FEWEST = 2
_NAMES = {"auc": "AUC", "aucpr": "AUC of precision and recall", "logloss": "log loss", "rmse": "RMSE", "mae": "MAE"}
_EXPOSED = ("broken", "open")


def run_page(facts: Facts) -> str:
    """One file of HTML."""
    facts = replace(facts, metric=_NAMES.get(facts.metric, facts.metric))
    return document(
        facts.title,
        f"{facts.protocol}: {facts.summary.rstrip('.')}. Made from: {facts.source}.",
        [
            Section("summary", "At a glance", _summary(facts)),
            Section("quality", "How good it is", _quality(facts)),
            Section("cost", "Time and bytes", _cost(facts)),
            Section("privacy", "Privacy spent", _privacy(facts)),
            Section("shown", "What each party was shown", _shown(facts)),
            Section("claims", "What the protocol claims", protections_table(facts.protections)),
            Section("audit", "What attacks found", _audit(facts)),
            Section("model", "The model", _model(facts)),
            Section("settings", "Settings", _settings(facts)),
        ],
    )


def _summary(facts: Facts) -> str:
    about = [(who, f"{value:.4f}") for who, value in facts.quality.items()]
    about += [(name, _amount(*amount)) for name, amount in facts.cost.items()]
    exposed = [each for each in facts.protections if each["status"] in _EXPOSED]
    warning = ""
    if exposed:
        whose = "; ".join(f"{each['data']} of the {each['victim']} side ({each['status']})" for each in exposed)
        warning = words(f"This protocol does not protect: {whose}. The table of claims says why.", "verdict broken")
    parties = table(
        "Parties",
        ("party", "role", "columns", "sent"),
        [
            (name, str(each["role"]), _known(each.get("columns")), bytes_text(facts.bytes_sent.get(name, 0)))
            for name, each in facts.parties.items()
        ],
        numbers=("columns", "sent"),
    )
    return tiles([(f"{facts.metric}, {name}" if name in facts.quality else name, value) for name, value in about]) + (
        (words(facts.note, "quiet") if facts.note else "") + warning + parties
    )


def _quality(facts: Facts) -> str:
    direction = "higher is better" if facts.higher_is_better else "lower is better"
    drawings: list[str] = []
    if len(facts.quality) >= _FEWEST:
        chance = 0.5 if facts.metric == "AUC" else 0.0
        drawings.append(
            bar_chart(
                f"{facts.metric} by who took part",
                f"{facts.metric}, {direction}",
                {who: {facts.metric: value} for who, value in facts.quality.items()},
                start=min([chance, *facts.quality.values()]),
                digits=4,
                width=_WIDE,
            )
        )
    if facts.curves:
        points = {f"together, on {name}": [(x, y) for x, y in each] for name, each in facts.curves.items()}
        # Levels of the same measure: what the joint model ends at is the curve itself.
        levels = {who: value for who, value in facts.quality.items() if not who.startswith("together")}
        title = f"Learning curve: {facts.metric} on {' and on '.join(facts.curves)}"
        label = f"{facts.metric} ({direction})"
        drawings.append(line_chart(title, "rounds", label, points, across=levels, width=_WIDE, height=330))
    if not drawings and not facts.quality:
        return words("Nothing was measured: the run kept no rows to test on.")
    numbers = table(
        f"{facts.metric}, {direction}",
        ("who took part", facts.metric),
        [(who, f"{value:.5f}") for who, value in facts.quality.items()],
        numbers=(facts.metric,),
    )
    return charts(drawings) + (numbers if facts.quality else "")


def _cost(facts: Facts) -> str:
    drawings: list[str] = []
    sent = _sent(facts)
    if facts.steps:
        seconds = {str(step["step"]): {"seconds": float(step["seconds"])} for step in facts.steps}
        drawings.append(bar_chart("Seconds by step", "seconds, over all rounds", seconds, width=_WIDE))
        drawings.append(bar_chart("Bytes by step and sender", "bytes, over all rounds", sent, width=_WIDE))
    if len(facts.round_seconds) >= _FEWEST:
        rounds = [(float(at), value) for at, value in enumerate(facts.round_seconds, start=1)]
        drawings.append(line_chart("Seconds of each round", "round", "seconds", {"seconds": rounds}, width=_WIDE))
    if facts.waiting:
        longest = sorted(facts.waiting.items(), key=lambda item: -item[1])[:_MANY]
        waited = {name: {"seconds": value} for name, value in longest}
        drawings.append(bar_chart("How long the driving party waited for each", "seconds", waited, width=_WIDE))
    parts = [charts(drawings)]
    if facts.steps:
        parties = list(dict.fromkeys(name for of in sent.values() for name in of))
        headers = ("step", "seconds", "requests", *(f"{name} sent" for name in parties))
        rows = [
            (
                str(step["step"]),
                seconds_text(float(step["seconds"])),
                str(step["requests"]),
                *(bytes_text(sent[str(step["step"])].get(name, 0)) for name in parties),
            )
            for step in facts.steps
        ]
        parts.append(table("A step lasts until the first message of another one", headers, rows, numbers=headers[1:]))
    return "".join(parts)


def _privacy(facts: Facts) -> str:
    """Two accountings for each party: the paper's, and composed."""
    silent = [name for name, told in facts.privacy.items() if not told["composed"]]
    groups: dict[str, list[str]] = {}  # participants mostly spend the same
    for name, told in facts.privacy.items():
        if told["composed"]:
            groups.setdefault(json.dumps(told, sort_keys=True), []).append(name)
    parts: list[str] = []
    for names in groups.values():
        told = facts.privacy[names[0]]
        parts.append(f"<h3>{escape(_some(names))}</h3>")
        if told["paper"]:
            headers = ("what", "hides a change of", "from", "releases", "epsilon each", "delta each")
            parts.append(
                table(
                    "By the paper's formula, each release by itself",
                    headers,
                    [
                        (
                            str(row["what"]),
                            str(row["adjacency"]),
                            str(row["adversary"]),
                            str(row["releases"]),
                            epsilon_text(row["epsilon_per_release"]),
                            f"{row['delta_per_release']:.3g}",
                        )
                        for row in told["paper"]
                    ],
                    numbers=headers[3:],
                )
            )
        parts.append(_composed(told))
    if silent:
        whose = _some(silent)
        parts.append(
            words(f"Nothing with noise left {whose}, and nothing was booked: what was shown was shown exactly.")
        )
    return "".join(parts) or words("No ledger is at hand.")


def _composed(told: Mapping[str, Any]) -> str:
    headers = ("hides a change of", "from", "releases", "epsilon", "PLD", "Renyi", "advanced", "basic")
    ways = ("epsilon", "pld", "renyi", "advanced", "basic")
    rows = [
        (
            str(row["adjacency"]),
            str(row["adversary"]),
            str(row["releases"] + row["exact_releases"]),
            *(epsilon_text(row[way]) for way in ways),
        )
        for row in told["composed"]
    ]
    exact = [
        f"without noise, to {row['adversary']}: {'; '.join(row['exact'])}; "
        f"the rest alone would cost {epsilon_text(row['epsilon_of_noised'])}"
        for row in told["composed"]
        if row["exact_releases"]
    ]
    caption = f"Composed over all releases, at delta {told['delta']:g}"
    return table(caption, headers, rows, numbers=headers[2:]) + (bullets(exact) if exact else "")


def _shown(facts: Facts) -> str:
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, things in facts.learned.items():
        groups.setdefault(tuple(things), []).append(name)
    parts = [f"<h3>{escape(_some(names))}</h3>{bullets(things or ('nothing',))}" for things, names in groups.items()]
    headers = ("message", "from", "to", "count", "bytes", "reveals to the receiver")
    rows = [
        (
            str(each["message"]),
            str(each["sender"]),
            str(each["receiver"]),
            f"{each['count']}",
            bytes_text(each["bytes"]),
            "; ".join(str(item["what"]) for item in each["reveals"]) or "nothing",
        )
        for each in _grouped(facts.exchanges)
    ]
    parts.append("<h3>Every kind of message</h3>")
    parts.append(table("What crossed, and what it reveals", headers, rows, numbers=("count", "bytes")))
    return "".join(parts)


def _grouped(exchanges: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages of one kind to or from several like parties on one line."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in exchanges:
        what = tuple(str(item["what"]) for item in each["reveals"])
        here = found.setdefault((each["message"], what), {**each, "sender": [], "receiver": [], "count": 0, "bytes": 0})
        for end in ("sender", "receiver"):
            if each[end] not in here[end]:
                here[end].append(each[end])
        here["count"] += each["count"]
        here["bytes"] += each["bytes"]
    return [{**each, **{end: _some(each[end]) for end in ("sender", "receiver")}} for each in found.values()]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _audit(facts: Facts) -> str:
    if facts.findings is not None:
        return findings_table(facts.findings)
    return words(
        'This run was not attacked. A run recorded with record = "payload" can be: veilboost audit, or '
        "veilboost simulate --audit."
    )


def _model(facts: Facts) -> str:
    model = facts.model
    if model is None:
        return words("No part of the model is at hand.")
    parts: list[str] = []
    if "trees" in model:
        shape = [("trees", str(model["trees"])), ("depth", str(model["depth"])), ("leaves", str(model["leaves"]))]
        parts.append(tiles(shape))
    drawings: list[str] = []
    if "importance_by_party" in model and len(model["importance_by_party"]) >= _FEWEST:
        shares = {name: {"share": float(value)} for name, value in model["importance_by_party"].items()}
        drawings.append(bar_chart("Share of the gain by party", "share", shares, digits=3, width=_WIDE))
    columns: Sequence[Mapping[str, Any]] = model.get("importance_by_column", ())
    if columns:
        best = {f"{each['party']}: {each['column']}": {"share": float(each["value"])} for each in columns[:_MANY]}
        drawings.append(bar_chart("Share of the gain by column", "share", best, digits=3, width=_WIDE))
    parts.append(charts(drawings))
    if columns:
        rows = [(str(e["column"]), str(e["party"]), f"{float(e['value']):.4f}") for e in columns[:100]]
        caption = "Share of the total gain; columns whose owner does not share names are numbered"
        parts.append(table(caption, ("column", "party", "share"), rows, numbers=("share",)))
    if "splits_by_column" in model:
        own = sorted(model["splits_by_column"], key=lambda each: -each["splits"])[:100]
        rows = [(str(e["column"]), str(e["party"]), str(e["splits"])) for e in own]
        parts.append(table("How often columns split", ("column", "party", "splits"), rows, numbers=("splits",)))
    if "sha256" in model:
        parts.append(words(f"sha256 of the model: {model['sha256']}", "quiet"))
    return "".join(parts)


def _settings(facts: Facts) -> str:
    rows: list[tuple[str | Cell, ...]] = [(name, _known(value)) for name, value in facts.settings.items()]
    return table("What was run", ("setting", "value"), rows)


def _sent(facts: Facts, most: int = 4) -> dict[str, dict[str, float]]:
    """Bytes by step and sender, the driving party first.

    Where parties are many, all others count as one: bars of ten participants would say nothing.
    """
    drivers = [name for name, each in facts.parties.items() if each["role"] in {"active", "server"}]
    names = list(dict.fromkeys([*drivers, *facts.parties]))
    others = f"{len(names) - len(drivers)} others"
    found: dict[str, dict[str, float]] = {}
    for step in facts.steps:
        of = {name: float(step["bytes"][name]) for name in names if name in step["bytes"]}
        if len(names) > most:
            rest = sum(value for name, value in of.items() if name not in drivers)
            of = {name: of.get(name, 0.0) for name in drivers} | {others: rest}
        found[str(step["step"])] = of
    return found


def _amount(value: float, unit: str) -> str:
    if unit == "s":
        return seconds_text(value)
    if unit == "B":
        return bytes_text(value)
    return f"{value:,.0f} {unit}".rstrip().replace(",", " ")


def _known(value: Any) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)
