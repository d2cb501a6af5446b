"""`veilboost user`: predictions from an encrypted row, and the service that gives them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, seconds_text, stderr, tell, writing

user = command_group()

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Your own settings: name, certificates, peers.")]
Run = Annotated[str, typer.Option("--run", metavar="NAME", help="The run whose model is served.")]
Authority = Annotated[str, typer.Option("--authority", metavar="PARTY", help="Who numbers the attributes.")]


@user.callback()
def about() -> None:
    """Let users predict with rows that nobody can read, and be such a user.

    Examples:

        [bold]veilboost user publish --config bank.toml --run loan --authority ta --csp csp[/]

        [bold]veilboost user predict --config u.toml --run loan --active bank --authority ta --data x.csv --out s.csv[/]
    """


@user.command()
def publish(
    config: Config,
    run: Run,
    authority: Authority,
    csp: Annotated[str, typer.Option(metavar="PARTY", help="Who decides directions, with the secret key.")],
    scheme: Annotated[
        str, typer.Option(metavar="NAME", help="Encryption: paillier (as published) or lattice.")
    ] = "paillier",
    as_json: AsJson = False,
) -> None:
    """Encrypt a finished model so that users can be served, as its active party.

    The other parties, the authority and the CSP must be up, with addresses
    under [peers] of your file. Once this is done, only authority, CSP and
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
    tell(told, as_json, f"users can ask for {escape(run)}: {what}")


@user.command()
def predict(
    config: Config,
    run: Run,
    active: Annotated[str, typer.Option(metavar="PARTY", help="Who has the model.")],
    authority: Authority,
    data: Annotated[Path, typer.Option(metavar="FILE", help="Your rows: parquet, csv or arrow.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The scores to write: .parquet or .csv.")],
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of --data to keep beside scores.")] = None,
    as_json: AsJson = False,
) -> None:
    """Predict your own rows; they are encrypted before they leave this machine.

    Neither who has the model nor the CSP learns your values. The one who has
    the model learns which side of its nodes you are on, and your score.

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
