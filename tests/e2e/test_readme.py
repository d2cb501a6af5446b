"""The README keeps its promises: every command runs, every number is that of a result file, every badge is true."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from parties import free_port, until

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BIN = Path(sys.executable).parent
ENVIRONMENT = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
SECONDS = 300


def section(title: str) -> str:
    return README.split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str) -> list[str]:
    """What a reader types: blocks of `sh` and `console`."""
    return [code for _, code in re.findall(r"^```(sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def run(command: str, folder: Path, **changes: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=ENVIRONMENT | changes,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# --- commands ---------------------------------------------------------------------------------------------


def test_every_section_with_commands_is_run_here() -> None:
    titles = re.findall(r"^## (.*)$", README, re.MULTILINE)
    assert [title for title in titles if blocks(section(title))] == [
        "Install",
        "Three terminals, three companies",
        "What is not protected",
    ]


@contextmanager
def serving(command: str, folder: Path, port: int) -> Iterator[None]:
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen(shlex.split(command), cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log)
        try:
            until(lambda: daemon.poll() is not None or listens(port), command)
            assert daemon.poll() is None, (folder / "log").read_text()
            yield
        finally:
            daemon.terminate()
            daemon.wait(30)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_three_terminals_train_a_model(tmp_path: Path) -> None:
    (text,) = blocks(section("Three terminals, three companies"))
    ports = {"shop": free_port(), "telecom": free_port()}
    text = text.replace(":7401", f":{ports['shop']}").replace(":7402", f":{ports['telecom']}")
    folders: dict[str, Path] = {}
    terminal, printed = "", ""
    with ExitStack() as running:
        for line in text.splitlines():
            command = line.removeprefix("$ ")
            if line.startswith("# Terminal"):
                terminal = line.split(":")[0]
            elif command.startswith("cd "):
                folders[terminal] = folders.get(terminal, tmp_path) / command.removeprefix("cd ")
            elif " party serve " in command:
                folder = folders[terminal]
                running.enter_context(serving(command, folder, ports[folder.name]))
            elif line.startswith("$ "):
                printed = run(command, folders.get(terminal, tmp_path))
            else:
                assert not line
    assert set(folders) == {"# Terminal 1", "# Terminal 2", "# Terminal 3"}
    # The last command shows what was exchanged: encrypted gradients, and ids that were matched blinded.
    assert "LatticeRound" in printed
    assert "BlindOwn" in printed
    for party in ("bank", "shop", "telecom"):
        assert json.loads((tmp_path / "town" / party / "runs" / "credit" / "status.json").read_text())


def test_a_trial_is_attacked_and_its_cost_planned(tmp_path: Path) -> None:
    (text,) = blocks(section("What is not protected"))
    for line in text.splitlines():
        assert run(line.removeprefix("$ "), tmp_path)
    assert list(tmp_path.rglob("*.html")), "the report is a page"


# --- make -------------------------------------------------------------------------------------------------


def test_make_demo_is_the_demonstration_of_test_parties() -> None:
    """Its command runs in test_parties.py; `pip install .` itself in test_release.py."""
    install, demo = blocks(section("Install"))
    assert install == "pip install .\n"
    planned = run(f"{demo.strip()} --dry-run --no-print-directory --old-file=.venv/installed", REPOSITORY)
    assert planned == ".venv/bin/veilboost demo --protocol lattice --keep\n"


def test_users_install_no_tools_of_developers_and_native_code_is_built_once(tmp_path: Path) -> None:
    planned = {goal: run(f"make --dry-run --always-make {goal}", REPOSITORY) for goal in ("demo", "test", "fast")}
    assert "dev" not in planned["demo"].replace("/dev/null", "")
    for text in planned.values():
        assert len(re.findall(r"pip install .*--editable", text)) == 1
    for goal in ("test", "fast"):
        assert planned[goal].index("--editable") < planned[goal].index("'veilboost[dev]'")


# --- facts ------------------------------------------------------------------------------------------------


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_badges_are_true() -> None:
    badges = re.findall(r"!\[([^\]]*)\]\(https://img\.shields\.io/badge/(\w+)-([^)]*)-blue\)", README)
    assert len(badges) == README.count("img.shields.io")
    assert {name: value.replace("--", "-") for _, name, value in badges} == {
        "version": PROJECT["version"],
        "python": PROJECT["requires-python"].removeprefix(">=") + "+",
        "licence": PROJECT["license"],
    }
    for alt, _, value in badges:
        assert alt.endswith(value.replace("--", "-"))


def rows_of(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_number_of_the_benchmark_is_that_of_the_result_file() -> None:
    """Not by the generator: each row is looked up in the file, each number compared to its last digit."""
    peers = json.loads((REPOSITORY / "docs" / "results" / "peers.json").read_text(encoding="utf-8"))
    result = peers["sets"]["default_credit"]
    stored: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in result["rows"]:
        if row["CPU seconds per tree"] is not None:
            protection = row["protection"] + (f" ({row['key']})" if row["key"] else "")
            stored[row["setting"], row["system"], protection] = row
    text = section("Benchmark")
    shown = rows_of(text)
    assert len(shown) > 10
    for setting, system, protection, *numbers in shown:
        row = stored[setting, system.strip("*"), protection]
        names = ("CPU seconds per tree", "quality, few trees", "quality, all trees")
        for number, name in zip(numbers, names, strict=True):
            if row[name] is None:
                assert number == "-"
            else:
                digits = len(number.partition(".")[2])
                assert float(number) == pytest.approx(row[name], abs=0.5 * 10**-digits + 1e-12)
    settings = result["settings"]
    about, _, header = text.strip().splitlines()[1:4]
    assert result["measured"] in about
    said = [f"{settings['rows']:,}", settings["max_depth"], settings["max_bin"], result["machine"]["cores"]]
    found = re.findall(r"\d+(?:,\d{3})*", about.replace(result["measured"], ""))
    assert found == [*map(str, said), str(settings["few_trees"])]
    assert re.findall(r"\d+", header) == [str(settings["few_trees"]), str(settings["trees"])]


def test_the_picture_has_a_text_and_both_colour_schemes() -> None:
    (path,) = re.findall(r"!\[[^\]]{50,}\]\((docs/\S+\.svg)\)", README)
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    drawing = ElementTree.fromstring(text)  # noqa: S314
    space = "{http://www.w3.org/2000/svg}"
    assert drawing.findtext(f"{space}title")
    assert drawing.findtext(f"{space}desc")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"href|url\((?!#)|<script", text), "the picture loads nothing"
