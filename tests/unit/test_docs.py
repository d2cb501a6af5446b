"""The documentation says what is: generated pages are current, links resolve, examples run and print what is shown."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from veilboost.align.api import AlignmentSpec, all_alignments
from veilboost.align.slots import SLOT_MESSAGES
from veilboost.cli.main import app
from veilboost.errors import VeilBoostError, coded_errors
from veilboost.infer.messages import EXPLANATION_MESSAGES, PREDICTION_MESSAGES
from veilboost.party.messages import CONTROL_MESSAGES
from veilboost.protocols.registry import BUILT_IN, all_protocols
from veilboost.protocols.spec import ProtocolSpec
from veilboost.secure_inference.messages import SECURE_MESSAGES
from veilboost.wire.message import Message

pytestmark = pytest.mark.fast

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
ERRORS = DOCS / "reference" / "errors"
PAGES = sorted([*(REPOSITORY / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *DOCS.rglob("*.md")])
# Examples that need files which the page only describes.
NOT_RUN = {"VB-1101.md", "load-your-data.md"}
RECEIVERS = {"active", "passive", "csp", "authority", "server", "participant", "comparer", "user"}
FENCED = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NUMBER = re.compile(r"\d+\.?\d*(?:e-?\d+)?")


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


# --- generated pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", GENERATOR.PAGES)
def test_generated_page_is_what_the_source_makes_now(page: str) -> None:
    committed = (DOCS / "reference" / page).read_text(encoding="utf-8")
    assert committed == GENERATOR.made(page), "run: python docs/make_reference.py"


def test_every_message_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "messages.md").read_text(encoding="utf-8")
    specs = (*BUILT_IN, *all_alignments().values())
    answered = {*PREDICTION_MESSAGES, *EXPLANATION_MESSAGES, *SLOT_MESSAGES}
    outside = (*answered, *SECURE_MESSAGES, *CONTROL_MESSAGES)
    for message in (*outside, *(each for spec in specs for each in spec.messages)):
        assert text.count(f"### `{message.type_name()}`\n") == 1
        for item in message.reveals:
            assert f"| {item.what} | {item.to} |" in text


# --- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", list(coded_errors()), ids=lambda error: error.code)
def test_every_error_has_a_page_in_the_common_form(error: type[VeilBoostError]) -> None:
    text = (ERRORS / f"{error.code}.md").read_text(encoding="utf-8")
    headings = re.findall(r"^#+ .*$", FENCED.sub("", text), re.MULTILINE)
    assert headings == [
        f"# {error.code}: {error.__name__}",
        "## What it means",
        "## What to do",
        "## Example",
    ]
    assert f"{error.code}: " in text.split("## Example")[1], "the example shows no real message"


def test_every_error_page_has_an_error() -> None:
    assert {page.stem for page in ERRORS.glob("VB-*.md")} == {error.code for error in coded_errors()}


# --- leakage ----------------------------------------------------------------------------------------------


def every_message_class() -> Iterator[type[Message]]:
    """All message classes of the package, also those that are only bases of others."""
    waiting = Message.__subclasses__()
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        if cls.__module__.startswith("veilboost."):
            yield cls


def test_every_message_class_says_for_itself_what_it_reveals() -> None:
    classes = list(every_message_class())
    assert len(classes) > 10
    for cls in classes:
        # Not inherited: a message with more fields than its base reveals more.
        assert "reveals" in vars(cls), f"{cls.__name__} does not set reveals"
        for item in cls.reveals:
            assert item.what.strip()
            assert item.to in RECEIVERS


@pytest.mark.parametrize("spec", [*BUILT_IN, *all_alignments().values()], ids=lambda spec: spec.name)
def test_leakage_page_names_every_message_and_repeats_what_it_reveals(spec: ProtocolSpec | AlignmentSpec) -> None:
    home = "protocols" if isinstance(spec, ProtocolSpec) else "align"
    text = (REPOSITORY / "src" / "veilboost" / home / spec.name / "LEAKAGE.md").read_text(encoding="utf-8")
    for message in spec.messages:
        assert f"`{message.type_name()}`" in text, f"{message.type_name()} is not named"
        for item in message.reveals:
            assert f'"{item.what}"' in text, f"not in its own words: {item.what}"
    for protection in spec.statement.protections:
        assert f"**{protection.status}**" in text
        assert protection.why in text


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_leakage_page_has_the_statement_as_its_table(spec: ProtocolSpec) -> None:
    """Line for line: whose, what, against whom, and the status."""
    page = (REPOSITORY / "src" / "veilboost" / "protocols" / spec.name / "LEAKAGE.md").read_text(encoding="utf-8")
    rows = page.partition("| whose | what | against | status |\n")[2].split("\n\n")[0].splitlines()[1:]
    told = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in rows]
    whose = {"active": "the active party's", "passive": "a passive party's", "participant": "a participant's"}
    claimed = [(whose[each.victim], each.data, each.adversary) for each in spec.statement.protections]
    assert [row[:3] for row in told] == claimed
    for row, each in zip(told, spec.statement.protections, strict=True):
        assert row[3].startswith(f"**{each.status}**")


@pytest.mark.parametrize("file", sorted({name for name, _ in GENERATOR.BLOCKS}))
def test_statuses_in_a_page_are_what_the_specs_say_now(file: str) -> None:
    """README, threat model and attacks: run docs/make_reference.py."""
    assert (REPOSITORY / file).read_text(encoding="utf-8") == GENERATOR.with_blocks(file)


def test_the_command_shows_the_same_statuses() -> None:
    shown = json.loads(CliRunner().invoke(app, ["protocols", "--json"]).stdout)["protocols"]
    assert {each["name"]: each["protections"] for each in shown} == {
        spec.name: spec.statement.to_list() for spec in BUILT_IN
    }


# --- links and commands -----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page: Path) -> None:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} leads nowhere"
        assert not anchor or anchor in anchors(found), f"{target}: no such heading"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen, waiting = set[Path](), [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        text = FENCED.sub("", page.read_text(encoding="utf-8"))
        targets = [
            target.partition("#")[0] for target in LINK.findall(text) if not re.match(r"https?:|mailto:", target)
        ]
        waiting.extend((page.parent / target).resolve() for target in targets if target)
    assert not {name_of(page) for page in PAGES} - {name_of(page) for page in seen}


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for kind, block in FENCED.findall(page.read_text(encoding="utf-8")):
            if kind in {"console", "sh"}:
                for line in block.splitlines():
                    words = shlex.split(line.removeprefix("$ ").split(" > ")[0]) if "veilboost " in line else []
                    if words and Path(words[0]).name == "veilboost":
                        yield name_of(page), words[1:]


def test_shown_commands_have_the_options_they_use() -> None:
    group: Any = typer.main.get_command(app)
    commands = list(shown_commands())
    assert len(commands) > 10
    for page, words in commands:
        if words[0].startswith("-"):
            assert words[0] in {"--version", "--help"}, page
            continue
        command, rest = found_command(group, words)
        shown = " ".join(["veilboost", *words[: len(words) - len(rest)]])
        works = getattr(command, "invoke_without_command", True)  # a group may do something by itself
        assert works, f"{page}: {shown} is a group; there is no command {rest[:1]} in it"
        known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
        for word in rest:
            assert not word.startswith("--") or word in known, f"{page}: {shown} has no {word}"


def found_command(group: Any, words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, as deep in groups as they go, and the words that are left."""
    command, rest = group, words
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


