"""The command `veilboost`."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any, NoReturn, cast

import typer

from veilboost.cli.approvals import approve, proposals, refuse
from veilboost.cli.certs import certs
from veilboost.cli.data import data
from veilboost.cli.demo import demo
from veilboost.cli.deployments import deploy, deployments, undeploy
from veilboost.cli.evaluate import evaluate
from veilboost.cli.explain import explain
from veilboost.cli.init import init
from veilboost.cli.inspect import export, inspect
from veilboost.cli.lists import datasets, protocols
from veilboost.cli.party import jobs, party
from veilboost.cli.plan import plan
from veilboost.cli.predict import predict, serve, user
from veilboost.cli.privacy import ledger, privacy
from veilboost.cli.runs import audit, report, transcript
from veilboost.cli.simulate import simulate
from veilboost.cli.train import check, prepare, train
from veilboost.cli.upkeep import forget
from veilboost.cli.usage import UsageError, coded
from veilboost.cli.web import console
from veilboost.errors import InvalidParameter, VeilBoostError

REFUSED = 2

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    # Local variables in a traceback could hold data.
    pretty_exceptions_show_locals=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"veilboost {version('veilboost')}")
        raise typer.Exit


@app.callback()
def veilboost(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Gradient-boosted trees across organisations that may not pool their data.

    Simulate a federation of a bank, a shop and a telecom in one process:

        [bold]veilboost simulate --demo-data[/]

    Run the same three parties as separate processes over mutual TLS:

        [bold]veilboost demo[/]
    """


for _command in (
    demo,
    simulate,
    prepare,
    train,
    predict,
    evaluate,
    deploy,
    undeploy,
    explain,
    serve,
    check,
    transcript,
    audit,
    report,
    plan,
    protocols,
    inspect,
    export,
    datasets,
    forget,
):
    app.command()(_command)
for _command in (proposals, approve, refuse):
    jobs.command()(_command)
for _name, _group in (
    ("data", data),
    ("party", party),
    ("deployments", deployments),
    ("user", user),
    ("jobs", jobs),
    ("console", console),
    ("privacy", privacy),
    ("ledger", ledger),
    ("certs", certs),
    ("init", init),
):
    app.add_typer(_group, name=_name)


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def elxgb() -> None:
    """Renamed to `veilboost prepare`."""
    raise InvalidParameter(
        "`veilboost elxgb prepare` was renamed to `veilboost prepare`", "run veilboost prepare JOB --config FILE"
    )


@app.command(hidden=True, add_help_option=False, context_settings={"ignore_unknown_options": True})
def reproduce(_: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Moved to `python -m papers`."""
    raise InvalidParameter("`veilboost reproduce` was moved to `python -m papers`", "run it in a checkout")


def run() -> None:
    """The entry point. A user error prints one coded line on stderr and exits with 2; it never prints a traceback."""
    try:
        sys.exit(app(standalone_mode=False, prog_name="veilboost"))
    except VeilBoostError as error:
        _refuse(error)
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a command group without a command shows its help
            cast(Any, error).show()
            sys.exit(REFUSED)
        _refuse(coded(error))
    except typer.Abort:
        sys.stderr.write("aborted\n")
        sys.exit(1)


def _refuse(error: VeilBoostError) -> NoReturn:
    sys.stderr.write(" ".join(str(error).split()) + "\n")
    sys.exit(REFUSED)
