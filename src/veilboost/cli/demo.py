"""`veilboost demo`: three parties as processes of their own, on this machine, from certificates to a model."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import bytes_text, indented, seconds_text, stderr, stdout, writing
from veilboost.errors import PeerRefused, WouldOverwrite

if TYPE_CHECKING:
    from rich.console import Console

    from veilboost.experiment.summary import RunSummary

INTERRUPTED = 130


def demo(
    protocol: Annotated[
        str, typer.Option(metavar="NAME", help="How the parties talk (veilboost protocols).")
    ] = "lattice",
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to put all files; they stay.", show_default="a temporary folder"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the files of the temporary folder there.")] = False,
) -> None:
    """Watch a bank, a shop and a telecom train together over mutual TLS.

    Makes certificates and settings, starts the shop and the telecom as processes
    of their own on this machine, and is the bank: asks them, aligns the rows of
    common customers without showing ids, trains. Then says what it gave and
    cost, and what each party saw. Leaves nothing running.

    Examples:

        [bold]veilboost demo[/]

        [bold]veilboost demo --folder town[/]
    """
    from veilboost.experiment.demo import ended_by_signals
    from veilboost.protocols.registry import protocol_named

    protocol_named(protocol)
    with ended_by_signals(), _place(folder, keep) as (place, stays):
        try:
            _show(place, protocol, stays)
        except KeyboardInterrupt:
            stderr().print("stopped; nothing is left running")
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _place(folder: Path | None, keep: bool) -> Generator[tuple[Path, bool]]:
    if folder is not None:
        with writing(folder):
            if folder.exists() and any(folder.iterdir()):
                raise WouldOverwrite(f"{folder} is not empty", "choose another folder")
            folder.mkdir(parents=True, exist_ok=True)
        yield folder, True
        return
    made = Path(tempfile.mkdtemp(prefix="veilboost-demo-"))
    try:
        yield made, keep
    finally:
        if not keep:
            shutil.rmtree(made, ignore_errors=True)


class _Steps:
    """Says what is done, and how long it took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, title: str, text: str) -> Generator[None]:
        self.console.print(f"[bold]{title}[/]: {text}")
        began = time.perf_counter()
        yield
        self.seconds[title] = time.perf_counter() - began


def _show(folder: Path, protocol: str, stays: bool) -> None:
    from veilboost.experiment.demo import (
        ACTIVE,
        measure,
        party_file,
        predict_new,
        save_result,
        serving,
        write_job,
        write_parties,
    )
    from veilboost.party.federation import Federation

    step = _Steps(stdout())
    with step("files", "an authority, three certificates, three tables, three settings"), writing(folder):
        parties = write_parties(folder, protocol)
    others = [name for name in parties if name != ACTIVE]
    with ExitStack() as running:
        with step("start", f"{' and '.join(others)} as processes, listening with mutual TLS"):
            addresses = running.enter_context(serving(*(party_file(folder, name) for name in others)))
        for name, address in zip(others, addresses, strict=True):
            step.console.print(f"  {escape(name)} listens on {escape(address)}")
        job = write_job(folder, protocol, dict(zip(others, addresses, strict=True)))
        federation = Federation(job, party_file(folder, ACTIVE))
        with step("check", f"do the policies of {' and '.join(others)} allow the job?"):
            for name, why in federation.check().items():
                if why is not None:
                    raise PeerRefused(f"{name} would not take part ({why})")
                step.console.print(f"  {escape(name)} accepts")
        step.console.print("[bold]train[/]: ids are matched blinded, then the trees grow level by level")
        done = federation.train(console=stderr())
        with step("predict", "all three for new customers of the bank, whom nobody trained on"):
            scores = predict_new(folder, federation)
    seconds = {key: step.seconds[key] for key in ("files", "start", "check")} | done.seconds_by_stage
    with step("compare", "the bank alone, and all columns in one hand"):
        summary = measure(folder, parties, scores)
        with writing(folder):
            save_result(folder, summary)
    _print(step.console, summary, seconds | step.seconds)
    _print_files(step.console, folder, summary if stays else None)
    step.console.print(f"\nmodel sha256 {summary.model.sha256()}\nnothing is left running", soft_wrap=True)


def _print(console: Console, done: RunSummary, seconds: Mapping[str, float]) -> None:
    from veilboost.cli.summary import print_learned, print_quality, print_unprotected

    console.rule()
    console.print(
        f"[bold]{escape(done.spec.name)}[/]: {done.trees} rounds on {done.rows_train} common customers, "
        f"tested on {done.rows_test} others"
    )
    print_quality(console, done)
    console.print("\n[bold]Seconds[/]")
    listed = ", ".join(f"{name} {seconds_text(value)}" for name, value in seconds.items())
    indented(console, f"{listed}; {seconds_text(sum(seconds.values()))} in all")
    console.print("\n[bold]Bytes sent[/]")
    indented(console, ", ".join(f"{escape(name)} {bytes_text(size)}" for name, size in done.bytes_sent.items()))
    console.print("\n[bold]What each party saw[/]")
    print_learned(console, done.learned)
    print_unprotected(console, done, " from the others")


def _print_files(console: Console, folder: Path, done: RunSummary | None) -> None:
    from veilboost.experiment.demo import ACTIVE, runs_of

    console.print("\n[bold]Files[/]")
    if done is None:
        console.print("  removed; with --keep or --folder DIR they stay")
        return
    runs = runs_of(folder, list(done.members))
    for text in (
        f"settings, tables, certificates and logs: {folder}",
        *(f"what {name} has of the model, and its transcript: {run}" for name, run in runs.items()),
        f"look closer: veilboost transcript {runs[ACTIVE]}",
        f"all of it as a page: veilboost report {folder}",
    ):
        console.print(f"  {escape(text)}", soft_wrap=True)