# --- examples ---------------------------------------------------------------------------------------------


def runnable_pages() -> list[Path]:
    return [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8") and page.name not in NOT_RUN]


@pytest.mark.parametrize("page", runnable_pages(), ids=name_of)
def test_python_examples_run_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page are one program; a text block that follows shows what a block prints or raises."""
    monkeypatch.chdir(tmp_path)
    # Classes that an example defines need a module that they belong to.
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    blocks = FENCED.findall(page.read_text(encoding="utf-8"))
    try:
        for at, (kind, code) in enumerate(blocks):
            if kind == "python":
                printed = run(code, module.__dict__)
                shown = blocks[at + 1][1] if at + 1 < len(blocks) and blocks[at + 1][0] == "text" else ""
                assert alike(printed, shown), f"this block\n{code}\nprints\n{printed}\nand not\n{shown}"
    finally:
        all_protocols.cache_clear()  # an example may have registered a protocol of its own


def run(code: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(code, "<example>", "exec"), names)  # noqa: S102
        except VeilBoostError as error:
            out.write(f"{type(error).__name__}: {error}\n")
    return out.getvalue()


def alike(printed: str, shown: str) -> bool:
    """Equal but for spaces and the last digits: another processor may round an AUC otherwise."""
    printed, shown = " ".join(printed.split()), " ".join(shown.split())
    if NUMBER.sub("#", printed) != NUMBER.sub("#", shown):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    return all(abs(float(a) - float(b)) <= max(0.01, 0.05 * float(b)) for a, b in pairs)


def test_an_example_that_prints_something_else_is_found_out() -> None:
    assert alike("AUC 0.849, 1204 messages", "AUC  0.851, 1190 messages")
    assert not alike("AUC 0.849", "AUC 0.912")
    assert not alike("True", "False")
    assert not alike("something", "")
    assert run("print(1 + 1)\n", {}) == "2\n"
