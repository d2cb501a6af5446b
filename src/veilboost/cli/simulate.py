"""`veilboost simulate`: all parties in one process, to see what a federation would give."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilboost.cli.audit import write_audit_page
from veilboost.cli.console import print_json, stderr, stdout, writing
from veilboost.cli.options import training_options
from veilboost.config import TrainingConfig
from veilboost.errors import ImpossibleParameter, UnsupportedCombination

if TYPE_CHECKING:
    from veilboost.boost.booster import RoundResult, Watcher

DATA, PARTIES, TESTING, OUTPUT = "Data", "Parties", "Testing and baselines", "Output"
SCENE = "scene"


@training_options
def simulate(
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="FILE",
            help="Table to train on: parquet, csv, arrow, libsvm, or 'sql:SELECT ...'. "
            "Or one per party, aligned by --id: --data bank=b.csv --data shop=s.csv.",
            rich_help_panel=DATA,
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", metavar="NAME", help="A built-in data set (veilboost datasets).", rich_help_panel=DATA
        ),
    ] = None,
    scene: Annotated[
        bool,
        typer.Option("--scene", help="The built-in bank, shop and telecom, aligned by id.", rich_help_panel=DATA),
    ] = False,
    label: Annotated[
        str | None, typer.Option("--label", metavar="COLUMN", help="What to predict.", rich_help_panel=DATA)
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            "--classes",
            metavar="NAME,...",
            help="The label's classes, where they may not come from the labels (sealed).",
            rich_help_panel=DATA,
        ),
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Whose row it is.", rich_help_panel=DATA)
    ] = None,
    weight: Annotated[
        str | None, typer.Option("--weight", metavar="COLUMN", help="What rows count.", rich_help_panel=DATA)
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            "--categorical",
            metavar="COLUMN",
            help="A column of numbers that are categories; text always is. Repeatable; "
            "NAME=COLUMN where every party has a table of its own.",
            rich_help_panel=DATA,
        ),
    ] = None,
    constant: Annotated[
        str,
        typer.Option(
            "--constant",
            metavar="NAME",
            help="Columns of one value or none at all: error, drop or keep.",
            rich_help_panel=DATA,
        ),
    ] = "error",
    protocol: Annotated[
        str,
        typer.Option(
            "--protocol", metavar="NAME", help="How parties talk (veilboost protocols).", rich_help_panel=PARTIES
        ),
    ] = "plain",
    parties: Annotated[
        int | None,
        typer.Option(
            "--parties",
            help="Deal the columns out to so many parties in contiguous blocks, the active party's first.",
            show_default="2",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="NAME=COLUMN,...",
            help="A party and its columns, * for all that no other party has. Repeatable; the first is active.",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    active: Annotated[
        str | None,
        typer.Option(
            "--active",
            metavar="NAME",
            help="The party with the label.",
            show_default="the first",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    setting: Annotated[
        str | None,
        typer.Option(
            "--setting",
            metavar="NAME",
            help="vertical (columns in different hands) or horizontal (rows are).",
            show_default="the protocol's",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    participants: Annotated[
        int | None,
        typer.Option(
            "--participants",
            help="Horizontal: deal the rows out to so many participants.",
            show_default="10",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option("--buckets", help="Horizontal: another name of --max-bin.", rich_help_panel=PARTIES),
    ] = None,
    eps: Annotated[
        float | None,
        typer.Option(
            "--eps",
            help="The protocol's epsilon (of labels in sealed, of a release in ldp and elxgb, of a bucket in "
            "federboost and mal); inf for no noise, where it can be switched off so.",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    eps_features: Annotated[
        float | None,
        typer.Option(
            "--eps-features",
            help="sealed: epsilon of the passive parties' statistics.",
            show_default="off: exact sums",
            rich_help_panel=PARTIES,
        ),
    ] = None,
    allow_unmasked: Annotated[
        bool,
        typer.Option(
            "--allow-unmasked",
            help="mal: send rows whose label no mask can hide (--option guard=allow).",
            rich_help_panel=PARTIES,
        ),
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option("--threads", help="Threads of each party.", show_default="all cores", rich_help_panel=PARTIES),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="NAME",
            help="Where parties compute: local, disk or disk:FOLDER (rows in files), ray (workers on this machine) "
            "or ray://HOST:PORT (a cluster).",
            rich_help_panel=PARTIES,
        ),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Workers of --engine ray.", show_default="all cores", rich_help_panel=PARTIES),
    ] = None,
    test_size: Annotated[
        float | None,
        typer.Option(
            "--test-size",
            help="Share of rows kept for testing, drawn by --seed and ids. In (0, 1).",
            show_default="0.2",
            rich_help_panel=TESTING,
        ),
    ] = None,
    test_data: Annotated[
        list[str] | None,
        typer.Option(
            "--test-data",
            metavar="FILE",
            help="Test on this table instead; given like --data.",
            rich_help_panel=TESTING,
        ),
    ] = None,
    validation_size: Annotated[
        float | None,
        typer.Option(
            "--validation-size",
            help="Share of training rows kept for --early-stopping-rounds. In (0, 1).",
            rich_help_panel=TESTING,
        ),
    ] = None,
    no_baselines: Annotated[
        bool,
        typer.Option(
            "--no-baselines",
            help="Train neither central XGBoost nor the active party alone.",
            rich_help_panel=TESTING,
        ),
    ] = False,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="LINE",
            help="Also tell what the messages would take on such a line, as 20mbit,100ms.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Also attack the run with what each party saw.", rich_help_panel=OUTPUT),
    ] = False,
    audit_html: Annotated[
        Path | None,
        typer.Option(
            "--audit-html", metavar="FILE", help="Write what --audit finds as a page.", rich_help_panel=OUTPUT
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", help="Write every party's part of the model.", rich_help_panel=OUTPUT),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Write all that was measured, for veilboost report.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.", rich_help_panel=OUTPUT)
    ] = False,
    config: TrainingConfig,
) -> None:
    """Train a federation in one process and see what it would give.

    Splits the rows into training and test, trains all parties by the very
    messages they would send, and tells how good the model is (the label party
    alone, all together, all columns in one hand), what it cost, and what each
    party was shown of the others.

    Examples:

        [bold]veilboost simulate --scene[/]

        [bold]veilboost simulate --data all.csv --label y --parties 3 --json[/]

        [bold]veilboost simulate --data t.csv --label y --columns a=x,z --columns 'b=*'[/]

        [bold]veilboost simulate --scene --protocol sealed --objective binary --eps 4[/]

        [bold]veilboost simulate --data t.csv --label y --protocol mal --participants 10 --buckets 18[/]
    """
    from veilboost.cli.experiment import run_experiment, summary
    from veilboost.cli.horizontal import HorizontalChoices, network_summary, run_horizontal, tell_horizontal
    from veilboost.cli.options import with_budget
    from veilboost.cli.problem import SplitOptions, load_problem
    from veilboost.cli.report import print_report
    from veilboost.cli.tables import TableOptions
    from veilboost.engine.opening import check_engine, open_engine
    from veilboost.protocols.registry import protocol_named

    if scene and dataset is not None:
        raise UnsupportedCombination("--scene and --dataset are both given", "leave one of them out")
    if threads is not None and threads < 1:
        raise ImpossibleParameter(f"--threads {threads} is less than 1")
    check_engine(engine, workers)
    choices = HorizontalChoices(participants, buckets, allow_unmasked)
    horizontal = _is_horizontal(protocol, setting)
    # A wrong name should not cost the loading of a large file.
    if horizontal:
        if engine != "local":
            raise UnsupportedCombination("--engine is for vertical protocols", "leave it out")
        if classes is not None:
            raise UnsupportedCombination("--classes is for vertical protocols", "leave it out")
        if parties is not None or columns or active is not None:
            raise UnsupportedCombination("--parties, --columns and --active are for columns in different hands")
        dealt_out = protocol_named(protocol, "horizontal")
        config = with_budget(config, protocol, dealt_out.options, eps, eps_features)
        choices.applied(dealt_out, config)
        parties = 1
    elif choices.any:
        raise UnsupportedCombination(
            f"{protocol} is vertical, and --participants, --buckets and --allow-unmasked are not",
            "choose mal or secagg, or leave them out",
        )
    else:
        spec = protocol_named(protocol)
        config = with_budget(config, protocol, spec.options, eps, eps_features)
        spec.options.from_dict(config.options)
    options = TableOptions(
        data=data or (),
        dataset=SCENE if scene else dataset,
        label=label,
        id=id,
        weight=weight,
        categorical=categorical or (),
        constant=constant,
        parties=parties,
        columns=columns or (),
        active=active,
    )
    problem = load_problem(options, SplitOptions(test_data or (), test_size, validation_size, config.seed))
    attacked = audit or audit_html is not None
    if horizontal:
        with _progress(config.n_estimators, shown=not as_json) as watcher:
            dealt = run_horizontal(
                problem, protocol, config, choices, threads or _cores(), not no_baselines, watcher, attacked
            )
        if audit_html is not None:
            write_audit_page(audit_html, protocol, dealt.findings or (), dealt.statement)
        tell_horizontal(dealt, network, save, as_json)
        if out is not None:
            from veilboost.cli.saved import facts_of_horizontal

            with writing(out):
                facts_of_horizontal(dealt, problem).save(out)
        return
    with _progress(config.n_estimators, shown=not as_json) as watcher, open_engine(engine, workers) as opened:
        done = run_experiment(
            problem,
            protocol,
            config,
            threads or _cores(),
            not no_baselines,
            watcher,
            attacked,
            opened,
            None if classes is None else classes.split(","),
        )
    if save is not None:
        from veilboost.model.store import save_model

        with writing(save):
            save_model(done.run.parts, save)
    if out is not None:
        from veilboost.cli.saved import facts_of_experiment

        with writing(out):
            facts_of_experiment(done).save(out)
    line = {}
    if network is not None:
        line = network_summary(network, done.run.rounds, done.run.bytes_sent, done.run.bytes_sent)
    if audit_html is not None:
        write_audit_page(audit_html, protocol, done.findings or (), done.statement)
    if as_json:
        print_json(summary(done) | {"saved": None if save is None else str(save)} | line)
    else:
        print_report(done, not no_baselines, save)
        if done.findings is not None:
            from veilboost.cli.audit import print_findings

            stdout().print("\n[bold]What attacks with each party's view found[/]\n")
            print_findings(stdout(), done.findings)
        if line:
            stdout().print(f"\non {network}: {line['network_seconds']:.2f} s under way", soft_wrap=True)


def _is_horizontal(protocol: str, setting: str | None) -> bool:
    """Where rows are in different hands: what the protocol is for, and what was said must agree."""
    from veilboost.protocols.registry import protocols_of

    found = protocol in protocols_of("horizontal")
    if setting not in {None, "vertical", "horizontal"}:
        raise ImpossibleParameter(f"--setting {setting} is neither vertical nor horizontal")
    if setting is not None and (setting == "horizontal") != found:
        raise UnsupportedCombination(f"the protocol {protocol} is not for the {setting} setting")
    return found


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
