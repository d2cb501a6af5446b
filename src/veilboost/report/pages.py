"""HTML pages from the templates in this package: the report of a run, an evaluation, and the findings of an audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from veilboost import __version__
from veilboost.boost.metrics import METRIC_INFO, MetricInfo
from veilboost.model.explanation import Explanation
from veilboost.report.contributions import beeswarms, picked_rows, sample
from veilboost.report.evaluation import shown
from veilboost.report.facts import Facts
from veilboost.report.plots import bar_chart, line_chart
from veilboost.report.values import alike, bytes_text, epsilon_text, seconds_text

TEMPLATES = Path(__file__).parent / "templates"
_WIDE = 460  # width of a chart: two fit side by side, and one is readable on a phone
_MANY = 25  # the most columns in a chart


def render(template: str, folder: Path = TEMPLATES, **given: Any) -> str:
    """Render one HTML file. Text is escaped; HTML and SVG must be `markupsafe.Markup`.

    A `folder` may hold templates that extend those of this package.
    """
    return _environment(folder).get_template(template).render(release=__version__, **given)


@cache
def _environment(folder: Path) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([folder, TEMPLATES])
    made: Any = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"bytes": bytes_text, "epsilon": epsilon_text, "amount": _amount, "known": _known, "some": _some}
    return made


def audit_page(protocol: str, findings: Sequence[Mapping[str, Any]], protections: Sequence[Mapping[str, Any]]) -> str:
    """The findings of attacks (`Finding.to_dict`) and the claims of the protocol (`Protection.to_dict`)."""
    return render("audit.html", protocol=protocol, findings=findings, protections=protections)


def evaluation_page(title: str, evaluation: Mapping[str, Any]) -> str:
    """The evaluation (`Evaluation.to_dict`) of a model's scores."""
    found = shown(evaluation)
    return render("evaluation.html", title=title, evaluation=found, charts=_marked(found.charts))


def explanation_page(model: str, found: Explanation, meaning: str) -> str:
    """The explanation of scores. The page shows no ids and no values of rows."""
    order = np.argsort(-found.importance, kind="stable").tolist()
    return render(
        "explanation.html",
        model=model,
        meaning=meaning,
        rows=len(found.values),
        features=[(found.feature_names[at], found.parties[at], f"{found.importance[at]:.4g}") for at in order],
        swarms=_marked(beeswarms(sample(found))),
        waterfalls=_marked(picked_rows(found)),
    )


def run_page(facts: Facts) -> str:
    """The report of a run: quality, time, bytes, privacy budget, data revealed to each party, attack results."""
    info = _info(facts, facts.metric)
    sent = _sent(facts)
    evaluation = None if facts.evaluation is None else shown(facts.evaluation)
    steps = [(step, sent[str(step["step"])]) for step in facts.steps]
    senders = list(dict.fromkeys(name for of in sent.values() for name in of))
    return render(
        "run.html",
        facts=facts,
        metric=info,
        quality_charts=_marked(_quality_charts(facts, info)),
        evaluation=evaluation,
        evaluation_charts=[] if evaluation is None else _marked(evaluation.charts),
        cost_charts=_marked(_cost_charts(facts, sent)),
        model_charts=_marked(_model_charts(facts.model or {})),
        step_headers=("step", "seconds", "requests", *(f"{name} sent" for name in senders)),
        step_rows=[
            (s["step"], seconds_text(s["seconds"]), s["requests"], *(bytes_text(of.get(n, 0)) for n in senders))
            for s, of in steps
        ],
        spent=alike({name: spent for name, spent in facts.privacy.items() if spent["composed"]}),
        without_noise=[name for name, spent in facts.privacy.items() if not spent["composed"]],
        learned=alike(facts.learned),
        exchanges=grouped(facts.exchanges),
    )


def _marked(drawings: Sequence[str]) -> list[str]:
    from markupsafe import Markup

    return [Markup(each) for each in drawings]  # noqa: S704 - drawn by us, with all text in them escaped


def _info(facts: Facts, metric: str) -> MetricInfo:
    """The title and the direction of a metric; a result may name one that this release does not know."""
    return METRIC_INFO.get(metric) or MetricInfo(metric, facts.higher_is_better)


