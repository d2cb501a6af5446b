"""`veilboost transcript`, `audit` and `report`: the messages of a run, attacks on it, and an HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from veilboost.cli.console import (
    AsJson,
    bytes_text,
    indented,
    make_table,
    print_json,
    seconds_text,
    stdout,
    tell,
    writing,
)
from veilboost.errors import InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.audit.attack import Finding
    from veilboost.privacy.statement import Statement

PAGE = Path("report.html")
MOST_VICTIMS = 3  # of one attack that are listed separately
VERDICT_STYLES = {"succeeded": "bold red", "better than chance": "yellow", "resisted": "green"}


def audit(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help='Run folders of one job, recorded with record = "payload".'),
    ] = None,
    truth: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Settings of a party whose data the guesses are scored against. Repeatable."),
    ] = None,
    random_state: Annotated[int, typer.Option(help="Seed of the attacks' own sampling.")] = 0,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the findings as a self-contained HTML page.")
    ] = None,
    lower_bound: Annotated[
        bool, typer.Option("--lower-bound", help="Instead, measure a lower bound of the epsilon of sealed or secagg.")
    ] = False,
    of: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Subject of --lower-bound: in sealed labels, features (one passive record, fixed cuts) or cuts (that "
            "change with the record); in secagg records.",
        ),
    ] = "labels",
    eps: Annotated[float, typer.Option(help="Claimed epsilon of the runs of --lower-bound.")] = 1.0,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Runs of --lower-bound on each of the two neighbouring tables. Unset: 300, or 20000 for records."
        ),
    ] = None,
    trees: Annotated[
        int | None,
        typer.Option(
            "--n-estimators",
            "--trees",
            help="Number of trees in a run of --lower-bound. Unset: chosen by sealed, or 10.",
            min=1,
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--max-depth", "--depth", help="Depth of these trees. Unset: chosen by sealed, or 1.", min=1, max=16
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Attack a run with exactly what each party received.

    Reads transcripts with payloads and model shares, runs every attack that
    applies to the view of each party, and scores the guesses against the true
    data. These are read separately: the settings of a party name its table, and
    its run folder the rows that took part. Whoever runs this command sees the
    data of all parties: use it for tests, and for trials that all owners agreed
    to.

    Examples:

        [bold]veilboost audit bank/runs/credit shop/runs/credit --truth bank/party.toml --truth shop/party.toml[/]

        [bold]veilboost audit --lower-bound --eps 1[/]

        [bold]veilboost audit --lower-bound --of features --eps 1[/]

        [bold]veilboost audit --lower-bound --of records --eps 1[/]
    """
    if lower_bound:
        if runs or truth or html is not None:
            raise UnsupportedCombination("--lower-bound trains its own runs", "remove RUN, --truth and --html")
        _lower_bound(of, eps, repeats, random_state, {"trees": trees, "depth": depth}, as_json)
        return
    if not runs or not truth:
        raise UnsupportedCombination(
            "RUN or --truth is missing", "add the run folders and a --truth FILE for each party, or --lower-bound"
        )
    from veilboost.audit.attacks import audit as attack_all
    from veilboost.audit.sources import views_of_runs
    from veilboost.protocols.registry import protocol_named

    views, known = views_of_runs(runs, truth)
    protocol = next(iter(views.values())).protocol
    statement = protocol_named(protocol).statement
    findings = attack_all(views, known, random_state)
    if html is not None:
        write_page(html, protocol, findings, statement)
    if as_json:
        told = {"protocol": protocol, "status": statement.status, "findings": [each.to_dict() for each in findings]}
        print_json(told | ({} if html is None else {"html": str(html)}))
    else:
        print_findings(stdout(), findings)


