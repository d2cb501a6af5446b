"""Commands that keep a party's state: back it up, restore it, and delete what is no longer needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import AsJson, bytes_text, make_table, print_json, stdout, tell, writing
from veilboost.cli.party import Config, jobs, party
from veilboost.cli.privacy import ledger
from veilboost.errors import InvalidParameter

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def _confirm(question: str, yes: bool, as_json: bool) -> None:
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise InvalidParameter(question, "add --yes to confirm")
        typer.confirm(question, abort=True)


@party.command()
def backup(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .tar or .tar.gz.")],
    config: Config,
    with_keys: Annotated[
        bool, typer.Option("--with-keys", help="Include the private key, keys of jobs, and prepared results.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Save the settings, certificates, runs and ledger of a party in one file.

    The daemon may run: of a running job the last checkpoint is saved. Passphrase
    files and the storage key are never included. The file has mode 0600.

    Examples:

        [bold]veilboost party backup bank.tar.gz --config bank.toml[/]

        [bold]veilboost party backup bank.tar --config bank.toml --with-keys[/]
    """
    from veilboost.party.backup import back_up
    from veilboost.party.settings import load_party

    settings = load_party(config)
    with writing(out):
        saved = back_up(settings, config, out, with_keys=with_keys)
    about = {"file": str(out), "files": len(saved.files), "runs": saved.runs, "running": saved.running}
    running = [f"saved at their last checkpoint: {escape(', '.join(saved.running))}"] if saved.running else []
    text = f"wrote {escape(str(out))}: {len(saved.runs)} runs, {saved.ledger_rows} rows of the ledger"
    tell({**about, "ledger_rows": saved.ledger_rows}, as_json, text, *running)


@party.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `party backup` wrote.")],
    config: Config,
    as_json: AsJson = False,
) -> None:
    """Restore what is missing of a party from a backup.

    Stop the daemon first. All digests are verified before anything is written,
    and nothing that exists is overwritten; the settings file is written if it
    does not exist. A ledger from the backup books nothing until you have run
    veilboost ledger reconcile: it may lack what was released since the backup.

    Example:

        [bold]veilboost party restore bank.tar.gz --config bank.toml[/]
    """
    from veilboost.party import backup as backups
    from veilboost.party.settings import load_party

    with writing(config):
        if not config.exists():
            backups.restore_settings(file, config)
    settings = load_party(config)
    with writing(settings.runs):
        found = backups.restore(settings, file)
    lines = [f"restored {escape(path)}" for path in found.written] + [f"kept {escape(path)}" for path in found.kept]
    marked = str(settings.ledger_file) in found.written
    if marked:
        lines.append("next: run veilboost ledger reconcile: until then this party releases nothing")
    told = {"made": found.made, "restored": found.written, "kept": found.kept, "reconcile": marked}
    tell(told, as_json, *lines)


