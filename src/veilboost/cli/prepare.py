"""`veilboost prepare`: what can be done before a job starts."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import print_json, seconds_text, stdout


def prepare(
    job: Annotated[Path, typer.Argument(metavar="JOB", help="The job's file (veilboost init job).")],
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="This party's settings.")],
    only: Annotated[
        str | None, typer.Option("--only", metavar="WHAT", help="Do one part: ids or encryption.", show_default="all")
    ] = None,
    trees: Annotated[
        int, typer.Option("--trees", min=1, max=10_000, help="Trees to encrypt for: elxgb encrypts the first.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Do now what a job need not wait for: hash this party's ids, and encrypt.

    Ids: at every party with a table, if the job aligns by hmac_csp. The job's
    authority must be there (veilboost party serve): it gives the key, which
    serves one alignment. If ids have changed when the job runs, or the key
    has, they are hashed again; veilboost jobs show says which it was.

    Encryption: at the active party, if the job encrypts by Paillier: elxgb,
    whose first tree this is, and paillier, with --trees for more than the
    first. It needs nobody else, and says nothing of labels.

    What is kept, in the runs folder, is for your eyes only. The job takes it
    and removes it.

    Examples:

        [bold]veilboost prepare credit.toml --config bank.toml[/]

        [bold]veilboost prepare credit.toml --config shop.toml --only ids[/]

        [bold]veilboost prepare credit.toml --config bank.toml --trees 20[/]
    """
    from veilboost.party.job import load_job
    from veilboost.party.precompute import prepare as prepare_job
    from veilboost.party.settings import load_party

    made = prepare_job(load_party(config), load_job(job), trees, only)
    if as_json:
        parts = asdict(made).items()
        print_json({name: part and {**part, "file": str(part["file"])} for name, part in parts})
        return
    if made.ids is not None:
        _tell(f"the ids of {made.ids.rows} rows lie hashed", made.ids.file, made.ids.seconds)
    if made.encryption is not None:
        what = f"{made.encryption.encryptions} encryptions with a key of {made.encryption.key_bits} bits lie ready"
        _tell(what, made.encryption.file, made.encryption.seconds)


def _tell(what: str, file: Path, seconds: float) -> None:
    stdout().print(f"{what} in {escape(str(file))}, in {seconds_text(seconds)}", soft_wrap=True)