def write_page(file: Path, protocol: str, findings: Sequence[Finding], statement: Statement) -> None:
    from veilboost.report.pages import audit_page

    claims = [each.to_dict() for each in statement.protections]
    with writing(file):
        file.write_text(audit_page(protocol, [each.to_dict() for each in findings], claims), encoding="utf-8")


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print a table row and a sentence for each attack."""
    if not findings:
        console.print("No attack applies to the recorded messages of this run.")
        return
    numbers = ("baseline", "threshold", "time")
    table = make_table("attack", "from", "on", "result", *numbers, "verdict", numbers=numbers)
    shown = _furthest(findings)
    for finding, others in shown:
        found = finding.outcome
        table.add_row(
            f"[bold]{escape(finding.attack)}[/]",
            escape(finding.adversary),
            escape(f"{finding.victim}{f' and {others} others' if others else ''}: {finding.data}"),
            f"{found.value:.3f} {escape(f'[{found.low:.3f}, {found.high:.3f}]')} {found.metric}",
            f"{found.baseline:.3f}",
            f"{found.threshold:.3f}",
            seconds_text(finding.seconds),
            f"[{VERDICT_STYLES[finding.verdict]}]{finding.verdict}[/]",
        )
    console.print(table)
    console.print()
    for finding, _ in shown:
        console.print(f"{escape(finding.attack)}: {escape(finding.outcome.sentence)}", soft_wrap=True)


def _furthest(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """All findings; for an attack on many victims only its best result, and the number of other victims."""
    grouped: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        grouped.setdefault((finding.attack, finding.adversary), []).append(finding)
    shown: list[tuple[Finding, int]] = []
    for group in grouped.values():
        if len(group) > MOST_VICTIMS:
            shown.append((max(group, key=lambda each: each.outcome.value - each.outcome.threshold), len(group) - 1))
        else:
            shown += [(each, 0) for each in group]
    return shown


def _lower_bound(
    of: str, eps: float, repeats: int | None, random_state: int, size: Mapping[str, int | None], as_json: bool
) -> None:
    from veilboost.audit.lower_bound import feature_lower_bound, label_lower_bound
    from veilboost.audit.record_bound import record_lower_bound

    subjects = ("labels", "features", "cuts", "records")
    if of not in subjects:
        raise InvalidParameter(f"--of {of} is not one of {', '.join(subjects)}", "set --of to one of these")
    given = {name: value for name, value in size.items() if value is not None}
    if repeats is None:
        repeats = 20_000 if of == "records" else 300
    if of == "labels":
        found = label_lower_bound(eps, repeats, random_state, **given)
    elif of == "records":
        found = record_lower_bound(eps, repeats, random_state, **given)
    else:
        found = feature_lower_bound(eps, repeats, random_state, cuts_move=of == "cuts", **given)
    protocol = "secagg" if of == "records" else "sealed"
    held = "[green]consistent with the claim[/]" if found.holds else "[bold red]the claim is refuted[/]"
    tell(
        found.to_dict(),
        as_json,
        f"{protocol} claims epsilon {found.claimed:g} for {found.of} (delta {found.delta:g}); {found.repeats} runs on "
        f"each of two neighbouring tables give a lower bound of [bold]{found.epsilon:.3f}[/] (95 % confidence): {held}",
    )


def transcript(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of any party.")],
    network: Annotated[
        str | None,
        typer.Option(metavar="LINE", help="Also report the transfer time on such a network, e.g. 20mbit,100ms."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the messages of a run: sender, receiver, bytes, and what each reveals.

    Each party records its own messages. What a message reveals is declared with
    its type and recorded with the message. Only messages of the last attempt
    that all parties accepted are listed, with those after --resume. Earlier
    attempts of the same name are named at the end: their data remain sent.

    Examples:

        [bold]veilboost transcript runs/credit[/]

        [bold]veilboost transcript runs/credit/transcript.1[/]
    """
    from veilboost.party.runs import RunFolder, read_entries, read_exchanges
    from veilboost.wire.transcript import Network, traffic_by_peer

    owner, exchanges = read_exchanges(run)
    totals = traffic_by_peer(owner, exchanges)
    earlier = [str(folder) for folder in RunFolder(run).earlier_transcripts]
    line = {}
    if network is not None:
        line = {"network": network, "network_seconds": Network.parse(network).replay(read_entries(run))}
    if as_json:
        crossed = {"exchanges": [item.to_dict() for item in exchanges], "peers": totals}
        print_json({"party": owner, "run": str(run)} | crossed | {"earlier": earlier} | line)
        return
    console = stdout()
    console.print(f"[bold]Messages of {escape(owner)}[/]\n")
    table = make_table(
        "from", "to", "message", "count", "bytes", "revealed to the receiver", numbers=("count", "bytes")
    )
    for item in exchanges:
        # Name the party if it is not the receiver.
        told = [what if to == item.receiver else f"{what} (to the {to} party)" for what, to in item.reveals]
        table.add_row(
            escape(item.sender),
            escape(item.receiver),
            item.message,
            str(item.count),
            bytes_text(item.size),
            escape("; ".join(told)) or "[dim]nothing[/]",
        )
    indented(console, table)
    console.print("\n[bold]Totals[/]\n")
    headers = ("sent", "bytes sent", "received", "bytes received")
    table = make_table("party", *headers, numbers=headers)
    for peer, total in totals.items():
        sent = str(total["messages_sent"]), bytes_text(total["bytes_sent"])
        table.add_row(escape(peer), *sent, str(total["messages_received"]), bytes_text(total["bytes_received"]))
    indented(console, table)
    if earlier:
        console.print(f"\nEarlier attempts: {escape(', '.join(earlier))}", soft_wrap=True)
    if line:
        console.print(f"\nOn {escape(str(network))}: {line['network_seconds']:.2f} s in transit")


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|DIR",
            help="A run folder, the run folders of several parties of one job, or a folder that demo --folder or "
            "simulate --out wrote.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="The HTML file to write.", show_default=str(PAGE)),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Output of veilboost audit --json for this run.",
            show_default="audit.json in DIR, if it exists",
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Output of veilboost evaluate --json for this run.",
            show_default="evaluation.json in DIR, if it exists",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the content as one JSON object; write the page only with -o.")
    ] = False,
) -> None:
    """Write an HTML report of a run, a demo or a simulation.

    The report has the learning curve, the gain over the active party alone,
    time and bytes by party and level, the privacy ledger, what each party
    learned, the findings of attacks, and the importance by party. The page is
    self-contained: you can mail, print and read it on a phone.

    Examples:

        [bold]veilboost report runs/credit -o credit.html[/]

        [bold]veilboost demo --folder town && veilboost report town[/]

        [bold]veilboost simulate --demo-data --out result && veilboost report result[/]
    """
    from veilboost.report.runs import make_report

    made = make_report(paths, audit, evaluation)
    file = out if as_json else out or PAGE
    if file is not None:
        with writing(file):
            file.write_text(made.html, encoding="utf-8")
    told = {**made.data, "page": None if file is None else str(file)}
    tell(told, as_json, f"{escape(made.title)}: {escape(str(file))}, {bytes_text(len(made.html.encode()))}")