@ledger.command()
def reconcile(
    config: Config,
    add: Annotated[
        list[Path] | None, typer.Option(metavar="LEDGER", help="Another copy of the ledger. Repeatable.")
    ] = None,
    unknown_epsilon: Annotated[
        float, typer.Option(metavar="EPSILON", help="Epsilon of releases that no file shows.", min=0)
    ] = 0.0,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Complete a ledger that was restored from a backup, so that it books again.

    Adds the releases that the ledger.json files of the runs, and other copies of
    the ledger, show and the ledger lacks. Jobs since the backup whose run
    folders are lost are not known here: ask the other parties for their
    transcripts, and book what these jobs may have spent as --unknown-epsilon.

    Example:

        [bold]veilboost ledger reconcile --config bank.toml --unknown-epsilon 2[/]
    """
    from veilboost.party.backup import known_releases
    from veilboost.party.settings import load_party
    from veilboost.privacy.ledger import Ledger

    settings = load_party(config)
    book, known = Ledger(settings.ledger_file), known_releases(settings, add or ())
    missing = len(set(known) - set(book.releases()))
    text = f"{missing} releases are added, and an epsilon of {unknown_epsilon:g} for unknown ones"
    _confirm(f"{text}; is this all that this party has released since the backup?", yes, as_json)
    added = book.reconcile(known, unknown_epsilon, settings.policy.delta)
    told = {"ledger": str(book.path), "added": added, "unknown_epsilon": unknown_epsilon}
    tell(told, as_json, f"reconciled {escape(str(book.path))}: {added} releases added")


@jobs.command()
def purge(
    config: Config,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", help="Instead of the days under \\[retention].", min=0)
    ] = None,
    what: Annotated[str | None, typer.Option(metavar="WHAT", help="Only runs, transcripts or keys.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete old runs, transcripts and keys of jobs that do not run.

    Lists them first. Ages count from the last use. A deleted run includes this
    party's model share: the model can no longer be used. The ledger stays.

    Examples:

        [bold]veilboost jobs purge --config bank.toml --dry-run[/]

        [bold]veilboost jobs purge --config bank.toml --older-than 30 --what transcripts[/]
    """
    from veilboost.party.retention import delete_expired, find_expired
    from veilboost.party.settings import load_party

    settings = load_party(config)
    found = find_expired(settings, older_than, what)
    if not as_json:
        table = make_table("what", "path", "days", "size", numbers=("days", "size"))
        for each in found:
            table.add_row(each.what, escape(str(each.path)), f"{each.days:.0f}", bytes_text(each.size))
        stdout().print(table if found else "nothing is old enough")
    deleted = []
    if found and not dry_run:
        _confirm(f"{len(found)} items are deleted forever", yes, as_json)
        deleted = delete_expired(settings, found)
    if as_json:
        facts = [{**vars(each), "path": str(each.path)} for each in found]
        print_json({"found": facts, "deleted": [str(each.path) for each in deleted]})
    elif found and not dry_run:
        stdout().print(f"deleted {len(deleted)} of {len(found)}")


def forget(
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="The record id of the person; -: read it from standard input.")
    ],
    config: Config,
    delete: Annotated[bool, typer.Option("--delete", help="Delete what can be deleted.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show what a party holds about one person, and delete what can be deleted.

    Run it before you delete the row from the table: afterwards no file tells
    which runs used it. Deleted files are those of all rows of a job; a job that
    stopped can no longer be resumed, and a run no longer be audited. Models stay
    until you train new ones, and the ledger stays. The id is not logged.

    Examples:

        [bold]veilboost forget - --config bank.toml < id.txt[/]

        [bold]veilboost forget c00017 --config bank.toml --delete[/]
    """
    from veilboost.party.retention import Trace, delete_traces, find_person
    from veilboost.party.settings import load_party

    settings = load_party(config)
    found = find_person(settings, sys.stdin.readline().strip() if identifier == "-" else identifier)
    deleted: Sequence[Trace] = ()
    if delete and any(not each.keep for each in found):
        _confirm("files of all rows of these jobs are deleted forever", yes, as_json)
        deleted = delete_traces(settings, found)
    left = [each for each in found if each not in deleted]
    retrain = sorted({each.path.parent.name for each in found if each.path.name == "share"})
    if as_json:
        facts = [{**vars(each), "path": str(each.path), "deleted": each in deleted} for each in found]
        print_json({"party": settings.name, "found": facts, "retrain": retrain, "ledger": "kept"})
        return
    console = stdout()
    for title, traces in (("deleted", deleted), ("still there", left)):
        for each in traces:
            sure = "" if each.certain else " (perhaps: the table has changed since)"
            why = f": {each.keep}" if each.keep else ""
            console.print(f"[bold]{title}[/] {escape(f'{each.path}{sure}: {each.what}{why}')}", soft_wrap=True)
    if retrain:
        console.print(f"models to train again: {escape(', '.join(retrain))}", soft_wrap=True)
    console.print("the ledger is kept: it counts releases and contains nothing of a person", soft_wrap=True)
    console.print("the other parties of these jobs, and backups, may hold more: ask their owners", soft_wrap=True)
