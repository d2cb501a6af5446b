"""Writes the reference pages that are made from the source, so that they cannot lag behind it.

python docs/make_reference.py            write the pages
python docs/make_reference.py --check    write nothing; name the pages that are not up to date, exit 1
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich.text import Text

from veilboost.align.api import all_alignments
from veilboost.align.slots import SLOT_MESSAGES
from veilboost.boost.metrics import metric_named
from veilboost.boost.objective import LOSSES, CustomObjective
from veilboost.cli.main import REFUSED, app
from veilboost.cli.options import option_flag
from veilboost.config import METRICS, TrainingConfig
from veilboost.errors import VeilBoostError, coded_errors
from veilboost.estimators import VerticalClassifier
from veilboost.estimators.vertical import VerticalParameters
from veilboost.fields import info_of
from veilboost.infer.messages import EXPLANATION_MESSAGES, PREDICTION_MESSAGES
from veilboost.party.messages import CONTROL_MESSAGES
from veilboost.party.settings import Limits, LoggingSettings, PartySettings
from veilboost.privacy.statement import Statement
from veilboost.protocols.registry import BUILT_IN, all_protocols, protocol_named
from veilboost.protocols.spec import ProtocolSpec
from veilboost.protocols.validation import ResolvedJob, validate
from veilboost.secure_inference.messages import SECURE_MESSAGES
from veilboost.wire.message import ArraySpec, Message

REFERENCE = Path(__file__).resolve().parent / "reference"
MADE = "<!-- Made by docs/make_reference.py. Do not edit: change the source it is made from. -->"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def page(title: str, *blocks: str | Sequence[str]) -> str:
    """Blocks (a paragraph, or the lines of a list, a table or code) with an empty line between each two."""
    texts = [block if isinstance(block, str) else "\n".join(block) for block in blocks]
    return "\n\n".join([f"# {title}", MADE, *texts]) + "\n"


# --- parameters -------------------------------------------------------------------------------------------


def _options_tables() -> list[str | Sequence[str]]:
    blocks: list[str | Sequence[str]] = []
    for spec in all_protocols().values():
        rows = [
            (
                f"`{item.name}`",
                str(item.type).removesuffix(" | None"),
                "unset" if item.default is None else f"`{item.default}`",
                info_of(item).range_text() if item.type != "bool" else "true, false",
                info_of(item).help,
            )
            for item in dataclasses.fields(spec.options)
        ]
        if rows:
            blocks += [f"### `{spec.name}`", table(("option", "type", "default", "range", "meaning"), rows)]
    return blocks


def parameters_page() -> str:
    fields = dataclasses.fields(TrainingConfig)
    rows = [
        (
            f"`{item.name}`",
            f"`{option_flag(item)}`",
            str(item.type).removesuffix(" | None"),
            "unset" if item.default in {None, dataclasses.MISSING} else f"`{info_of(item).shown(item.default)}`",
            info_of(item).range_text() if item.type != "bool" else "true, false",
            info_of(item).help,
        )
        for item in fields
    ]
    documented = _documented(VerticalParameters)
    own = [
        (f"`{name}`", "unset" if item.default is None else f"`{item.default!r}`", *documented[name])
        for name, item in inspect.signature(VerticalClassifier).parameters.items()
        if name not in TrainingConfig.names() or name == "options"
    ]
    losses = (*LOSSES, CustomObjective)
    return page(
        "Parameters",
        "The parameters of boosting, with XGBoost's names where XGBoost has them. The left name is for the estimators "
        "and `TrainingConfig`, the option is for `veilboost simulate`. [How to choose them](../how-to/"
        "choose-parameters.md). A value outside its range is refused with [VB-1002](errors/VB-1002.md).",
        "## Of boosting",
        table(("parameter", "option", "type", "default", "range", "meaning"), rows),
        "## Of the estimators only",
        "The command line has options of its own for these: see [the commands](cli.md).",
        table(("parameter", "default", "type", "meaning"), own),
        "## Of the protocols",
        "Given as `options={...}` to the estimators, as `--option NAME=VALUE` to `veilboost simulate`, and under "
        "`[training.options]` in a job's file. A protocol that is not listed has none.",
        *_options_tables(),
        "## Limits of a party",
        "Under `[limits]` in the settings of a party. They bind every peer, and hold for each peer by itself "
        "([why](../adr/0035-limits.md)).",
        table(
            ("key", "default", "range", "meaning"),
            [
                (f"`{item.name}`", f"`{item.default}`", info_of(item).range_text(), info_of(item).help)
                for item in dataclasses.fields(Limits)
            ],
        ),
        "## Log and metrics of a party",
        "Under `[logging]`, and at the top, in the settings of a party ([how to use them](../how-to/"
        "monitor-a-party.md)).",
        table(
            ("key", "default", "range", "meaning"),
            [
                (
                    f"`{item.name}`",
                    "unset" if item.default is None else f"`{item.default}`",
                    info_of(item).range_text(),
                    info_of(item).help,
                )
                for item in (*dataclasses.fields(LoggingSettings), *dataclasses.fields(PartySettings))
                if item.name == "metrics" or item in dataclasses.fields(LoggingSettings)
            ],
        ),
        "## Objectives",
        "On the command line `auto` means: two values 0 and 1, or up to two text classes, are `binary`; three or more "
        "text classes, or whole numbers 0, 1, ..., K-1 without gaps (3 to 100 of them), are `multiclass`; anything "
        "else is `regression`. `VerticalClassifier` takes `binary` for two classes and `multiclass` for more, "
        "`VerticalRegressor` takes `regression`. A function `(y_true, y_pred) -> (g, h)` is `custom`, for the "
        "estimators only.",
        table(
            ("objective", "in XGBoost", "metric that `auto` means"),
            [
                (f"`{loss.name}`", f"`{loss.xgboost_name}`" if loss.xgboost_name else "-", f"`{loss.default_metric}`")
                for loss in losses
            ],
        ),
        "Which objectives a protocol trains at its default options, as validation answers:",
        table(("protocol", "trains", "refuses, and why"), map(_objectives_of, all_protocols().values())),
        "## Metrics",
        table(
            ("metric", "better is", "meaning"),
            [
                (
                    f"`{name}`",
                    "higher" if metric_named(name).higher_is_better else "lower",
                    (inspect.getdoc(metric_named(name).function) or "").split("\n\n")[0],
                )
                for name in METRICS
                if name != "auto"
            ],
        ),
    )


def _objectives_of(spec: ProtocolSpec) -> tuple[str, str, str]:
    """The objectives that a protocol trains, and for each reason those that it refuses."""
    trained, refused = list[str](), dict[str, list[str]]()
    for loss in (*LOSSES, CustomObjective):
        custom = loss is CustomObjective
        config = spec.settled(TrainingConfig(objective="regression" if custom else loss.name))
        classes = ("0", "1", "2")[: 3 if loss.name == "multiclass" else 2]
        try:
            validate(ResolvedJob(spec, config, custom_loss=_no_loss if custom else None, classes=classes))
        except VeilBoostError as error:
            what = error.what.replace(f"; objective is {config.objective!r}", "")
            what = what.replace(f"objective {config.objective!r}", "these objectives")
            refused.setdefault(f"{what} ({error.remedy})", []).append(f"`{loss.name}`")
        else:
            trained.append(f"`{loss.name}`")
    whole = "all" if not refused else ", ".join(trained)
    return f"`{spec.name}`", whole, "; ".join(f"{', '.join(names)}: {reason}" for reason, names in refused.items())


def _no_loss(y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    return y_pred, y_true


def _documented(cls: type) -> dict[str, tuple[str, str]]:
    """Type and meaning of each parameter in a NumPy docstring."""
    found = re.findall(r"^(\w+) : (.+)\n((?: {4}.+\n?)+)", inspect.getdoc(cls) or "", flags=re.MULTILINE)
    return {name: (kind.partition(", default=")[0], " ".join(text.split())) for name, kind, text in found}


# --- messages ---------------------------------------------------------------------------------------------


def messages_page() -> str:
    blocks: list[str | Sequence[str]] = [
        "Every message that can cross between parties: its fields, and what its receiver learns from it. The texts "
        "are those of the message classes; `veilboost simulate` prints the ones that a run really sent. How a "
        "message becomes bytes is told in [the wire format](../explanation/the-wire-format.md).",
    ]
    shown: set[type[Message]] = set()
    for spec in BUILT_IN:
        name = f"`{spec.name}`" if spec.setting == "vertical" else f"`{spec.name}` (horizontal)"
        blocks += [f"## Protocol {name}", _sentence(spec.summary), _protections(spec.statement)]
        blocks += _messages(spec.messages, shown)
    blocks += [
        "## Prediction",
        "The same for models of every protocol. A prediction begins with `BeginPrediction`, in a deployment with "
        "`BeginScoring`.",
    ]
    blocks += _messages(PREDICTION_MESSAGES, shown)
    blocks += [
        "## Explanations",
        "For models of every vertical protocol, if the owner's policy allows them. "
        "[How to explain predictions](../how-to/explain-predictions.md).",
    ]
    blocks += _messages(EXPLANATION_MESSAGES, shown)
    blocks += [
        "## Deployments",
        "How ids are looked up in a [deployment](../how-to/deployments.md). Rows are then scored by the messages of "
        "[prediction](#prediction).",
    ]
    blocks += _messages(SLOT_MESSAGES, shown)
    blocks += [
        "## Secure inference",
        "An encrypted model, users with encrypted rows, an authority and a CSP; for models of every protocol. "
        "[How it works](../explanation/secure-inference.md).",
    ]
    blocks += _messages(SECURE_MESSAGES, shown)
    for way in all_alignments().values():
        blocks += [
            f"## Alignment `{way.name}`",
            _sentence(way.summary),
            _protections(way.statement),
            "What the result itself tells, whatever the messages:",
            table(("reveals", "to"), [(item.what, item.to) for item in way.outcome]),
        ]
        blocks += _messages(way.messages, shown)
    blocks += [
        "## Jobs",
        "What parties say to each other around alignment, training and prediction, when each is a process of its own.",
    ]
    blocks += _messages(CONTROL_MESSAGES, shown)
    return page("Messages", *blocks)


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."


def _protections(statement: Statement) -> list[str]:
    return table(
        ("whose", "what", "against", "status", "why"),
        [(p.victim, p.data, p.adversary, f"**{p.status}**", p.why) for p in statement.protections],
    )


def _messages(classes: Sequence[type[Message]], shown: set[type[Message]]) -> Iterable[str | Sequence[str]]:
    """Each message in full where it comes first; those that stood further above are only named."""
    again = [cls.type_name() for cls in classes if cls in shown]
    for cls in classes:
        if cls not in shown:
            yield from _message(cls)
    shown.update(classes)
    if again:
        yield f"And, as above: {', '.join(f'[`{name}`](#{name.lower()})' for name in again)}."


def _message(cls: type[Message]) -> Iterable[str | Sequence[str]]:
    yield f"### `{cls.type_name()}`"
    yield inspect.getdoc(cls) or ""
    hints = get_type_hints(cls, include_extras=True)
    fields = [(f"`{item.name}`", _type_text(hints[item.name])) for item in dataclasses.fields(cls)]
    if fields:
        yield table(("field", "type"), fields)
    if cls.reveals:
        yield table(("reveals", "to"), [(item.what, item.to) for item in cls.reveals])
    else:
        yield "Reveals nothing."


def _type_text(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        spec = next(extra for extra in get_args(hint)[1:] if isinstance(extra, ArraySpec))
        return f"{spec.dtype} array, {spec.ndim} dimension{'s' if spec.ndim > 1 else ''}"
    return str(getattr(hint, "__name__", hint)) if not get_args(hint) else str(hint)


# --- commands ---------------------------------------------------------------------------------------------


def cli_page() -> str:
    group: Any = typer.main.get_command(app)
    blocks: list[str | Sequence[str]] = [
        "`veilboost COMMAND --help` prints the same in the terminal. Results go to stdout; progress and errors go to "
        "stderr. With `--json` a command prints one JSON object on stdout and nothing else.",
        table(
            ("exit code", "meaning"),
            [
                ("0", "done"),
                (str(REFUSED), "refused: one line `VB-nnnn: what is wrong; what to do`, or a wrong option"),
                ("130", "stopped with Ctrl-C"),
            ],
        ),
        "`veilboost --version` prints the version.",
    ]
    for name, command in _commands("veilboost", group):
        blocks += _command(name, command)
    return page("Commands", *blocks)


def _commands(name: str, group: Any) -> Iterable[tuple[str, Any]]:
    """Every command by its full name; a group of commands comes before its members."""
    for word, command in group.commands.items():
        if not command.hidden:
            yield f"{name} {word}", command
            if hasattr(command, "commands"):
                yield from _commands(f"{name} {word}", command)


def _command(name: str, command: Any) -> Iterable[str | Sequence[str]]:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    words = [name, "[OPTIONS]", *(a.name.upper() if a.required else f"[{a.name.upper()}]" for a in arguments)]
    if hasattr(command, "commands"):
        words = [name, *(["[OPTIONS]", "[COMMAND]"] if command.invoke_without_command else ["COMMAND"])]
    yield f"## `{name}`"
    yield ["```text", " ".join(words), "```"]
    yield from _prose(command.help)
    if hasattr(command, "commands"):
        members = [(f"`{each}`", str(_prose(member.help)[0])) for each, member in _commands(name, command)]
        yield table(("command", "what it does"), members)
    if arguments:
        yield table(("argument", "meaning"), [(f"`{a.name.upper()}`", _plain(a.help)) for a in arguments])
    options = [item for item in command.params if item.param_type_name == "option" and not item.hidden]
    for panel in dict.fromkeys(item.rich_help_panel for item in options):
        if panel:
            yield f"### {panel}"
        rows = [_option(item) for item in options if item.rich_help_panel == panel]
        yield table(("option", "default", "meaning"), rows)


def _option(item: Any) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*item.opts, *item.secondary_opts))
    if item.metavar:
        names = f"{names} `{item.metavar}`"
    if item.required:
        default = "must be given"
    elif isinstance(item.show_default, str):
        default = item.show_default
    elif item.is_flag:
        default = "off" if not item.default else "on"
    else:
        default = "" if item.default is None else f"`{item.default}`"
    return names, default, _plain(item.help)


def _plain(text: str | None) -> str:
    """Help text without its terminal markup."""
    return Text.from_markup(text or "").plain


def _prose(text: str | None) -> list[str | Sequence[str]]:
    """The paragraphs of a command's help; indented ones, one after another, become a block of code."""
    blocks: list[str | Sequence[str]] = []
    code: list[str] = []
    for paragraph in [*_plain(inspect.cleandoc(text or "")).split("\n\n"), ""]:
        if paragraph.startswith(" "):
            code.append(paragraph.strip())
            continue
        if code:
            blocks.append(["```sh", *code, "```"])
            code = []
        if paragraph:
            blocks.append(" ".join(paragraph.split()))
    return blocks


