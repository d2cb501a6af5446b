"""A progress bar over boosting rounds."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from veilboost.boost.booster import RoundResult, Watcher


@contextmanager
def round_bar(rounds: int, console: Console, shown: bool, after: str = "finishing") -> Generator[Watcher]:
    """A bar with the rounds, the time left and the last metric; nothing if `console` is not a terminal.

    `after` says what follows the last round.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("training", total=rounds)

        def watch(result: RoundResult) -> None:
            measured = (
                "" if result.validation is None else f" ({result.metric} {result.validation:.4f} on validation rows)"
            )
            last = result.number + 1 == rounds
            bar.update(task, completed=result.number + 1, description=after if last else f"training{measured}")

        yield watch
