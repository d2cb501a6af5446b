"""`veilboost plan`: what a job would take, before anybody starts it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from veilboost.cli.console import (
    AsJson,
    bytes_text,
    make_table,
    print_json,
    seconds_text,
    stderr,
    stdout,
    tell,
    writing,
)
from veilboost.cli.options import whole_rows
from veilboost.errors import InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.plan.predict import Calibration, Prediction
    from veilboost.protocols.cost import PlannedJob


def plan(
    rows: Annotated[
        float | None, typer.Option(help="Rows that all parties have in common, or in all. As in 1e8.")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="Columns of each party, the active one first; one number is dealt out evenly."
        ),
    ] = None,
    parties: Annotated[
        int | None, typer.Option(help="How many parties; participants, where rows are in different hands.")
    ] = None,
    trees: Annotated[int, typer.Option(help="Rounds of boosting.")] = 100,
    depth: Annotated[int, typer.Option(help="Levels of a tree.")] = 6,
    bins: Annotated[int, typer.Option(help="Bins of a column.")] = 64,
    protocol: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this one. Repeatable.", show_default="all that fit the parties"),
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="LINE", help="The line between the parties, as 1gbit,20ms.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure this machine again, some seconds for each protocol.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict time, bytes and memory of a job from small runs on this machine.

    Work is counted in units (values that are summed, rows that are encrypted,
    numbers that cross), and small runs tell what a unit costs here: each party
    is taken to have a machine like this one and one thread. What was measured
    is kept in the user's cache folder, for this release and machine.

    Examples:

        [bold]veilboost plan --rows 1e8 --features 40,60 --trees 100 --depth 6 --network 1gbit,20ms[/]

        [bold]veilboost plan --rows 1e6 --features 30 --parties 10 --protocol secagg[/]

        [bold]veilboost plan --calibrate[/]
    """
    from veilboost.plan.predict import predict
    from veilboost.protocols.registry import all_protocols, protocols_of
    from veilboost.wire.transcript import Network

    line = None if network is None else Network.parse(network)
    every = all_protocols()
    unknown = [name for name in protocol or () if name not in every]
    if unknown:
        raise InvalidParameter(f"there is no protocol {unknown[0]}", f"choose one of {', '.join(every)}")
    if rows is None or features is None:
        if not calibrate:
            raise UnsupportedCombination("there is no job to plan", "give --rows and --features, or --calibrate")
        known = _calibrated(protocol or list(every), again=True)
        tell({"calibrated": list(known)}, as_json, f"measured: {', '.join(known)}")
        return
    count_of_rows = whole_rows(rows)
    columns, count = _columns(features, parties)
    jobs: dict[str, PlannedJob] = {}
    # Columns party by party mean that they are in different hands; one number may mean either.
    for name in protocol or (protocols_of("vertical") if len(features.split(",")) > 1 else every):
        jobs[name] = _job(name, count_of_rows, columns, count, trees, depth, bins)
    known = _calibrated(list(jobs), again=calibrate)
    found = [predict(name, job, known[name], line) for name, job in jobs.items()]
    if as_json:
        print_json(
            {
                "rows": count_of_rows,
                "features": list(columns),
                "parties": count,
                "trees": trees,
                "depth": depth,
                "bins": bins,
                "network": network,
                "predictions": [each.to_dict() for each in found],
            }
        )
        return
    _print(found, network)


def _columns(features: str, parties: int | None) -> tuple[tuple[int, ...], int]:
    try:
        given = [int(float(word)) for word in features.split(",")]
    except (ValueError, OverflowError):
        raise InvalidParameter(f"--features {features} are no numbers", "write them as 40,60") from None
    if len(given) > 1:
        if parties is not None and parties != len(given):
            raise UnsupportedCombination(
                f"--features names {len(given)} parties and --parties {parties}", "leave --parties out"
            )
        return tuple(given), len(given)
    count = 2 if parties is None else parties
    if count < 1:
        raise InvalidParameter(f"--parties {count} is less than 1")
    even, rest = divmod(given[0], count)
    return tuple(even + (at < rest) for at in range(count)), count


def _job(
    protocol: str, rows: int, columns: Sequence[int], parties: int, trees: int, depth: int, bins: int
) -> PlannedJob:
    from veilboost.protocols.cost import PlannedJob
    from veilboost.protocols.registry import protocol_named

    spec = protocol_named(protocol)
    if spec.setting == "vertical":
        return PlannedJob(rows, tuple(columns), trees, depth, bins)
    return PlannedJob(rows, (sum(columns),), trees, int(spec.fixed.get("max_depth", depth)), bins, parties)


def _calibrated(protocols: Sequence[str], again: bool) -> dict[str, Calibration]:
    """What is known of these protocols here; what is not is measured now, and kept."""
    from rich.progress import BarColumn, Progress, TextColumn

    from veilboost.plan.calibrate import cache_file, calibrate, load_calibrations, save_calibrations

    file = cache_file()
    known = load_calibrations(file)
    wanted = [name for name in protocols if again or name not in known]
    fresh = {} if again else dict(known)  # of which others may be put together
    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        for name in wanted:
            task = bar.add_task(f"measuring {name}")
            fresh[name] = known[name] = calibrate(
                name, lambda done, of, task=task: bar.update(task, completed=done, total=of), fresh
            )
            bar.remove_task(task)
            with writing(file):
                save_calibrations(file, known)
    return {name: known[name] for name in protocols}


def _print(found: Sequence[Prediction], network: str | None) -> None:
    console = stdout()
    numbers = ("per tree", "in all", "driver", "slowest other", "network", "sent", "memory")
    table = make_table("protocol", *numbers, numbers=numbers)
    for each in sorted(found, key=lambda prediction: prediction.seconds):
        table.add_row(
            f"[bold]{escape(each.protocol)}[/]",
            seconds_text(each.seconds / each.trees),
            seconds_text(each.seconds),
            seconds_text(each.seconds_here),
            seconds_text(each.seconds_others),
            seconds_text(each.seconds_network) if network is not None else "",
            bytes_text(each.bytes_sent + each.bytes_answered),
            bytes_text(max(each.memory_here, each.memory_others)),
        )
    console.print(table)
    line = "without the time on the network" if network is None else f"over {escape(network)}"
    console.print(
        f"\nOne thread at each party on a machine like this one, {line}. The driver is the party with the labels, or "
        "the server. Memory is of the party that needs most.",
        soft_wrap=True,
    )