# --- errors -----------------------------------------------------------------------------------------------


def errors_page() -> str:
    families: dict[type[VeilBoostError], list[type[VeilBoostError]]] = {}
    for cls in coded_errors():
        families.setdefault(_family(cls), []).append(cls)
    blocks: list[str | Sequence[str]] = [
        "Every refusal has a code that does not change, and says what to do: `VB-nnnn: what is wrong; what to do`. "
        "The command line prints that one line on stderr and exits with code 2. In Python, catch the class by name "
        "from `veilboost.errors`; `VeilBoostError` is the root of them all, and errors about input are also "
        "`ValueError`. No message shows a value of anyone's data.",
        "A message may name columns, tables and files: it is for their owner, in the owner's log, job status and "
        "terminal. A peer is sent the code and the fixed words of the table below. More is sent only of refusals whose "
        "text holds nothing of the owner, such as a rule of a policy and the job's own parameters.",
    ]
    for family, members in families.items():
        number = members[0].code.removeprefix("VB-")[:2]
        about = (inspect.getdoc(family) or "").rstrip(".")
        rows = [(f"[{cls.code}]({cls.code}.md)", f"`{cls.__name__}`", cls.summary, cls.fix) for cls in members]
        blocks += [
            f"## {number}xx: {about[0].lower()}{about[1:]}",
            f"All are `{family.__name__}`.",
            table(("code", "class", "what a peer is told", "what to do, unless the message says more"), rows),
        ]
    return page("Errors", *blocks)


