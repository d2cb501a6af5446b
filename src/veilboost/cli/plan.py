"""`veilboost plan`: predict time, traffic and memory of a job before it starts."""

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
from veilboost.config import ROUNDS
from veilboost.errors import InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.plan.predict import Calibration, Prediction
    from veilboost.protocols.cost import PlannedJob


def plan(
    rows: Annotated[
        float | None,
        typer.Option(help="Number of rows that all parties have in common; horizontal: of all participants. E.g. 1e8."),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Number of columns of each party, the active party first. A single number is divided evenly.",
        ),
    ] = None,
    parties: Annotated[int | None, typer.Option(help="Number of parties; horizontal: of participants.")] = None,
    trees: Annotated[
        int | None,
        typer.Option(
            "--n-estimators",
            "--trees",
            help="Number of boosting rounds.",
            show_default="100; sealed: chosen for its budget",
        ),
    ] = None,
    depth: Annotated[int, typer.Option("--max-depth", "--depth", help="Maximum depth of a tree.")] = 6,
    bins: Annotated[int, typer.Option(help="Number of bins per column.")] = 64,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Plan only this protocol. Repeatable.", show_default="all that fit the parties"
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(metavar="LINE", help="Bandwidth and latency, e.g. 1gbit,20ms, or lan, metro, wan or far."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Repeat the measurements on this machine, some seconds for each protocol."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict time, bytes and memory of a job from small runs on this machine.

    Work is counted in units (values summed, rows encrypted, numbers sent), and
    small runs measure the cost of a unit on this machine. The prediction
    assumes that each party has a machine like this one and uses one thread.
    Measurements are stored in your cache folder, for this release and machine.
    The job is planned as it would run: a protocol that chooses the number and
    the depth of trees itself (sealed, mal) is planned with its own.

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
        raise InvalidParameter(f"there is no protocol {unknown[0]!r}", f"set --protocol to one of {', '.join(every)}")
    if rows is None or features is None:
        if not calibrate:
            raise UnsupportedCombination(
                "--rows or --features is missing", "add --rows and --features, or --calibrate to measure only"
            )
        known = _calibrated(protocol or list(every), again=True)
        tell({"calibrated": list(known)}, as_json, f"measured: {', '.join(known)}")
        return
    count_of_rows = whole_rows(rows)
    columns, count = _columns(features, parties)
    jobs: dict[str, PlannedJob] = {}
    # Columns given for each party mean a vertical job; a single number can mean either setting.
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
                "trees": ROUNDS if trees is None else trees,
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
        raise InvalidParameter(f"--features {features} is not a list of numbers", "write --features 40,60") from None
    if len(given) > 1:
        if parties is not None and parties != len(given):
            raise UnsupportedCombination(
                f"--features is for {len(given)} parties and --parties is {parties}", "remove --parties"
            )
        return tuple(given), len(given)
    count = 2 if parties is None else parties
    if count < 1:
        raise InvalidParameter(f"--parties {count} is less than 1", "set --parties to 1 or more")
    even, rest = divmod(given[0], count)
    return tuple(even + (at < rest) for at in range(count)), count


def _job(
    protocol: str, rows: int, columns: Sequence[int], parties: int, trees: int | None, depth: int, bins: int
) -> PlannedJob:
    from veilboost.config import TrainingConfig
    from veilboost.protocols.cost import PlannedJob
    from veilboost.protocols.registry import protocol_named

    spec = protocol_named(protocol)
    rounds = spec.default_rounds() if trees is None else trees
    config = spec.completed(TrainingConfig(n_estimators=rounds, max_depth=depth, max_bin=bins), rows)
    size = config.n_estimators, config.max_depth, config.max_bin
    if spec.setting == "vertical":
        return PlannedJob(rows, tuple(columns), *size)
    return PlannedJob(rows, (sum(columns),), *size, parties)


def _calibrated(protocols: Sequence[str], again: bool) -> dict[str, Calibration]:
    """The stored measurements of these protocols; missing ones are measured and stored."""
    from rich.progress import BarColumn, Progress, TextColumn

    from veilboost.plan.calibrate import cache_file, calibrate, load_calibrations, save_calibrations

    file = cache_file()
    known = load_calibrations(file)
    wanted = [name for name in protocols if again or name not in known]
    fresh = {} if again else dict(known)  # measurements of other protocols that may be combined
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
    numbers = ("trees", "per tree", "in all", "driver", "slowest other", "network", "sent", "memory")
    table = make_table("protocol", *numbers, numbers=numbers)
    for each in sorted(found, key=lambda prediction: prediction.seconds):
        table.add_row(
            f"[bold]{escape(each.protocol)}[/]",
            f"{each.trees} x {each.depth}",
            seconds_text(each.seconds / each.trees),
            seconds_text(each.seconds),
            seconds_text(each.seconds_here),
            seconds_text(each.seconds_others),
            seconds_text(each.seconds_network) if network is not None else "",
            bytes_text(each.bytes_sent + each.bytes_answered),
            bytes_text(max(each.memory_here, each.memory_others)),
        )
    console.print(table)
    for each in found:
        if each.note:
            console.print(f"{each.protocol}: {each.note}", soft_wrap=True)
    line = "without network time" if network is None else f"over {escape(network)}"
    console.print(
        "\nTrees and their depth are those of a job: sealed and mal choose them. One thread at each party on a machine "
        f"like this one, {line}. The driver is the active party or the server. Memory is that of the party that needs "
        "most.",
        soft_wrap=True,
    )
