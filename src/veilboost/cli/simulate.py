"""`veilboost simulate`: all parties in one process, to see what a federation would give."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilboost.cli.console import print_json, stderr, stdout, writing
from veilboost.cli.options import training_options
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.boost.booster import RoundResult, Watcher
    from veilboost.protocols.spec import ProtocolSpec


# Options by the panel of --help that shows them.
_data: Any = partial(typer.Option, rich_help_panel="Data")
_parties: Any = partial(typer.Option, rich_help_panel="Parties")
_testing: Any = partial(typer.Option, rich_help_panel="Testing and baselines")
_output: Any = partial(typer.Option, rich_help_panel="Output")


@training_options
def simulate(
    *,
    data: Annotated[
        list[str] | None,
        _data(
            metavar="FILE",
            help="Table to train on: parquet, csv, arrow, libsvm, or 'sql:SELECT ...'. "
            "Or one per party, aligned by --id: --data bank=b.csv --data shop=s.csv.",
        ),
    ] = None,
    dataset: Annotated[str | None, _data(metavar="NAME", help="A built-in data set (veilboost datasets).")] = None,
    demo_data: Annotated[
        bool, _data("--demo-data", help="The built-in bank, shop and telecom, aligned by id.")
    ] = False,
    label: Annotated[str | None, _data(metavar="COLUMN", help="What to predict.")] = None,
    classes: Annotated[
        str | None,
        _data(metavar="NAME,...", help="The label's classes, where they may not come from the labels (sealed)."),
    ] = None,
    id: Annotated[str | None, _data(metavar="COLUMN", help="Whose row it is.")] = None,
    weight: Annotated[str | None, _data(metavar="COLUMN", help="What rows count.")] = None,
    categorical: Annotated[
        list[str] | None,
        _data(
            metavar="COLUMN",
            help="A column of numbers that are categories; text always is. Repeatable; "
            "NAME=COLUMN where every party has a table of its own.",
        ),
    ] = None,
    constant: Annotated[
        str, _data(metavar="NAME", help="Columns of one value or none at all: error, drop or keep.")
    ] = "error",
    protocol: Annotated[
        str | None,
        _parties(
            metavar="NAME",
            help="How parties talk (veilboost protocols).",
            show_default="plain; with --setting horizontal or --participants secagg",
        ),
    ] = None,
    parties: Annotated[
        int | None,
        _parties(
            help="Deal the columns out to so many parties in contiguous blocks, the active party's first.",
            show_default="2",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        _parties(
            metavar="NAME=COLUMN,...",
            help="A party and its columns, * for all that no other party has. Repeatable; the first is active.",
        ),
    ] = None,
    active: Annotated[
        str | None, _parties(metavar="NAME", help="The party with the label.", show_default="the first")
    ] = None,
    setting: Annotated[
        str | None,
        _parties(
            metavar="NAME",
            help="vertical (columns in different hands) or horizontal (rows are).",
            show_default="the protocol's",
        ),
    ] = None,
    participants: Annotated[
        int | None, _parties(help="Horizontal: deal the rows out to so many participants.", show_default="10")
    ] = None,
    buckets: Annotated[int | None, _parties(help="Horizontal: another name of --max-bin.")] = None,
    eps: Annotated[
        float | None,
        _parties(
            help="The protocol's epsilon (of labels in sealed, of a release in ldp and elxgb, of a bucket in "
            "federboost and mal); inf for no noise, where it can be switched off so."
        ),
    ] = None,
    eps_features: Annotated[
        float | None,
        _parties(help="sealed: epsilon of the passive parties' statistics.", show_default="off: exact sums"),
    ] = None,
    allow_unmasked: Annotated[
        bool,
        _parties("--allow-unmasked", help="mal: send rows whose label no mask can hide (--option guard=allow)."),
    ] = False,
    n_jobs: Annotated[int | None, _parties(help="Threads of each party.", show_default="all cores")] = None,
    engine: Annotated[
        str,
        _parties(
            metavar="NAME",
            help="Where parties compute: local, disk or disk:FOLDER (rows in files), ray (workers on this machine) "
            "or ray://HOST:PORT (a cluster).",
        ),
    ] = "local",
    workers: Annotated[int | None, _parties(help="Workers of --engine ray.", show_default="all cores")] = None,
    test_size: Annotated[
        float | None,
        _testing(
            help="Share of rows kept for testing, drawn by --random-state and ids. In (0, 1).", show_default="0.2"
        ),
    ] = None,
    test_data: Annotated[
        list[str] | None, _testing(metavar="FILE", help="Test on this table instead; given like --data.")
    ] = None,
    validation_size: Annotated[
        float | None, _testing(help="Share of training rows kept for --early-stopping-rounds. In (0, 1).")
    ] = None,
    no_baselines: Annotated[
        bool, _testing("--no-baselines", help="Train neither central XGBoost nor the active party alone.")
    ] = False,
    network: Annotated[
        str | None,
        _output(metavar="LINE", help="Also tell what the messages would take on such a line, as 20mbit,100ms."),
    ] = None,
    audit: Annotated[bool, _output("--audit", help="Also attack the run with what each party saw.")] = False,
    audit_html: Annotated[Path | None, _output(metavar="FILE", help="Write what --audit finds as a page.")] = None,
    save: Annotated[Path | None, _output(metavar="DIR", help="Write every party's part of the model.")] = None,
    out: Annotated[
        Path | None, _output(metavar="DIR", help="Write all that was measured, for veilboost report.")
    ] = None,
    as_json: Annotated[bool, _output("--json", help="Print one JSON object on stdout and nothing else.")] = False,
    config: TrainingConfig,
) -> None:
    """Train a federation in one process and see what it would give.

    Splits the rows into training and test, trains all parties by the very
    messages they would send, and tells how good the model is (the label party
    alone, all together, all columns in one hand), what it cost, and what each
    party was shown of the others.

    Examples:

        [bold]veilboost simulate --demo-data[/]

        [bold]veilboost simulate --data all.csv --label y --parties 3 --json[/]

        [bold]veilboost simulate --data t.csv --label y --columns a=x,z --columns 'b=*'[/]

        [bold]veilboost simulate --demo-data --protocol sealed --objective binary --eps 4[/]

        [bold]veilboost simulate --data t.csv --label y --protocol mal --participants 10 --buckets 18[/]
    """
    from veilboost.cli.options import with_budget, with_option
    from veilboost.cli.runs import print_findings, write_page
    from veilboost.cli.summary import print_summary
    from veilboost.engine.api import check_engine, open_engine
    from veilboost.experiment.problem import DataOptions, load_problem
    from veilboost.experiment.run import RunOptions, run
    from veilboost.model.store import save_model
    from veilboost.protocols.registry import protocol_named
    from veilboost.protocols.validation import settle
    from veilboost.wire.transcript import Network

    # All that is checked here comes before the loading of a large file.
    if demo_data and dataset is not None:
        raise UnsupportedCombination("--demo-data and --dataset are both given", "leave one of them out")
    if n_jobs is not None and n_jobs < 1:
        raise InvalidParameter(f"--n-jobs {n_jobs} is less than 1")
    check_engine(engine, workers)
    if network is not None:
        Network.parse(network)
    horizontal = setting == "horizontal" or (setting is None and participants is not None)
    spec = protocol_named(protocol or ("secagg" if horizontal else "plain"))
    _check_setting(
        spec,
        setting,
        {
            "vertical": {
                "--parties": parties,
                "--columns": columns or None,
                "--active": active,
                "--classes": classes,
                "--engine": None if engine == "local" else engine,
            },
            "horizontal": {
                "--participants": participants,
                "--buckets": buckets,
                "--allow-unmasked": allow_unmasked or None,
            },
        },
    )
    config = with_budget(config, spec, eps, eps_features)
    if allow_unmasked:
        config = with_option(config, spec, "--allow-unmasked", ("guard",), "allow")
    if buckets is not None:
        config = replace(config, max_bin=buckets)
    settle(spec, config)
    options = DataOptions(
        data=data or (),
        dataset="demo" if demo_data else dataset,
        label=label,
        id=id,
        weight=weight,
        categorical=categorical or (),
        constant=constant,
        parties=1 if spec.setting == "horizontal" else parties,
        columns=columns or (),
        active=active,
        test_data=test_data or (),
        test_size=test_size,
        validation_size=validation_size,
        random_state=config.random_state,
    )
    problem = load_problem(options)
    with _progress(config.n_estimators, shown=not as_json) as watcher, open_engine(engine, workers) as opened:
        how = RunOptions(
            threads=n_jobs or _cores(),
            participants=10 if participants is None else participants,
            engine=opened,
            classes=None if classes is None else classes.split(","),
            baselines=not no_baselines,
            audit=audit or audit_html is not None,
            curves=out is not None,
            watcher=watcher,
        )
        done = run(problem, spec, config, how)
    if save is not None:
        with writing(save):
            save_model(done.shares, save)
    if out is not None:
        with writing(out):
            done.facts().save(out)
    if audit_html is not None:
        write_page(audit_html, spec.name, done.findings or (), done.statement)
    line = {} if network is None else done.on_network(network)
    if as_json:
        print_json(done.to_dict() | {"saved": None if save is None else str(save)} | line)
        return
    console = stdout()
    print_summary(console, done, save)
    if done.findings is not None:
        console.print("\n[bold]What attacks with each party's view found[/]\n")
        print_findings(console, done.findings)
    if line:
        console.print(f"\non {network}: {line['network_seconds']:.2f} s under way", soft_wrap=True)


def _check_setting(spec: ProtocolSpec, setting: str | None, options: dict[str, dict[str, Any]]) -> None:
    """The setting must be the protocol's, and options of the other setting are refused."""
    if setting is not None and setting not in options:
        raise InvalidParameter(f"--setting {setting} is neither vertical nor horizontal")
    if setting not in (None, spec.setting):
        raise UnsupportedCombination(f"the protocol {spec.name} is not for the {setting} setting")
    for other, named in options.items():
        wrong = [flag for flag, value in named.items() if value is not None]
        if other != spec.setting and wrong:
            raise UnsupportedCombination(
                f"{spec.name} is {spec.setting}, and {', '.join(wrong)} is for {other} protocols",
                "choose another protocol (veilboost protocols), or leave it out",
            )


@contextmanager
def _progress(trees: int, shown: bool) -> Generator[Watcher]:
    """A bar over the trees, on stderr and only where a person watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = stderr()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as bar:
        task = bar.add_task("training", total=trees)

        def watch(result: RoundResult) -> None:
            measured = "" if result.validation is None else f" ({result.validation:.4f} on validation rows)"
            last = result.number + 1 == trees
            bar.update(task, completed=result.number + 1, description="comparing" if last else f"training{measured}")

        yield watch


def _cores() -> int:
    # Not os.cpu_count(): a container or a scheduler may grant fewer.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