def _family(cls: type[VeilBoostError]) -> type[VeilBoostError]:
    return next(base for base in cls.__mro__ if issubclass(base, VeilBoostError) and not base.code)


# --- statuses, in pages that are otherwise written by hand ------------------------------------------------


def statuses(setting: str, victims: dict[str, str]) -> str:
    """One row for each protocol; `victims` are those of the setting, with the headings of their columns."""
    rows = [
        (f"`{spec.name}`", spec.summary, *("; ".join(_claims(spec.statement, victim)) for victim in victims))
        for spec in BUILT_IN
        if spec.setting == setting
    ]
    return "\n".join(table(("protocol", "what is sent", *victims.values()), rows))


def _claims(statement: Statement, victim: str) -> Iterable[str]:
    return (f"{each.data}: **{each.status}**" for each in statement.protections if each.victim == victim)


def vertical_statuses() -> str:
    return statuses("vertical", {"active": "the active party's", "passive": "a passive party's"})


def horizontal_statuses() -> str:
    return statuses("horizontal", {"participant": "a participant's"})


WHOSE = {"active": "the active party's", "passive": "a passive party's", "participant": "a participant's"}
RECOMMENDED = ("sealed", "lattice", "secagg")


def verdicts(names: Iterable[str]) -> str:
    """One row for each protection of these protocols."""
    rows = [
        (f"`{name}`", WHOSE[each.victim], each.data, each.adversary, f"**{each.status}**")
        for name in names
        for each in protocol_named(name).statement.protections
    ]
    return "\n".join(table(("protocol", "whose", "data", "against", "status"), rows))


