"""`veilboost evaluate`: the quality of a model's scores against known labels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.markup import escape

from veilboost.cli.console import indented, make_table, print_json, stderr, stdout, writing
from veilboost.cli.options import only_file
from veilboost.cli.predict import DeploymentName, UnknownRows, refuse_deployed
from veilboost.errors import InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.report.evaluation import ShownTable

_data: Any = partial(typer.Option, rich_help_panel="Data")
_options: Any = partial(typer.Option, rich_help_panel="Evaluation")
_output: Any = partial(typer.Option, rich_help_panel="Output")


def evaluate(
    scores: Annotated[
        Path | None, _data(metavar="FILE", help="Scores that veilboost predict wrote. Labels come from --data.")
    ] = None,
    model: Annotated[
        Path | None,
        _data(metavar="DIR", help="Instead, predict first: a finished run (with --config) or a saved model."),
    ] = None,
    config: Annotated[
        Path | None,
        _data(
            metavar="FILE",
            help="The settings of the active party of a run, which name the id, the label and the weight.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        _data(
            metavar="FILE",
            help="Rows with labels: parquet, csv or arrow. With a saved model also NAME=FILE for each party; the first "
            "has the labels.",
            show_default="with a run: the rows that it held out for validation",
        ),
    ] = None,
    label: Annotated[str | None, _data(metavar="COLUMN", help="Label column of --data.")] = None,
    id: Annotated[
        str | None, _data(metavar="COLUMN", help="Record-id column.", show_default="the first column of --scores")
    ] = None,
    weight: Annotated[str | None, _data(metavar="COLUMN", help="Sample-weight column of --data.")] = None,
    objective: Annotated[
        str | None,
        _data(
            metavar="NAME",
            help="Of --scores: binary, multiclass or regression.",
            show_default="by the scores and the labels",
        ),
    ] = None,
    deployment: DeploymentName = None,
    unknown: UnknownRows = "error",
    thresholds: Annotated[
        str, _options(metavar="NUMBER,...", help="Thresholds of confusion matrices (binary).")
    ] = "0.5",
    segment: Annotated[
        str | None, _options(metavar="COLUMN", help="Also evaluate the rows of each value of this column of --data.")
    ] = None,
    reference: Annotated[
        Path | None,
        _options(metavar="FILE", help="Scores of other rows, such as training rows, for the stability index."),
    ] = None,
    bootstrap: Annotated[
        int, _options(metavar="NUMBER", help="Bootstrap samples for 95 % intervals of the metrics; 0: no intervals.")
    ] = 0,
    random_state: Annotated[int, _options(help="Seed of the bootstrap samples.")] = 0,
    report: Annotated[
        Path | None, _output(metavar="FILE", help="Write curves and tables as a self-contained HTML page.")
    ] = None,
    as_json: Annotated[
        bool, _output("--json", help="Print one JSON object on stdout, for programs and for veilboost report.")
    ] = False,
) -> None:
    """Evaluate the scores of a model against known labels.

    Binary scores: AUC, Gini, KS, average precision, log loss, Brier score,
    confusion matrices, lift and gain, calibration. Classes: accuracy, F1, log
    loss, Brier score, one-vs-rest AUC, confusion matrix, calibration. Values:
    RMSE, MAE, R2, MAPE, residuals, calibration. Rows without a score or a label
    are left out and counted. If a run is deployed, --unknown skip leaves out
    rows that a party does not know.

    Examples:

        [bold]veilboost evaluate --scores scores.parquet --data labels.parquet --label default --id id[/]

        [bold]veilboost evaluate --model runs/credit --config bank.toml --bootstrap 1000 --report credit.html[/]

        [bold]veilboost evaluate --model model --data all.parquet --label default --segment region --json[/]
    """
    from veilboost.evaluation.evaluate import KINDS
    from veilboost.evaluation.evaluate import evaluate as evaluate_scores
    from veilboost.experiment.scoring import Roles, of_files, of_run, of_saved
    from veilboost.infer.scores import read_scores
    from veilboost.party.settings import load_party
    from veilboost.report.evaluation import shown
    from veilboost.report.pages import evaluation_page

    limits = _numbers(thresholds)
    if objective not in (None, *KINDS):
        raise InvalidParameter(f"--objective {objective} is unknown", f"set --objective to {', '.join(KINDS)}")
    if bootstrap < 0:
        raise InvalidParameter(f"--bootstrap {bootstrap} is negative", "set --bootstrap to 0 or more")
    compared = None if reference is None else read_scores(reference).scores
    if (scores is None) == (model is None):
        raise UnsupportedCombination(
            "give either --scores or --model", "name a score file with --scores, or a run or saved model with --model"
        )
    roles = Roles(id, label, weight, segment)
    if scores is not None:
        _refuse("--scores", {"--config": config})
        refuse_deployed(deployment, unknown)
        scored = of_files(scores, only_file(data), roles, objective)
    elif model is not None and config is None:
        _refuse("--model", {"--objective": objective})
        refuse_deployed(deployment, unknown)
        scored = of_saved(model, data or (), roles)
    else:
        _refuse("--config", {"--label": label, "--id": id, "--weight": weight, "--objective": objective})
        settings = load_party(cast(Path, config))
        stderr().print("predicting with the other parties", soft_wrap=True)
        with settings.logging.to_stderr("warning"):
            rows = only_file(data) if data else None
            scored = of_run(settings, cast(Path, model), rows, segment, deployment, unknown)
    found = evaluate_scores(
        scored,
        thresholds=limits,
        reference=compared,
        segment_column=segment,
        bootstrap=bootstrap,
        random_state=random_state,
    ).to_dict()
    if report is not None:
        with writing(report):
            report.write_text(evaluation_page(f"Evaluation of {(scores or model or report).name}", found), "utf-8")
    if as_json:
        print_json(found | {"page": None if report is None else str(report)})
        return
    content, console = shown(found), stdout()
    for line in content.lines:
        console.print(escape(line), soft_wrap=True)
    for table in (content.metrics, *content.tables):
        _print(console, table)
    if report is not None:
        console.print(f"\nwrote {escape(str(report))}", soft_wrap=True)


def _refuse(mode: str, options: Mapping[str, object]) -> None:
    """Refuse options that another mode reads."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise UnsupportedCombination(f"{', '.join(given)} cannot be used with {mode}", f"remove {', '.join(given)}")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameter(
            f"--thresholds {text} is not a list of numbers", "write numbers with commas, such as 0.1,0.3"
        ) from None


def _print(console: Console, found: ShownTable) -> None:
    console.print(f"\n[bold]{escape(found.caption)}[/]\n")
    table = make_table(*map(escape, found.headers), numbers=[escape(header) for header in found.headers[1:]])
    for row in found.rows:
        table.add_row(*map(escape, row))
    indented(console, table)
