"""`veilboost privacy`: noise for a budget, and what a run has spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, make_table, print_json, stdout
from veilboost.cli.options import named_values
from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter, UnsupportedCombination

privacy = command_group()

ACTIVE, PASSIVE, SIZE = "The active party's budget", "A passive party's budget", "Size of the job"
_USUAL = TrainingConfig()


@privacy.callback()
def about() -> None:
    """Find the noise for a privacy budget, and see what a run has spent.

    Examples:

        [bold]veilboost privacy calibrate --protocol masked --eps-ap 4 --delta-ap 1e-3 --rows 24000[/]

        [bold]veilboost privacy spent runs/credit[/]
    """


@privacy.command()
def calibrate(
    protocol: Annotated[str, typer.Option("--protocol", metavar="NAME", help="A protocol with noise.")],
    rows: Annotated[int, typer.Option("--rows", help="Rows to train on.", rich_help_panel=SIZE)],
    eps_ap: Annotated[float | None, typer.Option("--eps-ap", help="Epsilon.", rich_help_panel=ACTIVE)] = None,
    delta_ap: Annotated[float | None, typer.Option("--delta-ap", help="Delta.", rich_help_panel=ACTIVE)] = None,
    eps_pp: Annotated[float | None, typer.Option("--eps-pp", help="Epsilon.", rich_help_panel=PASSIVE)] = None,
    delta_pp: Annotated[float | None, typer.Option("--delta-pp", help="Delta.", rich_help_panel=PASSIVE)] = None,
    guess: Annotated[
        float | None,
        typer.Option("--guess", help="Probability of guessing a label by one tree (elxgb).", rich_help_panel=ACTIVE),
    ] = None,
    features: Annotated[int, typer.Option("--features", help="Columns of a passive party.", rich_help_panel=SIZE)] = 10,
    bins: Annotated[int, typer.Option("--bins", help="Bins of a column.", rich_help_panel=SIZE)] = _USUAL.max_bin,
    trees: Annotated[int, typer.Option("--trees", help="Boosting rounds.", rich_help_panel=SIZE)] = _USUAL.n_estimators,
    depth: Annotated[int, typer.Option("--depth", help="Levels of a tree.", rich_help_panel=SIZE)] = _USUAL.max_depth,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the protocol, set by hand; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Turn budgets into the options of a protocol.

    An epsilon is for the whole job, composed over its releases, unless the
    protocol says otherwise.

    Example:

        [bold]veilboost privacy calibrate --protocol masked --eps-ap 4 --delta-ap 1e-3 --eps-pp 1 --rows 24000[/]
    """
    from veilboost.privacy.calibrate import CalibrationRequest
    from veilboost.protocols.registry import protocol_named

    spec = protocol_named(protocol)
    request = CalibrationRequest(
        rows=rows,
        features=features,
        bins=bins,
        trees=trees,
        depth=depth,
        epsilon_active=eps_ap,
        delta_active=delta_ap,
        epsilon_passive=eps_pp,
        delta_passive=delta_pp,
        guess=guess,
        options=named_values(option),
    )
    if spec.calibrate is None:
        raise UnsupportedCombination(
            f"the protocol {protocol} has no noise to calibrate",
            "`veilboost protocols` tells whom each protects, and how",
        )
    found = spec.calibrate(request)
    if as_json:
        print_json({**found, "protocol": protocol, "request": vars(request)})
        return
    table = make_table("", "")
    table.show_header = False
    for name, value in found.items():
        table.add_row(f"[bold]{escape(name)}[/]", escape(f"{value:.6g}" if isinstance(value, float) else str(value)))
    stdout().print(table)


@privacy.command()
def spent(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, at any party.")],
    delta: Annotated[
        float | None, typer.Option("--delta", help="Compose at this delta.", show_default="the policy's")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a party released in a run, and what that costs.

    Two accountings stand side by side: what the protocol's paper claims for
    each release, and what all releases cost together, with the change of the
    data that is hidden and from whom.

    Example:

        [bold]veilboost privacy spent runs/credit --json[/]
    """
    from veilboost.cli.summary import print_spending
    from veilboost.errors import UnknownRun
    from veilboost.party.runs import RunFolder
    from veilboost.privacy.accountant import spending
    from veilboost.privacy.calibrate import check_delta
    from veilboost.privacy.event import event_from_dict

    if delta is not None:
        check_delta(delta, "--delta")
    kept = RunFolder(run).ledger
    try:
        events = [event_from_dict(fields) for fields in kept["events"]]
        told = {"party": kept["party"], "job": kept["job"], "run": str(run)}
        told |= spending(events, float(kept["delta"]) if delta is None else delta)
    except (ImpossibleParameter, KeyError, TypeError) as error:
        raise UnknownRun(f"the ledger of {run} is damaged", "`veilboost ledger show` reads the party's own") from error
    if as_json:
        print_json(told)
        return
    console = stdout()
    console.print(f"[bold]What {escape(told['party'])} spent[/] in {escape(told['job'])}", soft_wrap=True)
    print_spending(console, told)
