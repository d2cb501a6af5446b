"""`veilboost deploy`, `undeploy` and `deployments`: keep a model ready to score rows at any time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_pairs, make_table, print_json, seconds_text, stdout, tell
from veilboost.cli.party import Config

if TYPE_CHECKING:
    from veilboost.party.deployment_folder import DeploymentFolder

deployments = command_group()
_SHOWN = 10  # ids of a request
Deployed = Annotated[str, typer.Argument(metavar="NAME", help="The name of the deployment, or its id.")]
Version = Annotated[
    int | None, typer.Option("--version", metavar="NUMBER", help="The version.", show_default="the newest one")
]


def deploy(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder of a finished job.")],
    config: Config,
    days: Annotated[float, typer.Option(metavar="DAYS", help="Lifetime of the deployment.")] = 90.0,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the deployment.", show_default="the name of the run")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep a model deployed with the other parties, to score rows in milliseconds.

    Run this at the active party of a finished vertical job. Every other party
    loads its share of the model and its table once, if its policy lists you
    under deploy_to. The ids of your table are matched with theirs now; later
    only new ids are.

    If there is a deployment of this name, this is its next version. Earlier
    versions answer until you withdraw them.

    Examples:

        [bold]veilboost deploy runs/credit --config bank.toml --days 30[/]
    """
    from veilboost.party.deployments import deploy as deploy_run
    from veilboost.party.settings import load_party

    settings, started = load_party(config), time.monotonic()
    with settings.logging.to_stderr("warning"), deploy_run(settings, run, days, name) as made:
        told, rows, seconds = made.folder.about(), made.known_rows(), time.monotonic() - started
    tell(
        {**told, "rows": rows, "seconds": seconds},
        as_json,
        f"deployed {escape(made.status.label)} until {told['until']}, in {seconds_text(seconds)}",
        f"with {escape(', '.join(f'{party} ({number} rows)' for party, number in rows.items()))}",
    )


@deployments.callback()
def about_deployments() -> None:
    """List, show, re-key and withdraw the deployments of a party; read who asked for which rows.

    Examples:

        [bold]veilboost deployments list --config shop.toml[/]

        [bold]veilboost deployments withdraw credit --config shop.toml[/]
    """


@deployments.command("list")
def list_(config: Config, as_json: AsJson = False) -> None:
    """List the deployments of a party, newest first.

    Examples:

        [bold]veilboost deployments list --config bank.toml[/]
    """
    from veilboost.party.deployment_folder import list_deployments
    from veilboost.party.settings import load_party

    settings = load_party(config)
    with settings.logging.to_stderr("warning"):
        found = [each.about() for each in list_deployments(settings)]
    if as_json:
        print_json({"party": settings.name, "deployments": found})
        return
    if not found:
        stdout().print(f"{escape(settings.name)} has no deployments", soft_wrap=True)
        return
    table = make_table("deployment", "version", "state", "run", "active party", "until", numbers=("version",))
    for each in found:
        shown = (each["name"], each["version"], each["state"], each["run"], each["active"], each["until"])
        table.add_row(*(escape(str(text)) for text in shown))
    stdout().print(table)


@deployments.command()
def show(name: Deployed, config: Config, version: Version = None, as_json: AsJson = False) -> None:
    """Show a deployment: its state, its lifetime, and how much was asked.

    Examples:

        [bold]veilboost deployments show credit --config shop.toml[/]
    """
    from veilboost.party.deployed import asked_by_day

    folder = _find(name, config, version)
    told, asked = {**folder.about(), "folder": str(folder.path)}, asked_by_day(folder)
    if as_json:
        print_json({**told, "asked": asked})
        return
    stdout().print(
        make_pairs({key: str(value) for key, value in told.items()} | {"parties": ", ".join(told["parties"])})
    )
    if asked:
        table = make_table("day", "peer", "what", "requests", "rows", numbers=("requests", "rows"))
        for each in asked:
            table.add_row(*(escape(str(value)) for value in each.values()))
        stdout().print()
        stdout().print(table)


@deployments.command()
def trail(
    name: Deployed,
    config: Config,
    version: Version = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Only requests for the row with this id.", show_default="all"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print who asked for which of your rows, and when. Run this at a passive party.

    The trail stores slots, not ids. They are matched with the ids of your table
    by the key of the deployment, which is removed when the deployment ends:
    from then on, and for rows that you have removed, only slots are printed.
    Of a request for many rows, only --json prints all ids.

    Examples:

        [bold]veilboost deployments trail credit --config shop.toml --id c00042[/]
    """
    from veilboost.party.deployed import read_trail
    from veilboost.party.runs import date_text
    from veilboost.party.settings import load_party

    found = read_trail(load_party(config), _find(name, config, version), id)
    if as_json:
        print_json({"trail": found})
        return
    table = make_table("when", "peer", "what", "rows", "ids", numbers=("rows",))
    for each in found:
        every: list[str] = list(map(str, each.get("ids", ())))
        ids = ", ".join([*every[:_SHOWN], *([f"{len(every) - _SHOWN} more"] if len(every) > _SHOWN else [])])
        table.add_row(date_text(each["when"]), escape(each["peer"]), each["what"], str(each["rows"]), escape(ids))
    stdout().print(table)


@deployments.command()
def rekey(name: Deployed, config: Config, version: Version = None, as_json: AsJson = False) -> None:
    """Give a deployment new keys and new slots. Run this at the active party.

    The ids are matched again. Services that use the deployment go on with the
    new keys by themselves.

    Examples:

        [bold]veilboost deployments rekey credit --config bank.toml[/]
    """
    from veilboost.party.deployments import rekey as rekey_deployment
    from veilboost.party.settings import load_party

    settings = load_party(config)
    with rekey_deployment(settings, _find(name, config, version, live=True)) as made:
        tell(made.folder.about(), as_json, f"{escape(made.status.label)} has new keys")


@deployments.command()
def withdraw(name: Deployed, config: Config, version: Version = None, as_json: AsJson = False) -> None:
    """End a deployment, at the active party for all parties, at any other party for itself.

    The key and the index of ids are removed. The trail and the entries in the
    ledger stay. veilboost undeploy does the same.

    Examples:

        [bold]veilboost deployments withdraw credit --config shop.toml[/]
    """
    from veilboost.party.deployments import withdraw as withdraw_deployment
    from veilboost.party.settings import load_party

    folder = _find(name, config, version)
    untold = withdraw_deployment(load_party(config), folder)
    lines = [f"{escape(folder.status.label)} is {folder.status.now}"]
    if untold:
        lines.append(f"not reached: {escape(', '.join(untold))}; run the command again when they are there")
    tell({**folder.about(), "not_reached": untold}, as_json, *lines)


def undeploy(name: Deployed, config: Config, version: Version = None, as_json: AsJson = False) -> None:
    """End a deployment: short for veilboost deployments withdraw.

    Examples:

        [bold]veilboost undeploy credit --config bank.toml[/]
    """
    withdraw(name, config, version, as_json)


def _find(name: str, config: Path, version: int | None, *, live: bool = False) -> DeploymentFolder:
    from veilboost.party.deployment_folder import find_deployment
    from veilboost.party.settings import load_party

    return find_deployment(load_party(config), name, version, live=live)