def recommended_verdicts() -> str:
    return verdicts(RECOMMENDED)


def papers_verdicts() -> str:
    return verdicts(spec.name for spec in _of_papers())


def papers_protocols() -> str:
    rows = [(f"`{spec.name}`", spec.source, spec.setting, spec.summary) for spec in _of_papers()]
    return "\n".join(table(("protocol", "paper", "setting", "data sent"), rows))


def _of_papers() -> list[ProtocolSpec]:
    return [spec for spec in BUILT_IN if spec.name not in {"plain", *RECOMMENDED}]


def evidence() -> str:
    """The attack that each status rests on."""
    rows = [
        (
            f"`{spec.name}`",
            each.victim,
            each.subject,
            f"`{each.attack}`" if each.attack else "[epsilon from below](#epsilon-from-below)",
            "succeeds" if each.succeeds else "fails",
        )
        for spec in BUILT_IN
        for each in spec.evidence
    ]
    return "\n".join(table(("protocol", "whose", "what", "attack", "it"), rows))


def protections() -> str:
    """What the three recommended protocols protect, and what they do not: the table of the README."""
    whose = {"active": "active party", "passive": "passive party", "participant": "participant"}
    columns = (("sound", "heuristic"), ("broken", "unprotected"))
    rows = [
        (
            f"`{spec.name}`",
            *(
                "; ".join(
                    f"{whose[each.victim]}: {each.data} (**{each.status}**)"
                    for each in spec.statement.protections
                    if each.status in kinds
                )
                for kinds in columns
            ),
        )
        for spec in (all_protocols()[name] for name in ("sealed", "lattice", "secagg"))
    ]
    return "\n".join(table(("protocol", "protected", "not protected"), rows))


