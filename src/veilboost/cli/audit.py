"""`veilboost audit`: attack a finished run with what each party saw, and say who learned what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from veilboost.cli.console import AsJson, make_table, print_json, seconds_text, stdout, tell, writing
from veilboost.errors import ImpossibleParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.audit.result import Finding
    from veilboost.privacy.statement import Statement

MOST_VICTIMS = 3  # of one attack that get a line each
VERDICT_STYLES = {"succeeded": "bold red", "better than chance": "yellow", "resisted": "green"}


def audit(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help='Run folders of one job, recorded with record = "payload".'),
    ] = None,
    truth: Annotated[
        list[Path] | None,
        typer.Option(
            "--truth", metavar="FILE", help="party.toml of a party whose data guesses are scored against. Repeatable."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="For what an attack draws.")] = 0,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs nothing else.")
    ] = None,
    lower_bound: Annotated[
        bool, typer.Option("--lower-bound", help="Instead, measure from below what runs of sealed cost.")
    ] = False,
    of: Annotated[
        str,
        typer.Option(
            "--of",
            metavar="NAME",
            help="--lower-bound of what: labels, features (one passive record, in bins that stay), or cuts (that move "
            "with the record).",
        ),
    ] = "labels",
    eps: Annotated[float, typer.Option("--eps", help="Epsilon that the runs of --lower-bound claim.")] = 1.0,
    repeats: Annotated[int, typer.Option("--repeats", help="Runs of --lower-bound on each side.")] = 300,
    as_json: AsJson = False,
) -> None:
    """Attack a run with exactly what each party saw.

    Reads transcripts with payloads and model parts, runs every attack that
    applies to each view, and scores it against the truth, which is taken
    separately: each party's file says where its table is, and its run which
    rows took part. Whoever calls this sees everyone's data: it is for tests
    and for trials that all owners agreed to.

    Examples:

        [bold]veilboost audit bank/runs/credit shop/runs/credit --truth bank/party.toml --truth shop/party.toml[/]

        [bold]veilboost audit --lower-bound --eps 1[/]

        [bold]veilboost audit --lower-bound --of features --eps 1[/]
    """
    if lower_bound:
        if runs or truth or html is not None:
            raise UnsupportedCombination("--lower-bound trains runs of its own", "leave RUN, --truth and --html out")
        _lower_bound(of, eps, repeats, seed, as_json)
        return
    if not runs or not truth:
        raise UnsupportedCombination(
            "there is no run to attack, or no truth to score against", "give RUN and --truth, or --lower-bound"
        )
    from veilboost.audit.runner import audit as attack_all
    from veilboost.audit.sources import views_of_runs
    from veilboost.protocols.registry import protocol_named

    views, known = views_of_runs(runs, truth)
    protocol = next(iter(views.values())).protocol
    statement = protocol_named(protocol).statement
    findings = attack_all(views, known, seed)
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
    """A line for each attack and what it says."""
    if not findings:
        console.print("No attack could use what this run recorded.")
        return
    table = make_table("attack", "from", "on", "result", "baseline", "time", "verdict", numbers=("baseline", "time"))
    shown = _furthest(findings)
    for finding, others in shown:
        found = finding.outcome
        table.add_row(
            f"[bold]{escape(finding.attack)}[/]",
            escape(finding.adversary),
            escape(f"{finding.victim}{f' and {others} others' if others else ''}: {finding.data}"),
            f"{found.value:.3f} {escape(f'[{found.low:.3f}, {found.high:.3f}]')} {found.metric}",
            f"{found.baseline:.3f}",
            seconds_text(finding.seconds),
            f"[{VERDICT_STYLES[finding.verdict]}]{finding.verdict}[/]",
        )
    console.print(table)
    console.print()
    for finding, _ in shown:
        console.print(f"{escape(finding.attack)}: {escape(finding.outcome.sentence)}", soft_wrap=True)


def _furthest(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """Each finding; of an attack with many victims only the one on whom it went furthest, and how many others."""
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


def _lower_bound(of: str, eps: float, repeats: int, seed: int, as_json: bool) -> None:
    from veilboost.audit.lower_bound import feature_lower_bound, label_lower_bound

    if of not in ("labels", "features", "cuts"):
        raise ImpossibleParameter(f"--of {of} is none of labels, features, cuts")
    if of == "labels":
        found = label_lower_bound(eps, repeats, seed)
    else:
        found = feature_lower_bound(eps, repeats, seed, cuts_move=of == "cuts")
    held = "[green]the claim stands[/]" if found.holds else "[bold red]the claim is refuted[/]"
    tell(
        found.to_dict(),
        as_json,
        f"sealed claims epsilon {found.claimed:g} for {found.of} (delta {found.delta:g}); {found.repeats} runs on each "
        f"of two neighbouring tables show that it is at least [bold]{found.epsilon:.3f}[/] (95 % confidence): {held}",
    )
