"""`veilboost demo`: three parties as separate processes on this machine, from certificates to a model."""

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
        str, typer.Option(metavar="NAME", help="Protocol (veilboost protocols lists them).")
    ] = "lattice",
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for all files, which are kept.", show_default="a temporary folder"),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the files of the temporary folder.")] = False,
) -> None:
    """Train a model between a bank, a shop and a telecom over mutual TLS on this machine.

    Writes certificates and settings, starts the shop and the telecom as
    separate processes, and acts as the bank: it checks their policies, aligns
    the records of common customers by private set intersection (PSI), and
    trains. Then it reports the quality and cost of the model and what each
    party received. All processes are stopped at the end.

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
            stderr().print("stopped; all processes have ended")
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _place(folder: Path | None, keep: bool) -> Generator[tuple[Path, bool]]:
    if folder is not None:
        with writing(folder):
            if folder.exists() and any(folder.iterdir()):
                raise WouldOverwrite(f"{folder} is not empty", "give an empty or a new --folder")
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
    """Prints each step and measures its time."""

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
    with step("files", "a certificate authority, three certificates, three tables, three settings"), writing(folder):
        parties = write_parties(folder, protocol)
    others = [name for name in parties if name != ACTIVE]
    with ExitStack() as running:
        with step("start", f"{' and '.join(others)} as separate processes with mutual TLS"):
            addresses = running.enter_context(serving(*(party_file(folder, name) for name in others)))
        for name, address in zip(others, addresses, strict=True):
            step.console.print(f"  {escape(name)} listens on {escape(address)}")
        job = write_job(folder, protocol, dict(zip(others, addresses, strict=True)))
        federation = Federation(job, party_file(folder, ACTIVE))
        with step("check", "at every party whether the job can start"):
            for name, why in federation.check().errors.items():
                if why is not None:
                    raise PeerRefused(f"{name} cannot take part ({why})")
                step.console.print(f"  {escape(name)} is ready")
        step.console.print(
            "[bold]train[/]: align the records by private set intersection, then grow the trees level by level"
        )
        done = federation.train(console=stderr())
        with step("predict", "new customers of the bank, with all three parties"):
            scores = predict_new(folder, federation)
    seconds = {key: step.seconds[key] for key in ("files", "start", "check")} | done.seconds_by_stage
    with step("compare", "train the baselines: the bank alone, and XGBoost on pooled data"):
        summary = measure(folder, parties, scores)
        with writing(folder):
            save_result(folder, summary)
    _print(step.console, summary, seconds | step.seconds)
    _print_files(step.console, folder, summary if stays else None)
    step.console.print(f"\nmodel sha256 {summary.model.sha256()}\nall processes have ended", soft_wrap=True)


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
    console.print("\n[bold]What each party received[/]")
    print_learned(console, done.learned)
    print_unprotected(console, done, " from the others")


def _print_files(console: Console, folder: Path, done: RunSummary | None) -> None:
    from veilboost.experiment.demo import ACTIVE, runs_of

    console.print("\n[bold]Files[/]")
    if done is None:
        console.print("  removed; --keep or --folder DIR keeps them")
        return
    runs = runs_of(folder, list(done.members))
    for text in (
        f"settings, tables, certificates and logs: {folder}",
        *(f"model share and transcript of {name}: {run}" for name, run in runs.items()),
        f"show the messages: veilboost transcript {runs[ACTIVE]}",
        f"make an HTML report: veilboost report {folder}",
    ):
        console.print(f"  {escape(text)}", soft_wrap=True)
