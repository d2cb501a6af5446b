"""`veilboost privacy` and `veilboost ledger`: calibrate noise, and show what a run or all jobs have spent."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import (
    AsJson,
    command_group,
    epsilon_text,
    indented,
    make_pairs,
    make_table,
    print_json,
    stdout,
    tell,
    writing,
)
from veilboost.cli.options import named_values, whole_rows
from veilboost.config import TrainingConfig
from veilboost.errors import DamagedLedger, InvalidParameter, UnknownRun, UnreadableFile, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.party.policy import Policy
    from veilboost.privacy.ledger import Ledger

privacy, ledger = command_group(), command_group()

ACTIVE, PASSIVE, SIZE = "The active party's budget", "A passive party's budget", "Size of the job"
_USUAL = TrainingConfig()
Party = Annotated[
    Path | None,
    typer.Option("--party", "--config", metavar="FILE", help="The settings of the party, which name its ledger."),
]
File = Annotated[Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger file.")]


@privacy.callback()
def about() -> None:
    """Calibrate the noise for a privacy budget, and show what a run has spent.

    Examples:

        [bold]veilboost privacy calibrate --protocol masked --eps-ap 4 --delta-ap 1e-3 --rows 24000[/]

        [bold]veilboost privacy spent runs/credit[/]
    """


@privacy.command()
def calibrate(
    protocol: Annotated[str, typer.Option(metavar="NAME", help="A protocol with noise.")],
    rows: Annotated[float, typer.Option(help="Number of training rows, e.g. 24000 or 1e7.", rich_help_panel=SIZE)],
    eps_ap: Annotated[float | None, typer.Option(help="Epsilon.", rich_help_panel=ACTIVE)] = None,
    delta_ap: Annotated[float | None, typer.Option(help="Delta.", rich_help_panel=ACTIVE)] = None,
    eps_pp: Annotated[float | None, typer.Option(help="Epsilon.", rich_help_panel=PASSIVE)] = None,
    delta_pp: Annotated[float | None, typer.Option(help="Delta.", rich_help_panel=PASSIVE)] = None,
    guess: Annotated[
        float | None,
        typer.Option(help="Probability of guessing a label from one tree (elxgb).", rich_help_panel=ACTIVE),
    ] = None,
    features: Annotated[int, typer.Option(help="Number of columns of a passive party.", rich_help_panel=SIZE)] = 10,
    bins: Annotated[int, typer.Option(help="Number of bins per column.", rich_help_panel=SIZE)] = _USUAL.max_bin,
    trees: Annotated[
        int | None,
        typer.Option(
            "--n-estimators",
            "--trees",
            help="Number of boosting rounds.",
            show_default="100; sealed: chosen for the budget",
            rich_help_panel=SIZE,
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option("--max-depth", "--depth", help="Maximum depth of a tree.", rich_help_panel=SIZE)
    ] = _USUAL.max_depth,
    option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Set an option of the protocol. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the options of a protocol from privacy budgets.

    An epsilon is for the whole job, composed over all its releases, unless the
    protocol defines it otherwise.

    Example:

        [bold]veilboost privacy calibrate --protocol masked --eps-ap 4 --delta-ap 1e-3 --eps-pp 1 --rows 24000[/]
    """
    from veilboost.privacy.calibrate import CalibrationRequest
    from veilboost.protocols.registry import protocol_named

    spec = protocol_named(protocol)
    request = CalibrationRequest(
        rows=whole_rows(rows),
        features=features,
        bins=bins,
        trees=spec.default_rounds() if trees is None else trees,
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
            "set --protocol to a protocol with noise; `veilboost protocols` lists them",
        )
    found = spec.calibrate(request)
    if as_json:
        print_json({**found, "protocol": protocol, "request": vars(request)})
        return
    texts = {name: f"{value:.6g}" if isinstance(value, float) else str(value) for name, value in found.items()}
    stdout().print(make_pairs(texts))


