"""`veilboost ledger`: a party's privacy ledger, over all its jobs."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, command_group, indented, make_table, print_json, stdout, tell, writing
from veilboost.cli.summary import epsilon_text
from veilboost.errors import UnreadableFile, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.party.policy import Policy
    from veilboost.privacy.ledger import Ledger

ledger = command_group()

Party = Annotated[
    Path | None,
    typer.Option("--party", "--config", metavar="FILE", help="The party's settings, which name its ledger."),
]
File = Annotated[Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger itself.")]


@ledger.callback()
def about() -> None:
    """Show, verify and export what all jobs released of a party's data.

    Examples:

        [bold]veilboost ledger show --party bank.toml[/]

        [bold]veilboost ledger verify --ledger runs/ledger.sqlite[/]
    """


@ledger.command()
def show(party: Party = None, file: File = None, as_json: AsJson = False) -> None:
    """Show what left of a party's data: with noise, and exactly.

    What left with noise has an epsilon. Epsilons of jobs add up, each at the
    delta of the policy. What left exactly has no finite epsilon: it is listed
    by receiver, with how many rows and bins it told of, and how often.

    Example:

        [bold]veilboost ledger show --party bank.toml[/]
    """
    book, policy = _open(party, file)
    head = book.verify()
    totals = book.totals(policy.delta)
    every = book.events()
    kinds = {event.adjacency for event in every}
    spent = sum(total.counted for total in totals)
    bounded, exact = sum(total.bounded for total in totals), book.exact()
    peers = {event.adversary: None for event in every}
    about: dict[str, Any] = {
        "ledger": str(book.path),
        "rows": head.rows,
        "head": head.hash,
        "delta": policy.delta,
        "spent": spent,
        "budget": policy.epsilon_total,
        "by_adjacency": {str(kind): book.spent(policy.delta, kind) for kind in sorted(kinds)},
        "bounded": bounded,
        "by_peer": {
            peer: {
                "bounded": book.bounded(policy.delta, peer),
                "exact_releases": sum(item.times for item in exact if item.to == peer),
            }
            for peer in peers
        },
        "exact": [vars(item) for item in exact],
        "jobs": [
            {key: getattr(total, key) for key in ("job", "releases", "epsilon", "reserved", "bounded")}
            | {"exact_releases": total.exact}
            for total in totals
        ],
    }
    if as_json:
        print_json(about)
        return
    console = stdout()
    console.print(f"[bold]{escape(str(book.path))}[/]: {head.rows} rows, whole\n", soft_wrap=True)
    numbers = ("with noise", "epsilon", "exact", "set aside")
    table = make_table("job", *numbers, numbers=numbers)
    for total in totals:
        aside = epsilon_text(total.reserved) if total.reserved else ""
        noised = total.releases - total.exact
        table.add_row(escape(total.job), str(noised), epsilon_text(total.bounded), str(total.exact), aside)
    indented(console, table)
    numbers = ("epsilon", "exact")
    table = make_table("to", *numbers, numbers=numbers)
    for peer, told in about["by_peer"].items():
        table.add_row(escape(peer), epsilon_text(told["bounded"]), str(told["exact_releases"]))
    indented(console, table)
    if exact:
        console.print("\n[bold]Exact, unbounded[/]\n")
        numbers = ("rows", "bins", "times", "jobs")
        table = make_table("what", "to", "by", *numbers, numbers=numbers)
        for item in exact:
            counts = (str(number or "") for number in (item.rows, item.bins, item.times, item.jobs))
            table.add_row(escape(item.what), escape(item.to), escape(item.protocol), *counts)
        indented(console, table)
    limit = "no limit is set" if policy.epsilon_total is None else f"of {policy.epsilon_total:g}"
    times = sum(item.times for item in exact)
    console.print(
        f"\n  in all: epsilon {bounded:.3f} with noise, each job at delta {policy.delta:g}, {limit}; "
        f"{times} exact releases",
        soft_wrap=True,
    )


@ledger.command()
def verify(
    party: Party = None,
    file: File = None,
    head: Annotated[
        str | None, typer.Option("--head", metavar="HASH", help="A hash seen earlier, which must still be in it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that nothing was changed, moved or taken out of a ledger.

    Example:

        [bold]veilboost ledger verify --party bank.toml[/]
    """
    from veilboost.errors import DamagedLedger

    book, _ = _open(party, file)
    found = book.verify()
    if head is not None and all(row.hash != head for row in book.rows()):
        raise DamagedLedger(f"{book.path} does not hold the hash that was seen earlier")
    told = {"ledger": str(book.path), "whole": True, "rows": found.rows, "head": found.hash}
    tell(told, as_json, f"whole: {found.rows} rows, the last has hash {found.hash}")


@ledger.command()
def export(
    party: Party = None,
    file: File = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a whole ledger as JSON, verified, for an auditor.

    Example:

        [bold]veilboost ledger export --party bank.toml --out ledger.json[/]
    """
    import json

    book, _ = _open(party, file)
    content = book.export()
    if out is None:
        print_json(content)
        return
    with writing(out):
        out.write_text(json.dumps(content, indent=2) + "\n")
    told = {"written": str(out), "rows": content["head"]["rows"], "head": content["head"]["hash"]}
    when = datetime.now().isoformat(" ", "seconds")
    tell(told, as_json, f"{told['rows']} rows as of {when} in {escape(str(out))}")


@ledger.command()
def close(
    job: Annotated[str, typer.Argument(help="The job, as `veilboost ledger show` names it.")],
    party: Party = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Give back what is set aside for a job that was killed and will not go on.

    What it has spent stays spent.

    Example:

        [bold]veilboost ledger close credit/3f0c12ab9d41 --party bank.toml[/]
    """
    book, _ = _open(party, file)
    aside = book.reserved().get(job, 0.0)
    if not aside:
        raise UnsupportedCombination(f"nothing is set aside for {job!r}", "`veilboost ledger show` lists the jobs")
    book.close(job)
    text = f"{escape(job)} is closed; what it spent counts, nothing more is set aside"
    tell({"job": job, "given_back": aside}, as_json, text)


def _open(party: Path | None, file: Path | None) -> tuple[Ledger, Policy]:
    from veilboost.party.policy import Policy
    from veilboost.party.settings import load_party
    from veilboost.privacy.ledger import Ledger

    if party is not None and file is None:
        settings = load_party(party)
        return Ledger(settings.ledger_file), settings.policy
    if file is None or party is not None:
        raise UnsupportedCombination("a ledger is named by --party or by --ledger", "give one of the two")
    if not file.exists():
        raise UnreadableFile(f"there is no ledger {str(file)!r}")
    return Ledger(file), Policy()
