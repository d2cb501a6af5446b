"""`docs/results.md` and the pages of `docs/results`, made out of the files in that folder and never edited by hand.

    python bench/results.py [--take OUT ...] [--check]

`docs/results` holds what was measured: NAME.json as a benchmark prints it (`python bench/plain.py >
docs/results/plain.json`), `peers.json` and `peers-SET.csv` from `bench/peers/table.py`, and PAPER/TARGET/ of `python -m
papers`. --take copies the targets of a reproduction's folder there. --check writes nothing and fails if a page is not
what the files make.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import paper_pages
from blocks import table
from paper_pages import PAPERS, cell
from papers.earlier import RELEASE
from peers.columns import as_markdown

HERE = Path(__file__).parents[1] / "docs"
FOLDER, PAGE = HERE / "results", HERE / "results.md"
KEPT = ("claim.json", "cells.jsonl", "table.csv", "plot.svg")
APART = {"machine", "benchmark", "measured", "about"}
MOST_ROWS = 60


def take(out: Path, folder: Path = FOLDER) -> None:
    """The finished targets of a reproduction, without their pictures."""
    for claim in sorted(out.rglob("claim.json")):
        paper, target = claim.parent.parts[-2:]
        home = folder / paper / target
        home.mkdir(parents=True, exist_ok=True)
        for name in KEPT:
            if (claim.parent / name).exists():
                shutil.copyfile(claim.parent / name, home / name)


def page(folder: Path = FOLDER) -> str:
    """The whole page."""
    claims = paper_pages.read_claims(folder)
    benches = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    parts = [
        "# Results as last measured",
        "Made by `python bench/results.py` out of the files in `docs/results`; not to be edited. To measure again: "
        "`python bench/everything.py`, and `python -m papers PAPER` with `python bench/results.py --take OUT`.",
        *_machines(claims, benches),
    ]
    if claims:
        judged = sum("rule" in claim for claim in claims)
        quick = sum(claim["quick"] for claim in claims)
        parts += [
            "## The papers",
            f"{len(claims)} tables and figures of four papers, {len(claims) - quick} of them as full runs, {judged} "
            "judged by a rule that was written down before the run. [What we learned](explanation/four-papers.md), "
            f"[paper map](results/{paper_pages.MAP}.md), and a page for each paper: "
            + ", ".join(f"[{name}](results/{paper}.md)" for paper, name in PAPERS.items())
            + ".",
            paper_pages.summary(claims),
            "### Verdicts that changed",
            f"Since release {RELEASE}, whose verdicts came from quick runs with one drawing and without written rules.",
            paper_pages.changed(claims),
            "### How they were measured",
            paper_pages.runs(claims),
        ]
    if peers := benches.pop("peers", None):
        parts += _peers(peers)
    for name, result in benches.items():
        when = f", measured on {result['measured']}" if "measured" in result else ""
        parts += [f"## Benchmark: {name}", f"From [{name}.json](results/{name}.json), by `bench/{name}.py`{when}."]
        parts += [result["about"]] if "about" in result else []
        parts += list(_tables(result, ""))
    return "\n\n".join(parts) + "\n"


def _machines(claims: Sequence[Mapping[str, Any]], benches: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Each machine with its versions once, and what was measured there."""
    found: dict[str, list[str]] = {}
    for claim in claims:
        found.setdefault(_machine(claim["machine"]), []).append(f"{claim['paper']} {claim['target']}")
    peers = {f"peers {name}": result for name, result in benches.get("peers", {}).get("sets", {}).items()}
    for name, result in (benches | peers).items():
        if "machine" in result:
            found.setdefault(_machine(result["machine"]), []).append(name)
    if found:
        yield "## Machines and versions"
        yield table(
            ("machine", "measured there"), [(about, ", ".join(sorted(names))) for about, names in sorted(found.items())]
        )


