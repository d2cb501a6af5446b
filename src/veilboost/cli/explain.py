"""`veilboost explain`: the contributions of features to scores, and reason codes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, seconds_text, tell, writing
from veilboost.cli.predict import DeploymentName, Model, UnknownRows, add_status, check_place, refuse_deployed, stage
from veilboost.errors import InvalidParameter

if TYPE_CHECKING:
    from veilboost.infer.scores import ModelInfo
    from veilboost.model.explanation import Explanation
    from veilboost.party.deployments import Scored, Unknown
    from veilboost.party.predicting import Prediction


def explain(
    model: Model,
    data: Annotated[Path, typer.Option(metavar="FILE", help="Rows to explain: parquet, csv or arrow.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file: .parquet, .csv or .arrow.")],
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The settings of this party.",
            show_default="--model is a folder of simulate --save",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of reason codes for each row.")] = 4,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write charts as an HTML page.")] = None,
    deployment: DeploymentName = None,
    unknown: UnknownRows = "error",
    as_json: AsJson = False,
) -> None:
    """Explain scores: how much each feature moved them, and the main reasons.

    Run this at the active party of a finished job, as `veilboost predict`. The
    contributions are exact (TreeSHAP): with the expected margin they add up to
    the margin, which is the score before the link function. Own columns have
    their names; the policy of every other party decides whether its columns
    appear by name, by pseudonym, or as one sum. For this the other parties
    send how the rows go at all of their splits, visited or not. It counts as a
    prediction of the rows.

    Reason codes are the features that raised the score most: for two classes
    that of the second class, for more classes that of the predicted one.

    If the run is deployed (veilboost deploy), this takes milliseconds, and rows
    may be unknown to a party: --unknown skip does not explain them, default
    lets them go the way of missing values there. The output then has a column
    status.

    Without --config, --model is a folder of `veilboost simulate --save` with
    the shares of all parties, and --data has the columns of all parties.

    Examples:

        [bold]veilboost explain --model runs/credit --config bank.toml --data new.parquet --out why.parquet[/]

        [bold]veilboost explain --model model --data all.csv --out why.csv --top 3 --report why.html[/]
    """
    from veilboost.durable import replace_file
    from veilboost.infer.scores import check_ending, explanation_columns, meaning, write_scores
    from veilboost.report.pages import explanation_page

    check_ending(out)
    check_place([str(data)], out)
    if top < 0:
        raise InvalidParameter(f"--top {top} is negative", "set --top to 0 or more")
    info, prediction, found, seconds = _explained(model, config, data, deployment, unknown)
    columns = explanation_columns(info, prediction.ids, prediction.scores, found, top)
    lost, rows = add_status(columns, prediction, unknown), len(found.values)
    found = found.explained  # charts and means are of these
    with writing(out):
        write_scores(out, columns)
    if report is not None:
        with writing(report):
            replace_file(report, explanation_page(info.name, found, meaning(info)).encode())
    importance = dict(zip(found.feature_names, found.importance.tolist(), strict=True))
    told = {
        "out": str(out),
        "report": None if report is None else str(report),
        "rows": rows,
        "columns": list(columns),
        "objective": info.objective,
        "score": meaning(info),
        "classes": info.classes,
        "model": info.name,
        "unknown": lost,
        "features": [
            {"feature": name, "party": party, "mean_absolute_contribution": importance[name]}
            for name, party in zip(found.feature_names, found.parties, strict=True)
        ],
        "seconds": seconds,
    }
    best = sorted(importance, key=lambda name: -importance[name])[:5]
    tell(
        told,
        as_json,
        f"wrote {escape(str(out))}: {rows} rows, explained in {seconds_text(seconds)}",
        *([f"on average the most important: {escape(', '.join(best))}"] if best else []),
        *([] if report is None else [f"wrote {escape(str(report))}"]),
    )


def _explained(
    model: Path, config: Path | None, data: Path, deployment: str | None, unknown: Unknown
) -> tuple[ModelInfo, Prediction | Scored, Explanation, float]:
    """About the model, the scores, their explanation, and how many seconds it took."""
    from veilboost.infer.scores import ModelInfo
    from veilboost.model.joined import join
    from veilboost.model.store import load_model
    from veilboost.party.predicting import Prediction, load_rows
    from veilboost.party.scorer import open_scorer
    from veilboost.party.settings import load_party

    if config is None:
        refuse_deployed(deployment, unknown)
        joined, started = join(load_model(model)), time.monotonic()
        with stage(f"explaining {data}"):
            table = load_rows(data, None, joined.columns)
            found = joined.explain(table.columns)
        active = next(share for share in joined.shares if share.skeleton is not None)
        info = ModelInfo.of(model.resolve().name, active.party, active, joined.skeleton, None)
        made = Prediction(table.ids, joined.skeleton.loss.predict(found.margins), joined.skeleton.classes)
        return info, made, found, time.monotonic() - started
    settings = load_party(config)
    with open_scorer(settings, model, deployment, unknown) as opened:
        with stage(f"reading {data}"):
            table = opened.load(data)
        started = time.monotonic()
        with stage(f"explaining {table.rows} rows"), settings.logging.to_stderr("warning"):
            return opened.info, *opened.explain(table), time.monotonic() - started