def _quality_charts(facts: Facts, info: MetricInfo) -> list[str]:
    drawings: list[str] = []
    if len(facts.quality) > 1:
        drawings.append(
            bar_chart(
                f"{info.title} by data used",
                f"{info.title}, {info.direction}",
                {who: {info.title: value} for who, value in facts.quality.items()},
                start=min([info.chance, *facts.quality.values()]),
                digits=4,
                width=_WIDE,
            )
        )
    measured = {rows: facts.curve_metrics.get(rows, facts.metric) for rows in facts.curves}
    for metric in dict.fromkeys(measured.values()):  # a chart for each metric: their values share no axis
        own = {rows: facts.curves[rows] for rows, of in measured.items() if of == metric}
        points = {f"together, on {rows}": [(x, y) for x, y in each] for rows, each in own.items()}
        # Baselines of the same metric; the curve itself shows the joint model.
        alone = {who: value for who, value in facts.quality.items() if not who.startswith("together")}
        levels = alone if metric == facts.metric else {}
        shown = _info(facts, metric)
        title = f"Learning curve: {shown.title} on {' and on '.join(own)}"
        label = f"{shown.title} ({shown.direction})"
        drawings.append(line_chart(title, "rounds", label, points, across=levels, width=_WIDE, height=330))
    return drawings


def _cost_charts(facts: Facts, sent: Mapping[str, Mapping[str, float]]) -> list[str]:
    drawings: list[str] = []
    if facts.steps:
        seconds = {str(step["step"]): {"seconds": float(step["seconds"])} for step in facts.steps}
        drawings.append(bar_chart("Seconds by step", "seconds, over all rounds", seconds, width=_WIDE))
        drawings.append(bar_chart("Bytes by step and sender", "bytes, over all rounds", sent, width=_WIDE))
    if len(facts.round_seconds) > 1:
        rounds = [(float(at), value) for at, value in enumerate(facts.round_seconds, start=1)]
        drawings.append(line_chart("Seconds of each round", "round", "seconds", {"seconds": rounds}, width=_WIDE))
    if facts.waiting:
        longest = sorted(facts.waiting.items(), key=lambda item: -item[1])[:_MANY]
        waited = {name: {"seconds": value} for name, value in longest}
        drawings.append(bar_chart("Time that the driver waited for each party", "seconds", waited, width=_WIDE))
    return drawings


def _model_charts(model: Mapping[str, Any]) -> list[str]:
    parties: Mapping[str, float] = model.get("importance_by_party", {})
    columns: Sequence[Mapping[str, Any]] = model.get("importance_by_column", ())
    best = {f"{each['party']}: {each['column']}": each["value"] for each in columns[:_MANY]}
    shares = {"party": parties if len(parties) > 1 else {}, "column": best}
    charts = [
        bar_chart(
            f"Share of the gain by {kind}", "share", {n: {"share": v} for n, v in of.items()}, digits=3, width=_WIDE
        )
        for kind, of in shares.items()
        if of
    ]
    return charts + beeswarms(model.get("contributions", ()))


def _sent(facts: Facts, most: int = 4) -> dict[str, dict[str, float]]:
    """Bytes by step and sender, the driver first.

    With many parties, all others count as one, so that the chart stays readable.
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


def grouped(exchanges: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Combine messages of one type to or from several parties into one line."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in exchanges:
        what = tuple(str(item["what"]) for item in each["reveals"])
        here = found.setdefault((each["message"], what), {**each, "sender": [], "receiver": [], "count": 0, "bytes": 0})
        for end in ("sender", "receiver"):
            if each[end] not in here[end]:
                here[end].append(each[end])
        here["count"] += each["count"]
        here["bytes"] += each["bytes"]
    return list(found.values())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"


def _amount(amount: tuple[float, str]) -> str:
    value, unit = amount
    if unit == "s":
        return seconds_text(value)
    if unit == "B":
        return bytes_text(value)
    return f"{value:,.0f} {unit}".rstrip().replace(",", " ")


def _known(value: Any) -> str:
    if value is None:
        return "not known"
    return f"{value:g}" if isinstance(value, float) else str(value)