def _machine(machine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    return f"{machine['cores']} cores of {machine['cpu']}, Python {machine['python']}, {versions}"


def _peers(result: Mapping[str, Any]) -> Iterator[str]:
    yield "## Peers"
    yield (
        "Two parties; of vertical data the one with the labels has the first half of the columns. One thread for each "
        "party. Bytes of systems in several processes are what the loopback carried; of ours in one process, all "
        "messages. *wan* is a line of 50 ms and 100 Mbit/s between the parties. Memory is the peak of the largest "
        "process. Lines are those that a user writes for the federation. With several classes a tree is a round, a "
        "tree for each class. [All figures](results/peers.json)."
    )
    for name, found in result["sets"].items():
        yield from _peers_on(name, found)


def _peers_on(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    settings = found["settings"]
    runs = "all in one run" if found["runs"] == 1 else f"in {found['runs']} runs"
    categories = len(settings["categorical"])
    yield f"### {name}"
    yield (
        f"Measured on {found['measured']}: {settings['task']}, {settings['rows']} training rows and "
        f"{settings['test_rows']} others for the {settings['metric']}, {settings['active_columns']} columns with the "
        f"labels{f', {categories} columns of categories' if categories else ''}, depth {settings['max_depth']}, "
        f"{settings['max_bin']} bins, rate {settings['learning_rate']:g}, {runs}, the best of {settings['repeats']}. "
        f"Slow systems trained {settings['few_trees']} trees."
    )
    busiest = max((each["load"] for each in found["details"].values() if "load" in each), default=None)
    if warning := paper_pages.busy(busiest, found["machine"]):
        yield warning
    yield as_markdown(found["rows"], settings)
    for system, each in found["details"].items():
        if "quality_at_a_thousandth" in each:
            yield (
                f"{system}: with a thousandth of that budget its {settings['metric']} is still "
                f"{each['quality_at_a_thousandth']:.4f}."
            )
        for line, reason in each.get("over", {}).items():
            if isinstance(reason, str):
                yield f"Not measured over {line}: {system}: {cell(reason)}."
    for system, reason in found["skipped"].items():
        yield f"Not measured: {system}: {cell(reason)}."
    yield f"[The table](results/peers-{name}.csv)"


def _tables(value: Any, title: str) -> Iterator[str]:
    """The output of a benchmark: lists of records become tables, single values a list of names."""
    if isinstance(value, Mapping):
        records = {name: item for name, item in value.items() if name not in APART or title}
        nested = {name: item for name, item in records.items() if isinstance(item, (Mapping, list)) and item}
        single = {name: item for name, item in records.items() if name not in nested}
        if len(nested) > 1 and not single and all(_is_record(item) for item in nested.values()):
            yield from _titled(title, _records([{"": name, **_flat(item)} for name, item in nested.items()]))
            return
        if single:
            yield from _titled(title, table(("", ""), [(cell(name), _shown(item)) for name, item in single.items()]))
        for name, item in nested.items():
            yield from _tables(item, f"{title}, {name}" if title else str(name))
    elif isinstance(value, list):
        if all(isinstance(item, Mapping) for item in value):
            yield from _titled(title, _records([_flat(item) for item in value]))
        else:
            yield from _titled(title, ", ".join(_shown(item) for item in value))


def _titled(title: str, text: str) -> Iterator[str]:
    if title:
        yield f"**{title.replace('_', ' ')}**"
    yield text


def _is_record(value: Any) -> bool:
    return isinstance(value, Mapping) and not any(isinstance(item, list) for item in _flat(value).values())


def _flat(record: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, item in record.items():
        if isinstance(item, Mapping):
            found |= _flat(item, f"{before}{name}, ")
        else:
            found[f"{before}{name}"] = item
    return found


def _records(records: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [tuple(_shown(record.get(name)) for name in names) for record in records[:MOST_ROWS]]
    left = f"\n\n{len(records) - MOST_ROWS} more rows are in the file." if len(records) > MOST_ROWS else ""
    return table(tuple(cell(name.replace("_", " ")) for name in names), rows) + left


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(_shown(item) for item in value)
    return cell(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", type=Path, nargs="*", default=[], metavar="OUT", help="folders of reproductions")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    options = parser.parse_args()
    for out in options.take:
        if not any(out.rglob("claim.json")):
            parser.error(f"{out} holds no reproduction")
        take(out)
    made = {PAGE: page(), **{FOLDER / name: text for name, text in paper_pages.pages(FOLDER).items()}}
    if options.check:
        old = [str(file) for file, text in made.items() if not file.exists() or file.read_text() != text]
        sys.exit(f"out of date, run bench/results.py: {', '.join(old)}" if old else 0)
    for file, text in made.items():
        file.write_text(text)


if __name__ == "__main__":
    main()