# --- the benchmark, from its result file ------------------------------------------------------------------

PEERS = REFERENCE.parent / "results" / "peers.json"


def benchmark() -> str:
    """Every number of the README's table, and of the sentence above it."""
    name = "default_credit"
    result = json.loads(PEERS.read_text(encoding="utf-8"))["sets"][name]
    settings, few, every = result["settings"], result["settings"]["few_trees"], result["settings"]["trees"]
    others = ("LightGBM", "scikit-learn", "sf-heu")
    shown = [
        row
        for row in result["rows"]
        if row["CPU seconds per tree"] is not None
        and not (row["system"].startswith(others) or row["protection"].startswith("its DP"))
    ]
    rows = [
        (
            row["setting"],
            f"**{row['system']}**" if row["system"].startswith("VeilBoost") else row["system"],
            row["protection"] + (f" ({row['key']})" if row["key"] else ""),
            _two_digits(row["CPU seconds per tree"]),
            *("-" if value is None else f"{value:.3f}" for value in _qualities(row)),
        )
        for row in sorted(shown, key=_rank)
    ]
    about = (
        f"{settings['rows']:,} rows of `{name}`, two parties, depth {settings['max_depth']}, "
        f"{settings['max_bin']} bins, one thread per party, {result['machine']['cores']} cores, all systems on one "
        f"machine, the last on {result['measured']}. CPU seconds are those of all parties together. Slow systems "
        f"trained {few} trees only. [All results](docs/results.md): time, bytes, memory, and the lines of code that a "
        "user writes."
    )
    headers = ("data", "system", "protection", "CPU s per tree", f"AUC, {few} trees", f"AUC, {every} trees")
    return "\n".join([about, "", *table(headers, rows)])


