"""`veilboost jobs`: the runs of a party."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import make_table, print_json, stdout
from veilboost.errors import ImpossibleParameter

if TYPE_CHECKING:
    from veilboost.party.runs import RunFolder

ENDED = ("finished", "failed", "cancelled")
INTERRUPTED = "interrupted"  # what a run is whose process was killed: nobody could write it down

jobs = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="The party's settings.")]
Name = Annotated[str, typer.Argument(help="The job's name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@jobs.callback()
def about() -> None:
    """List, show and cancel the jobs of a party.

    Examples:

        [bold]veilboost jobs list --config bank.toml[/]

        [bold]veilboost jobs cancel credit --config bank.toml[/]
    """


@jobs.command("list")
def list_(config: Config, as_json: AsJson = False) -> None:
    """List a party's runs, the newest first.

    Example:

        [bold]veilboost jobs list --config bank.toml[/]
    """
    from veilboost.party.runs import list_runs
    from veilboost.party.settings import load_party

    settings = load_party(config)
    found = [_about(run) for run in list_runs(settings.runs)]
    if as_json:
        print_json({"party": settings.name, "runs": found})
        return
    console = stdout()
    if not found:
        console.print(f"{escape(settings.name)} has no runs in {escape(str(settings.runs))}", soft_wrap=True)
        return
    table = make_table("job", "state", "role", "rounds", "updated", numbers=("rounds",))
    for about in found:
        rounds = "" if about["rounds"] is None else str(about["rounds"])
        table.add_row(escape(about["job"]), about["state"], about["role"] or "", rounds, about["updated"] or "")
    console.print(table)


@jobs.command()
def show(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Show one run: its state, how far it is, why it stopped, where its files are.

    Example:

        [bold]veilboost jobs show credit --config bank.toml[/]
    """
    about = _about(_open(name, config))
    if as_json:
        print_json(about)
        return
    console = stdout()
    table = make_table("", "")
    table.show_header = False
    for key, value in about.items():
        if value is not None and key != "files":
            table.add_row(f"[bold]{key}[/]", escape(str(value)))
    table.add_row("[bold]files[/]", escape(", ".join(about["files"])))
    console.print(table)
    if about["role"] == "active" and about["state"] in {"failed", "cancelled", INTERRUPTED} and about["rounds"]:
        console.print("\nit can go on: veilboost train JOB --config FILE --resume")


@jobs.command()
def cancel(name: Name, config: Config, as_json: AsJson = False) -> None:
    """Stop a job after the round that it is in. It can be resumed.

    Run it at the active party, while the job runs there.

    Example:

        [bold]veilboost jobs cancel credit --config bank.toml[/]
    """
    run = _open(name, config)
    about = _about(run)
    if about["role"] != "active":
        raise ImpossibleParameter(f"{name} is driven by {about['active']}", "cancel it there")
    if about["state"] in ENDED:
        raise ImpossibleParameter(f"{name} is {about['state']} already", "there is nothing to cancel")
    if about["state"] == INTERRUPTED:
        run.note(state="cancelled")
    else:
        run.cancel()
    ends = "now" if about["state"] == INTERRUPTED else "after this round"
    if as_json:
        print_json({"job": name, "cancelled": ends})
    else:
        stdout().print(f"{escape(name)} ends {ends}; go on later with veilboost train --resume", soft_wrap=True)


def _open(name: str, config: Path) -> RunFolder:
    from veilboost.fields import FORMS
    from veilboost.party.runs import RunFolder
    from veilboost.party.settings import load_party

    if not FORMS["party"].fits(name):
        raise ImpossibleParameter(f"{name!r} is no name of a job", f"it is {FORMS['party'].text}")
    return RunFolder.open(load_party(config).runs, name)


def _about(run: RunFolder) -> dict[str, Any]:
    status = run.status
    state = str(status.get("state", "unknown"))
    if state not in ENDED and "pid" in status and not _lives(int(status["pid"])):
        state = INTERRUPTED
    updated = status.get("updated")
    active = status.get("active") or (status.get("party") if status.get("role") == "active" else None)
    return {
        "job": run.path.name,
        "state": state,
        "party": status.get("party"),
        "role": status.get("role"),
        "active": active,
        "rounds": run.rounds if status.get("role") == "active" else None,
        "rows": status.get("rows"),
        "ids": status.get("ids"),
        "error": status.get("error"),
        "updated": None if updated is None else datetime.fromtimestamp(float(updated)).isoformat(" ", "seconds"),
        "cancelling": (run.cancelled and state not in (*ENDED, INTERRUPTED)) or None,
        "folder": str(run.path),
        "files": sorted(path.name for path in run.path.iterdir() if not path.name.startswith(".")),
    }


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
