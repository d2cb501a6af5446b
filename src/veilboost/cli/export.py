"""`veilboost export`: a joint model as a plain XGBoost file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, tell, writing


def export(
    model: Annotated[
        Path,
        typer.Argument(
            help="A folder that --save wrote, with the parts of all parties, or the run of a job over rows in "
            "different hands, whose model is whole."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="The XGBoost JSON file to write.")],
    as_json: AsJson = False,
) -> None:
    """Write a model as a plain XGBoost file.

    The file holds the columns, cuts and categories of all parties: export only
    where all owners consent. XGBoost itself need not be installed.

    Examples:

        [bold]veilboost export model --to xgboost.json[/]

        [bold]python -c "import xgboost; xgboost.Booster(model_file='xgboost.json')"[/]
    """
    from veilboost.model.export import export_xgboost
    from veilboost.model.joined import join
    from veilboost.model.store import load_parts

    joined = join(load_parts(model))
    with writing(to):
        export_xgboost(joined, to)
    told = {"file": str(to), "trees": len(joined.trees), "model_sha256": joined.sha256()}
    tell(told, as_json, f"wrote {escape(str(to))}: {len(joined.trees)} trees")
