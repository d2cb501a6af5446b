"""`veilboost predict`, `serve` and `user`: predict with the other parties, over HTTP, or on encrypted rows."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, seconds_text, stderr, tell, writing
from veilboost.cli.options import only_file
from veilboost.errors import InvalidParameter, MissingExtra, UnreadableFile, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.types import AnyArray

user = command_group()

Model = Annotated[Path, typer.Option("--model", metavar="RUN", help="The run folder of a finished job.")]
Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The settings of this party.")]
Own = Annotated[Path, typer.Option("--config", metavar="FILE", help="Your own settings: name, certificates, peers.")]
Run = Annotated[str, typer.Option("--run", metavar="NAME", help="The run whose model is served.")]
Authority = Annotated[
    str, typer.Option("--authority", metavar="PARTY", help="The authority, which numbers the attributes.")
]

DeploymentName = Annotated[
    str | None,
    typer.Option(
        "--deployment",
        metavar="NAME",
        help="Deployment to use.",
        show_default="the newest one of the run; without one, none",
    ),
]
UnknownRows = Annotated[
    Literal["error", "skip", "default"],
    typer.Option("--unknown", metavar="WHAT", help="Rows that a party does not know: error, skip or default."),
]


def predict(
    model: Annotated[
        Path, typer.Option(metavar="DIR", help="The run folder of a finished job, or a model that --save wrote.")
    ],
    data: Annotated[
        list[str],
        typer.Option(
            metavar="FILE", help="New rows: parquet, csv or arrow. With a saved model also NAME=FILE for each party."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file for the scores: .parquet, .csv or .arrow.")],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The settings of this party.", show_default="--model is a saved model"),
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Record-id column, for a saved model: it stores none.")
    ] = None,
    deployment: DeploymentName = None,
    unknown: UnknownRows = "error",
    as_json: AsJson = False,
) -> None:
    """Predict new rows, together with the other parties or with a saved model.

    Run this at the active party of a finished job. --data has the id column and
    the feature columns of training; the label is optional. The other parties
    look up the same records in their own tables, so their daemons must run and
    their tables must contain all these records. They learn which of their rows
    are requested.

    If the run is deployed (veilboost deploy), this takes milliseconds, and rows
    may be unknown to a party: --unknown skip gives them no score, default lets
    them go the way of missing values there. The output then has a column
    status.

    After a horizontal job the server and every participant have the full model:
    each predicts its own rows locally, without the other parties.

    Without --config, --model holds the shares of all parties, as simulate --save
    writes them, and no other party is asked.

    Examples:

        [bold]veilboost predict --model runs/credit --config bank.toml --data new.parquet --out scores.parquet[/]

        [bold]veilboost predict --model model --id id --data bank=b.csv --data shop=s.csv --out scores.csv[/]
    """
    from veilboost.experiment.saved import SavedPredictor
    from veilboost.infer.scores import check_ending, meaning, score_columns, write_scores
    from veilboost.party.predicting import names_of
    from veilboost.party.scorer import open_scorer
    from veilboost.party.settings import load_party

    # Validate locally first: requests to other parties count against their daily limit.
    check_ending(out)
    check_place(data, out)
    started = time.monotonic()
    if config is None:
        refuse_deployed(deployment, unknown)
        saved = SavedPredictor(model, id)
        info, others, rows = saved.info, str(model), saved.load(data)
        if rows.unknown:
            stderr().print(f"{rows.unknown} of {rows.rows} rows are not in every file: they get no score")
        found = saved.predict(rows)
    else:
        file, settings = only_file(data), load_party(config)
        with open_scorer(settings, model, deployment, unknown) as opened:
            info = opened.info
            with stage(f"reading {file}"):
                rows = opened.load(file)
            others = names_of([name for name in info.parties if name != info.party] or [info.party])
            started = time.monotonic()
            with stage(f"predicting {rows.rows} rows with {others}"), settings.logging.to_stderr("warning"):
                found = opened.predict(rows)
    seconds = time.monotonic() - started
    columns = score_columns(info, found.ids, found.scores)
    lost = add_status(columns, found, unknown)
    with writing(out):
        write_scores(out, columns)
    told = {
        "out": str(out),
        "rows": rows.rows,
        "columns": list(columns),
        "objective": info.objective,
        "score": meaning(info),
        "classes": info.classes,
        "model": info.name,
        "parties": info.parties,
        "unknown": lost,
        "seconds": seconds,
    }
    tell(
        told,
        as_json,
        f"wrote {escape(str(out))}: {rows.rows} rows, predicted with {escape(others)} in {seconds_text(seconds)}",
        f"columns {escape(', '.join(columns))}; a score is {escape(meaning(info))}",
    )


def refuse_deployed(deployment: str | None, unknown: str) -> None:
    """Refuse the options of a deployed run for a saved model."""
    if deployment is not None or unknown != "error":
        raise UnsupportedCombination(
            "--deployment and --unknown are of a deployed run", "give the settings of this party with --config"
        )


def add_status(columns: dict[str, AnyArray], found: object, unknown: str) -> int:
    """Add the column status, if rows may be unknown to a party. Returns the number of those that are."""
    import numpy as np

    from veilboost.infer.scores import add_column
    from veilboost.party.deployments import KNOWN, Scored

    if unknown == "error" or not isinstance(found, Scored):
        return 0
    add_column(columns, "status", np.array(found.status))
    return sum(each != KNOWN for each in found.status)


def check_place(data: Sequence[str], out: Path) -> None:
    """Raise unless --out can be written and is not --data."""
    if not out.parent.is_dir():
        raise UnreadableFile(
            f"the folder {str(out.parent)!r} of --out does not exist", "create it, or give another --out"
        )
    if out.is_dir():
        raise UnreadableFile(f"--out {str(out)!r} is a folder", "give a file: .parquet, .csv or .arrow")
    files = [Path(each if Path(each).exists() else each.partition("=")[2]) for each in data]
    if out.exists() and any(file.exists() and out.samefile(file) for file in files):
        raise InvalidParameter("--out would overwrite --data", "give another file as --out")


@contextmanager
def stage(text: str) -> Generator[None]:
    """Report the current step on stderr: as a spinner on a terminal, otherwise as a line."""
    console = stderr()
    if console.is_terminal:
        with console.status(escape(text)):
            yield
    else:
        console.print(escape(text), soft_wrap=True)
        yield


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder of a job that is deployed.")],
    config: Config,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0: any free port.")
    ] = "127.0.0.1:8080",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Accept only requests with the bearer token in this file (mode 0600).",
            show_default="accept all requests",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of the service, as PEM.", show_default="plain HTTP")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key (mode 0600).")] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Accept only clients with a certificate of this authority.",
            show_default="accept all clients",
        ),
    ] = None,
    max_rows: Annotated[int, typer.Option(help="Maximum number of rows of a request.")] = 1000,
    max_body_mb: Annotated[int, typer.Option(help="Maximum size of a request, in megabytes.")] = 8,
    max_per_minute: Annotated[int, typer.Option(help="Maximum number of requests of one client in a minute.")] = 600,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
) -> None:
    """Serve the scores of a deployed model, and their reasons, as JSON over HTTP.

    Run this at the active party after veilboost deploy, while the daemons of
    the other parties run. Concurrent requests are combined into one joint
    prediction. If a party is down, requests get status 503 until it is back.

    By default it listens on this machine only. On any other address it needs
    a token (--token-file) or certificates of its clients (--client-ca), and
    should have TLS (--tls-cert, --tls-key).

    POST /v1/predict, POST /v1/explain, GET /v1/model, /healthz, /metrics,
    /openapi.json; / lists them. Rows and ids are never logged.
    Needs: pip install 'veilboost\\[serve]'.

    Examples:

        [bold]veilboost serve runs/credit --config bank.toml[/]

        [bold]veilboost serve runs/credit --config bank.toml --token-file token[/]
    """
    numbers = {"--max-rows": max_rows, "--max-body-mb": max_body_mb, "--max-per-minute": max_per_minute}
    for option, value in numbers.items():
        if value < 1:
            raise InvalidParameter(f"{option} {value} is less than 1", f"set {option} to 1 or more")
    try:
        from veilboost.service.app import ServiceLimits, make_app
        from veilboost.service.guard import read_token
        from veilboost.service.server import check_exposure, is_loopback, parse_address, run_server, tls_options
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("veilboost"):
            raise
        raise MissingExtra(f"veilboost serve needs {error.name}", "run pip install 'veilboost[serve]'") from None
    from veilboost.logs import EventLogger
    from veilboost.party.deployments import open_deployment
    from veilboost.party.settings import load_party

    host, port = parse_address(listen)
    tls = tls_options(tls_cert, tls_key, client_ca)
    token = None if token_file is None else read_token(token_file)
    check_exposure(host, token, tls)
    settings = load_party(config)
    console = stderr()
    if tls is None and not is_loopback(host):
        console.print(
            f"warning: other machines can reach {escape(host)}, and this is plain HTTP without TLS", soft_wrap=True
        )

    requests = EventLogger("veilboost.service")

    with open_deployment(settings, run) as deployment, settings.logging.to_stderr():
        name = deployment.info.name

        def log(line: str) -> None:
            if not quiet:
                requests.info("request", line, job=name)

        limits = ServiceLimits(max_rows, max_body_mb << 20, per_minute=max_per_minute)
        app = make_app(deployment, limits=limits, token=token, log=log)
        run_server(
            app, host, port, lambda where: console.print(f"serving {escape(name)} on {where}", soft_wrap=True), tls
        )


@user.callback()
def about() -> None:
    """Publish an encrypted model for users, or predict your own encrypted rows as a user.

    Examples:

        [bold]veilboost user publish --config bank.toml --run loan --authority ta --csp csp[/]

        [bold]veilboost user predict --config u.toml --run loan --active bank --authority ta --data x.csv --out s.csv[/]
    """


@user.command()
def publish(
    config: Own,
    run: Run,
    authority: Authority,
    csp: Annotated[
        str, typer.Option(metavar="PARTY", help="The csp, which holds the secret key and decides directions.")
    ],
    scheme: Annotated[
        str, typer.Option(metavar="NAME", help="Encryption scheme: paillier (as published) or lattice.")
    ] = "paillier",
    as_json: AsJson = False,
) -> None:
    """Encrypt a finished model to serve users. Run this at its active party.

    The other parties, the authority and the CSP must run, with their addresses
    under \\[peers] in your settings. Afterwards only the authority, the CSP and
    your own `veilboost party serve` are needed.

    Examples:

        [bold]veilboost user publish --config bank.toml --run loan --authority ta --csp csp --scheme lattice[/]
    """
    from veilboost.party.settings import load_party
    from veilboost.secure_inference.client import publish as publish_model

    started = time.monotonic()
    known = publish_model(
        load_party(config), run, authority, csp, scheme, lambda text: stderr().print(escape(text), soft_wrap=True)
    )
    seconds = time.monotonic() - started
    told = {"run": run, "scheme": known.scheme, "numbers": known.directory.size, "seconds": seconds}
    what = f"{known.directory.size} serial numbers, {known.scheme}, in {seconds_text(seconds)}"
    tell(told, as_json, f"published {escape(run)} for users: {what}")


@user.command()
def withdraw(
    config: Own,
    run: Run,
    authority: Authority,
    csp: Annotated[str, typer.Option(metavar="PARTY", help="The csp, which holds the secret key.")],
    as_json: AsJson = False,
) -> None:
    """End a published service. Run this at the active party of its model.

    The encrypted model is removed here, and its keys at the authority and the
    CSP. If one of them cannot be reached, run the command again. Publish the
    model again to serve it with new keys.

    Examples:

        [bold]veilboost user withdraw --config bank.toml --run loan --authority ta --csp csp[/]
    """
    from veilboost.party.settings import load_party
    from veilboost.secure_inference.client import withdraw as withdraw_service

    withdraw_service(load_party(config), run, authority, csp)
    tell({"run": run, "withdrawn": True}, as_json, f"{escape(run)} is served to users no longer")


@user.command("predict")
def predict_encrypted(
    config: Own,
    run: Run,
    active: Annotated[str, typer.Option(metavar="PARTY", help="The party that has the model.")],
    authority: Authority,
    data: Annotated[Path, typer.Option(metavar="FILE", help="Your rows: parquet, csv or arrow.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Output file for the scores: .parquet, .csv or .arrow.")],
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of --data to copy to the output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict your own rows. They are encrypted before they leave this machine.

    Neither the party that has the model nor the CSP learns your values. The
    party that has the model learns whether a row goes left or right at its
    nodes, and its score.

    Examples:

        [bold]veilboost user predict --config u.toml --run loan --active bank --authority ta --data x.csv --out s.csv[/]
    """
    from veilboost.infer.scores import check_ending, write_scores
    from veilboost.party.settings import load_party
    from veilboost.secure_inference.client import predict_own_rows

    check_ending(out)
    started = time.monotonic()
    table, scores = predict_own_rows(load_party(config), run, active, authority, data, id)
    seconds = time.monotonic() - started
    names = ["score"] if scores.shape[1] == 1 else [f"score {k}" for k in range(scores.shape[1])]
    with writing(out):
        write_scores(out, {id or "row": table.ids, **{name: scores[:, k] for k, name in enumerate(names)}})
    told = {"out": str(out), "rows": table.rows, "columns": names, "seconds": seconds}
    tell(told, as_json, f"wrote {escape(str(out))}: {table.rows} rows in {seconds_text(seconds)}")
