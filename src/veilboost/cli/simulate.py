"""`veilboost simulate`: train a federation with all parties in one process."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from veilboost.cli.console import print_json, stderr, stdout, writing
from veilboost.cli.options import training_options
from veilboost.config import TrainingConfig
from veilboost.errors import InvalidParameter, UnsupportedCombination

if TYPE_CHECKING:
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
            help="Training table: parquet, csv, arrow, libsvm, or 'sql:SELECT ...'. "
            "Or one table per party, aligned by --id: --data bank=b.csv --data shop=s.csv.",
        ),
    ] = None,
    dataset: Annotated[
        str | None, _data(metavar="NAME", help="Built-in data set (veilboost datasets lists them).")
    ] = None,
    demo_data: Annotated[
        bool, _data("--demo-data", help="Demo data set: tables of a bank, a shop and a telecom, aligned by id.")
    ] = False,
    label: Annotated[str | None, _data(metavar="COLUMN", help="Label column, the target to predict.")] = None,
    classes: Annotated[
        str | None,
        _data(metavar="NAME,...", help="Class names, if the protocol may not derive them from the labels (sealed)."),
    ] = None,
    id: Annotated[str | None, _data(metavar="COLUMN", help="Record-id column.")] = None,
    weight: Annotated[str | None, _data(metavar="COLUMN", help="Sample-weight column.")] = None,
    categorical: Annotated[
        list[str] | None,
        _data(
            metavar="COLUMN",
            help="Numeric column that holds categories; text columns always do. Repeatable. "
            "NAME=COLUMN if every party has its own table.",
        ),
    ] = None,
    constant: Annotated[str, _data(metavar="NAME", help="Constant and empty columns: error, drop or keep.")] = "error",
    protocol: Annotated[
        str | None,
        _parties(
            metavar="NAME",
            help="Protocol (veilboost protocols lists them).",
            show_default="plain; secagg with --setting horizontal or --participants",
        ),
    ] = None,
    parties: Annotated[
        int | None,
        _parties(
            help="Number of parties. Columns are partitioned into contiguous blocks, the first for the active party.",
            show_default="2",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        _parties(
            metavar="NAME=COLUMN,...",
            help="A party and its columns; *: all columns that no other party has. Repeatable; the first is active.",
        ),
    ] = None,
    active: Annotated[
        str | None, _parties(metavar="NAME", help="The active party, which holds the label.", show_default="the first")
    ] = None,
    setting: Annotated[
        str | None,
        _parties(
            metavar="NAME",
            help="vertical (vertically partitioned data) or horizontal (horizontally partitioned data).",
            show_default="the protocol's",
        ),
    ] = None,
    participants: Annotated[
        int | None,
        _parties(help="Horizontal: number of participants. Rows are partitioned among them.", show_default="10"),
    ] = None,
    buckets: Annotated[int | None, _parties(help="Horizontal: alias of --max-bin.")] = None,
    eps: Annotated[
        float | None,
        _parties(
            help="Epsilon of the protocol: for labels in sealed, for a release in ldp and elxgb, for a bucket in "
            "federboost and mal. inf: no noise, if the protocol permits it."
        ),
    ] = None,
    eps_features: Annotated[
        float | None,
        _parties(help="sealed: epsilon for the statistics of the passive parties.", show_default="off: exact sums"),
    ] = None,
    allow_unmasked: Annotated[
        bool,
        _parties("--allow-unmasked", help="mal: also send rows whose label no mask can hide (--option guard=allow)."),
    ] = False,
    n_jobs: Annotated[int | None, _parties(help="Number of threads of each party.", show_default="all cores")] = None,
    engine: Annotated[
        str,
        _parties(
            metavar="NAME",
            help="Where the parties compute: local, disk or disk:FOLDER (rows in files), ray (workers on this machine) "
            "or ray://HOST:PORT (a cluster).",
        ),
    ] = "local",
    workers: Annotated[
        int | None, _parties(help="Number of workers of --engine ray.", show_default="all cores")
    ] = None,
    test_size: Annotated[
        float | None,
        _testing(
            help="Fraction of rows held out for testing, sampled by --random-state and ids. In (0, 1).",
            show_default="0.2",
        ),
    ] = None,
    test_data: Annotated[
        list[str] | None, _testing(metavar="FILE", help="Test on this table instead. Same form as --data.")
    ] = None,
    validation_size: Annotated[
        float | None, _testing(help="Fraction of training rows held out for --early-stopping-rounds. In (0, 1).")
    ] = None,
    no_baselines: Annotated[
        bool,
        _testing(
            "--no-baselines", help="Do not train the baselines: XGBoost on pooled data, and the active party alone."
        ),
    ] = False,
    continue_from: Annotated[
        Path | None,
        _testing(
            metavar="DIR",
            help="Add rounds to the model in this folder of --save. No baselines are trained. Not with --audit.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        _output(
            metavar="LINE", help="Also report the transfer time of the messages on such a network, e.g. 20mbit,100ms."
        ),
    ] = None,
    audit: Annotated[bool, _output("--audit", help="Also run the attacks on what each party received.")] = False,
    audit_html: Annotated[
        Path | None, _output(metavar="FILE", help="Write the findings of --audit as an HTML page.")
    ] = None,
    save: Annotated[
        Path | None, _output(metavar="DIR", help="Write the model shares of all parties to this folder.")
    ] = None,
    out: Annotated[
        Path | None, _output(metavar="DIR", help="Write all measurements to this folder, for veilboost report.")
    ] = None,
    as_json: Annotated[bool, _output("--json", help="Print one JSON object on stdout and nothing else.")] = False,
    config: TrainingConfig,
) -> None:
    """Train a federation with all parties in one process, and report quality, cost and leakage.

    Splits the rows into training and test rows and trains with the same
    messages as separate parties would exchange. Reports the quality of three
    models (the active party alone, all parties together, XGBoost on pooled
    data), time and bytes, and what each party learned about the others.

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
    from veilboost.model.store import load_shares, save_model
    from veilboost.progress import round_bar
    from veilboost.protocols.registry import protocol_named
    from veilboost.protocols.validation import check_start, settle
    from veilboost.wire.transcript import Network

    # Validate before loading a large file.
    if demo_data and dataset is not None:
        raise UnsupportedCombination("--demo-data and --dataset are both given", "remove one of them")
    if n_jobs is not None and n_jobs < 1:
        raise InvalidParameter(f"--n-jobs {n_jobs} is less than 1", "set --n-jobs to 1 or more")
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
    earlier = None
    if continue_from is not None:
        if audit or audit_html is not None:
            raise UnsupportedCombination(
                "an audit replays a model from its first tree, and --continue-from has trees of an earlier training",
                "remove --audit or --continue-from",
            )
        check_start(spec, config)
        earlier = load_shares(continue_from)
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
    rounds = spec.completed(config, problem.train[problem.active].rows).n_estimators
    with round_bar(rounds, stderr(), not as_json, "comparing") as watcher, open_engine(engine, workers) as opened:
        how = RunOptions(
            threads=n_jobs or _cores(),
            participants=10 if participants is None else participants,
            engine=opened,
            classes=None if classes is None else classes.split(","),
            baselines=not no_baselines and earlier is None,
            audit=audit or audit_html is not None,
            curves=out is not None,
            watcher=watcher,
            earlier=earlier,
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
        console.print("\n[bold]Findings of attacks with each party's view[/]\n")
        print_findings(console, done.findings)
    if line:
        console.print(f"\non {escape(str(network))}: {line['network_seconds']:.2f} s in transit", soft_wrap=True)


def _check_setting(spec: ProtocolSpec, setting: str | None, options: dict[str, dict[str, Any]]) -> None:
    """Refuse a setting that is not the protocol's, and options of the other setting."""
    if setting is not None and setting not in options:
        raise InvalidParameter(
            f"--setting {setting} is neither vertical nor horizontal", "set --setting to vertical or horizontal"
        )
    if setting not in (None, spec.setting):
        raise UnsupportedCombination(
            f"the protocol {spec.name} is {spec.setting}, and --setting is {setting}",
            "remove --setting, or set another --protocol (veilboost protocols lists them)",
        )
    for other, named in options.items():
        wrong = [flag for flag, value in named.items() if value is not None]
        if other != spec.setting and wrong:
            raise UnsupportedCombination(
                f"the protocol {spec.name} is {spec.setting}, and {', '.join(wrong)} is for {other} protocols",
                f"remove {', '.join(wrong)}, or set another --protocol (veilboost protocols lists them)",
            )


def _cores() -> int:
    # Not os.cpu_count(): a container or a scheduler may allow fewer.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