@privacy.command()
def spent(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of any party.")],
    delta: Annotated[float | None, typer.Option(help="Compose at this delta.", show_default="the policy's")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a party released in a run, and its privacy cost.

    Two accountings are shown: the claim of the protocol's paper for each
    release, and the composed cost of all releases, with the adjacency (which
    change of the data is hidden) and the adversary (from whom).

    Example:

        [bold]veilboost privacy spent runs/credit --json[/]
    """
    from veilboost.cli.summary import print_spending
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
    except (InvalidParameter, KeyError, TypeError) as error:
        raise UnknownRun(
            f"the ledger file in {run} is damaged",
            "run `veilboost ledger show --party FILE` to read the party's ledger",
        ) from error
    if as_json:
        print_json(told)
        return
    console = stdout()
    console.print(f"[bold]What {escape(told['party'])} spent[/] in {escape(told['job'])}", soft_wrap=True)
    print_spending(console, told)


@ledger.callback()
def about_ledger() -> None:
    """Show, verify, export and reconcile the privacy ledger of a party, which records the releases of all jobs.

    Examples:

        [bold]veilboost ledger show --party bank.toml[/]

        [bold]veilboost ledger verify --ledger runs/ledger.sqlite[/]
    """


@ledger.command()
def show(party: Party = None, file: File = None, as_json: AsJson = False) -> None:
    """Show what all jobs released of a party's data, with noise and exactly.

    Releases with noise have an epsilon. The epsilons of jobs add up, each at
    the delta of the policy. Exact releases have no finite epsilon: they are
    listed by receiver, with the number of rows and bins that they describe, and
    how often. Left/right assignments are counted in bits of each row.

    Example:

        [bold]veilboost ledger show --party bank.toml[/]
    """
    from veilboost.party.status import ledger_summary

    book, policy = _open(party, file)
    found = ledger_summary(book, policy)
    if as_json:
        jobs = [
            {key: getattr(total, key) for key in ("job", "releases", "epsilon", "reserved", "bounded", "assignments")}
            | {"exact_releases": total.exact}
            for total in found.jobs
        ]
        print_json({**asdict(found), "ledger": str(found.ledger), "jobs": jobs})
        return
    console = stdout()
    console.print(f"[bold]{escape(str(found.ledger))}[/]: {found.rows} rows, verified\n", soft_wrap=True)
    numbers = ("with noise", "epsilon", "exact", "assignments", "reserved")
    table = make_table("job", *numbers, numbers=numbers)
    for total in found.jobs:
        aside = epsilon_text(total.reserved) if total.reserved else ""
        noised = total.releases - total.exact
        exactly = str(total.exact), str(total.assignments or "")
        table.add_row(escape(total.job), str(noised), epsilon_text(total.bounded), *exactly, aside)
    indented(console, table)
    numbers = ("epsilon", "exact")
    table = make_table("to", *numbers, numbers=numbers)
    for peer, told in found.by_peer.items():
        table.add_row(escape(peer), epsilon_text(told.bounded), str(told.exact_releases))
    indented(console, table)
    if found.exact:
        console.print("\n[bold]Exact, unbounded[/]\n")
        numbers = ("rows", "bins", "times", "jobs")
        table = make_table("what", "to", "by", *numbers, numbers=numbers)
        for item in found.exact:
            counts = (str(number or "") for number in (item.rows, item.bins, item.times, item.jobs))
            table.add_row(escape(item.what), escape(item.to), escape(item.protocol), *counts)
        indented(console, table)
    limit = "no limit is set" if policy.epsilon_total is None else f"of {policy.epsilon_total:g}"
    times = sum(item.times for item in found.exact)
    console.print(
        f"\n  in all: epsilon {found.bounded:.3f} with noise, each job at delta {policy.delta:g}, {limit}; "
        f"{times} exact releases, with {found.assignments} left/right assignments of each row"
        + ("" if policy.assignments_total is None else f" of {policy.assignments_total}"),
        soft_wrap=True,
    )


@ledger.command()
def verify(
    party: Party = None,
    file: File = None,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="An earlier hash that the ledger must still contain.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify that no row of a ledger was changed, moved or removed.

    Example:

        [bold]veilboost ledger verify --party bank.toml[/]
    """
    book, _ = _open(party, file)
    found = book.verify()
    if head is not None and all(row.hash != head for row in book.rows()):
        raise DamagedLedger(f"{book.path} does not contain the hash of --head")
    told = {"ledger": str(book.path), "whole": True, "rows": found.rows, "head": found.hash}
    tell(told, as_json, f"verified: {found.rows} rows, hash of the last row {found.hash}")


@ledger.command()
def export(
    party: Party = None,
    file: File = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file instead of stdout.")] = None,
    as_json: AsJson = False,
) -> None:
    """Verify a ledger and write all of it as JSON, for an auditor.

    Example:

        [bold]veilboost ledger export --party bank.toml --out ledger.json[/]
    """
    book, _ = _open(party, file)
    content = book.export()
    if out is None:
        print_json(content)
        return
    with writing(out):
        out.write_text(json.dumps(content, indent=2) + "\n")
    told = {"written": str(out), "rows": content["head"]["rows"], "head": content["head"]["hash"]}
    when = datetime.now().isoformat(" ", "seconds")
    tell(told, as_json, f"wrote {escape(str(out))}: {told['rows']} rows as of {when}")


@ledger.command()
def close(
    job: Annotated[str, typer.Argument(help="The job, as listed by `veilboost ledger show`.")],
    party: Party = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Release the budget that is reserved for a job that was killed and will not be resumed.

    Budget that the job has spent stays spent.

    Example:

        [bold]veilboost ledger close credit/3f0c12ab9d41 --party bank.toml[/]
    """
    book, _ = _open(party, file)
    aside = book.reserved().get(job, 0.0)
    if not aside:
        raise UnsupportedCombination(
            f"no budget is reserved for {job!r}", "`veilboost ledger show` lists the jobs and their reserved budgets"
        )
    book.close(job)
    text = f"closed {escape(job)}: its spent budget counts, and no further budget is reserved"
    tell({"job": job, "given_back": aside}, as_json, text)


def _open(party: Path | None, file: Path | None) -> tuple[Ledger, Policy]:
    from veilboost.party.policy import Policy
    from veilboost.party.settings import load_party
    from veilboost.privacy.ledger import Ledger

    if party is not None and file is None:
        settings = load_party(party)
        return Ledger(settings.ledger_file), settings.policy
    if file is None or party is not None:
        raise UnsupportedCombination("a ledger is given by --party or by --ledger", "give exactly one of the two")
    if not file.exists():
        raise UnreadableFile(
            f"the ledger {str(file)!r} does not exist", "check the path of --ledger, or give --party FILE"
        )
    return Ledger(file), Policy()
