"""`veilboost serve`: the joint model as an HTTP service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import stderr
from veilboost.cli.predict import Config, Model
from veilboost.errors import ImpossibleParameter, MissingExtra, UnsupportedCombination

HEALTH_AGE, HEALTH_SECONDS = 10.0, 2.0  # how old an answer of /healthz may be, and how long it may take
CALL_SECONDS = 3.0  # how long a prediction waits for a party that is away


def serve(
    model: Model,
    config: Config,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is any free one.")
    ] = "127.0.0.1:8080",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Let in only requests that bear the token in this file (mode 0600).",
            show_default="let in all",
        ),
    ] = None,
    max_rows: Annotated[int, typer.Option("--max-rows", help="Most rows of a request.")] = 1000,
    max_body_mb: Annotated[int, typer.Option("--max-body-mb", help="Largest request, in megabytes.")] = 8,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not write a line per request.")] = False,
) -> None:
    """Serve predictions over HTTP with JSON.

    Run by the active party of a finished job, while the daemons of the other
    parties run. Requests that come at the same time share one joint prediction.

    Listens on this machine only unless told otherwise, and speaks plain HTTP:
    TLS and the authentication of users are the job of whoever puts it on a
    network (a reverse proxy). --token-file is for programs on a network you trust.

    POST /v1/predict, GET /v1/model, /healthz, /metrics, /openapi.json; / lists
    them. Neither rows nor ids are ever logged. Needs: pip install 'veilboost[serve]'.

    Examples:

        [bold]veilboost serve --model runs/credit --config bank.toml[/]

        [bold]veilboost serve --model runs/credit --config bank.toml --token-file token[/]
    """
    for option, value in (("--max-rows", max_rows), ("--max-body-mb", max_body_mb)):
        if value < 1:
            raise ImpossibleParameter(f"{option} {value} is less than 1")
    try:
        from veilboost.service.app import ServiceLimits, make_app
        from veilboost.service.guard import read_token
        from veilboost.service.server import is_loopback, parse_address, run_server
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("veilboost"):
            raise
        raise MissingExtra(f"the service needs {error.name}", "pip install 'veilboost[serve]'") from None
    from veilboost.party.predicting import LivePredictor, open_predictor
    from veilboost.party.settings import load_party

    host, port = parse_address(listen)
    token = None if token_file is None else read_token(token_file)
    opened = open_predictor(load_party(config), model)
    if not isinstance(opened, LivePredictor):
        raise UnsupportedCombination(
            "the model of a job over rows in different hands is whole, and needs no parties to predict with",
            "use veilboost predict, or veilboost export for XGBoost",
        )
    if opened.job.alignment == "preshared":  # single rows find each other by their ids
        raise UnsupportedCombination(
            f"the run {opened.info.name!r} has alignment = 'preshared', which knows no single rows",
            "train with another alignment",
        )
    console = stderr()
    if not is_loopback(host):
        console.print(
            f"warning: {escape(host)} can be reached by other machines, and this is plain HTTP", soft_wrap=True
        )

    def log(line: str) -> None:
        if not quiet:
            console.print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {escape(line)}", soft_wrap=True)

    app = make_app(
        opened.info,
        lambda table: opened.predict(table, CALL_SECONDS),
        lambda: opened.presence(HEALTH_SECONDS, HEALTH_AGE),
        limits=ServiceLimits(max_rows, max_body_mb << 20),
        token=token,
        log=log,
    )
    run_server(
        app,
        host,
        port,
        lambda where: console.print(f"serving {escape(opened.info.name)} on {where}", soft_wrap=True),
    )
