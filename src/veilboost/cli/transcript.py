"""`veilboost transcript`: who sent what to whom, and what it revealed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, bytes_text, indented, make_table, print_json, stdout


def transcript(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, at any party.")],
    network: Annotated[
        str | None,
        typer.Option("--network", metavar="LINE", help="What it would take on such a line, as 20mbit,100ms."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what crossed in a run: who sent what to whom, bytes, and what it revealed.

    Each party has its own record of its own messages. What a type of message
    reveals is declared where the message is defined, and written down with it.

    Example:

        [bold]veilboost transcript runs/credit[/]
    """
    from veilboost.party.runs import read_entries, read_exchanges
    from veilboost.wire.transcript import Network, traffic_by_peer

    owner, exchanges = read_exchanges(run)
    totals = traffic_by_peer(owner, exchanges)
    line = {}
    if network is not None:
        line = {"network": network, "network_seconds": Network.parse(network).replay(read_entries(run))}
    if as_json:
        print_json(
            {
                "party": owner,
                "run": str(run),
                "exchanges": [item.to_dict() for item in exchanges],
                "peers": totals,
                **line,
            }
        )
        return
    console = stdout()
    console.print(f"[bold]What {escape(owner)} sent and received[/]\n")
    table = make_table(
        "from", "to", "message", "count", "bytes", "revealed to the receiver", numbers=("count", "bytes")
    )
    for item in exchanges:
        # To somebody else than the receiver is worth a word of its own.
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
    console.print("\n[bold]In all[/]\n")
    headers = ("sent", "bytes sent", "received", "bytes received")
    table = make_table("party", *headers, numbers=headers)
    for peer, total in totals.items():
        table.add_row(
            escape(peer),
            str(total["messages_sent"]),
            bytes_text(total["bytes_sent"]),
            str(total["messages_received"]),
            bytes_text(total["bytes_received"]),
        )
    indented(console, table)
    if line:
        console.print(f"\nOn a line of {escape(str(network))}: {line['network_seconds']:.2f} s under way")