def _two_digits(number: float) -> str:
    """And all digits of a larger number."""
    return f"{number:.0f}" if number >= 10 else f"{number:#.2g}".rstrip(".")


def _qualities(row: dict[str, Any]) -> tuple[float | None, float | None]:
    return row["quality, few trees"], row["quality, all trees"]


def _rank(row: dict[str, Any]) -> tuple[bool, int, float]:
    """Systems that protect something first, then by setting, then the fastest."""
    order = ("vertical", "horizontal", "central")
    return row["protection"].startswith("none"), order.index(row["setting"]), row["CPU seconds per tree"]


ROOT = REFERENCE.parents[1]
BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("README.md", "protections"): protections,
    ("README.md", "benchmark"): benchmark,
    ("docs/explanation/threat-model.md", "vertical protocols"): vertical_statuses,
    ("docs/explanation/threat-model.md", "horizontal protocols"): horizontal_statuses,
    ("docs/explanation/attacks.md", "evidence"): evidence,
    ("docs/explanation/papers-protocols.md", "papers' protocols"): papers_protocols,
    ("docs/explanation/papers-protocols.md", "papers' verdicts"): papers_verdicts,
    ("docs/how-to/choose-a-protocol.md", "recommended protocols"): recommended_verdicts,
}


def with_blocks(file: str) -> str:
    """A page with what stands between its marks made anew."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for (name, mark), make in BLOCKS.items():
        if name == file:
            begin, end = f"<!-- begin {mark} -->\n", f"<!-- end {mark} -->"
            start = text.index(begin) + len(begin)
            text = text[:start] + make() + "\n" + text[text.index(end, start) :]
    return text


# --- all of them ------------------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "parameters.md": parameters_page,
    "messages.md": messages_page,
    "cli.md": cli_page,
    "errors/index.md": errors_page,
}


def made(name: str) -> str:
    """A page as the source makes it now."""
    return re.sub(r"[ \t]+\n", "\n", PAGES[name]())


def main(arguments: Sequence[str]) -> int:
    files = {name for name, _ in BLOCKS}
    stale = [name for name in PAGES if not _is_current(name)]
    stale += [file for file in sorted(files) if (ROOT / file).read_text(encoding="utf-8") != with_blocks(file)]
    if "--check" in arguments:
        for name in stale:
            sys.stderr.write(f"{name} is not what the source makes; run docs/make_reference.py\n")
        return 1 if stale else 0
    for name in PAGES:
        (REFERENCE / name).parent.mkdir(parents=True, exist_ok=True)
        (REFERENCE / name).write_text(made(name), encoding="utf-8")
    for file in files:
        (ROOT / file).write_text(with_blocks(file), encoding="utf-8")
    return 0


def _is_current(name: str) -> bool:
    path = REFERENCE / name
    return path.exists() and path.read_text(encoding="utf-8") == made(name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
