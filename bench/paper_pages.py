"""The pages of `docs/results` about the four papers, out of what `python -m papers` measured.

A page for each paper, and the map from sections, equations and algorithms to functions, tests and verdicts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from blocks import table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `papers` is not installed
from papers.earlier import EARLIER
from papers.places import PLACES, Place
from papers.target import PAPERS

MAP = "paper-map"


def read_claims(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*/*/claim.json"))]


def place_of(claim: Mapping[str, Any]) -> tuple[int, str, int]:
    """Paper by paper, figure 10 behind figure 9."""
    known = list(PAPERS)
    kind, _, number = claim["target"].rpartition("-")
    at = known.index(claim["paper"]) if claim["paper"] in known else len(known)
    return at, kind or claim["target"], int(number) if number.isdigit() else 0


def title_of(claim: Mapping[str, Any]) -> str:
    return f"{PAPERS.get(claim['paper'], claim['paper'])}, {claim['target'].replace('-', ' ')}"


def cell(value: Any) -> str:
    """Text that cannot break out of a table's cell, nor look like a link."""
    return str(value).replace("|", "\\|").replace("\n", " ").replace("[", "\\[").replace("]", "\\]")


def verdict_of(claim: Mapping[str, Any]) -> str:
    """A verdict counts only with the rule that was written down before the run."""
    return claim["holds"] if "rule" in claim else "not judged"


def busy(load: float | None, machine: Mapping[str, Any]) -> str:
    """What a reader must know of a machine with other work; empty where it had none."""
    if load is None or load <= machine["cores"]:
        return ""
    return (
        f"**The machine was busy** (load {load:.0f} on {machine['cores']} cores): CPU seconds, bytes, quality and "
        "memory count, seconds of the clock do not."
    )


def summary(claims: Sequence[Mapping[str, Any]]) -> str:
    """A line for each claim: whether it holds, and one sentence."""
    rows = []
    for claim in sorted(claims, key=place_of):
        where = f"[{title_of(claim)}](results/{claim['paper']}.md#{_anchor(title_of(claim))})"
        rows.append((where, cell(claim["reported"]), f"**{verdict_of(claim)}**", cell(_sentence(claim))))
    return table(("where", "the paper's claim", "does it hold", "in one sentence"), rows)


def changed(claims: Sequence[Mapping[str, Any]]) -> str:
    """A line for each verdict that is not what it was in release 0.1.0: then, now, and why."""
    rows = [
        (title_of(claim), earlier.holds, f"**{claim['holds']}**", cell(earlier.changed))
        for claim in sorted(claims, key=place_of)
        for earlier in [EARLIER.get((claim["paper"], claim["target"]))]
        if earlier is not None and "rule" in claim and claim["holds"] != earlier.holds
    ]
    return table(("where", "then", "now", "why"), rows)


def _sentence(claim: Mapping[str, Any]) -> str:
    if "rule" not in claim:
        return (
            f"Measured with release {claim['machine']['versions']['veilboost']}, before its rule was written; the "
            f"verdict of that time was {claim['holds']}."
        )
    counted = claim["cases"]
    first = claim["why"].split(". ")[0].removesuffix(".")
    return f"{counted['counted']} of {counted['of']} cases. {first}."


def runs(claims: Sequence[Mapping[str, Any]]) -> str:
    """How each target was measured."""
    rows = [
        (
            title_of(claim),
            "quick" if claim["quick"] else "full",
            " to ".join(claim.get("days", ())) or "not recorded",
            f"{claim['seconds']:.0f} s",
            str(claim.get("drawings", "not recorded")),
            cell(claim["machine"]["cpu"]),
            "not recorded" if claim.get("load") is None else f"{claim['load']:.0f}",
            ", ".join(claim["skipped"]) or "none",
        )
        for claim in sorted(claims, key=place_of)
    ]
    return table(("target", "run", "date", "duration", "drawings", "processor", "load", "data sets not at hand"), rows)


def paper_page(paper: str, claims: Sequence[Mapping[str, Any]], folder: Path) -> str:
    parts = [
        f"# Results: {PAPERS[paper]}",
        "Made by `python bench/results.py`; not to be edited. [All results](../results.md), "
        f"[paper map]({MAP}.md), [how to measure again](../how-to/reproduce.md).",
    ]
    for claim in sorted(claims, key=place_of):
        parts += _claim(claim, folder)
    return "\n\n".join(parts) + "\n"


def _claim(claim: Mapping[str, Any], folder: Path) -> Iterator[str]:
    home, own = f"{claim['paper']}/{claim['target']}", folder / claim["paper"] / claim["target"]
    yield f"## {title_of(claim)}"
    skipped = f"; not at hand: {', '.join(claim['skipped'])}" if claim["skipped"] else ""
    when = f", {' to '.join(claim['days'])}" if claim.get("days") else ""
    drawn = f", {claim['drawings']} drawings" if claim.get("drawings", 1) > 1 else ""
    yield (
        f"{claim['title'][:1].upper()}{claim['title'][1:]}. {'A quick run' if claim['quick'] else 'A full run'} of "
        f"{claim['seconds']:.0f} s{drawn}{when}{skipped}."
    )
    if warning := busy(claim.get("load"), claim["machine"]):
        yield warning
    rows = [("the paper", cell(claim["reported"]))]
    if "rule" in claim:
        rows += [
            ("rule", cell(claim["rule"])),
            ("measured", cell(claim["measured"])),
            ("holds", f"**{claim['holds']}**: {claim['cases']['counted']} of {claim['cases']['of']} cases"),
            ("why", cell(claim["why"])),
        ]
    else:
        rows += [("measured", cell(claim["measured"])), ("holds", f"**not judged**: {cell(_sentence(claim))}")]
    yield table(("", ""), rows)
    if (own / "plot.svg").exists():
        yield f"![{title_of(claim)}: {claim['title']}]({home}/plot.svg)"
    yield f"[The table]({home}/table.csv)"


def map_page(claims: Sequence[Mapping[str, Any]]) -> str:
    found = {(claim["paper"], claim["target"]): verdict_of(claim) for claim in claims}
    parts = [
        "# Paper map",
        "Where each section, equation and algorithm of the four papers is, which test holds it, and what its claim "
        "came to. Made by `python bench/results.py` from `papers/places.py`; a test checks that every function and "
        "test exists.",
    ]
    for paper, name in PAPERS.items():
        rows = [_line(place, found) for place in PLACES if place.paper == paper]
        parts += [f"## {name}", table(("where", "what", "function", "test", "verdict"), rows)]
    return "\n\n".join(parts) + "\n"


def _line(place: Place, found: Mapping[tuple[str, str], str]) -> tuple[str, ...]:
    module, _, name = place.function.partition(":")
    file, _, test = place.test.partition("::")
    verdict = ""
    if place.target:
        title = title_of({"paper": place.paper, "target": place.target})
        known = found.get((place.paper, place.target), "not measured")
        verdict = f"[{place.target}]({place.paper}.md#{_anchor(title)}): {known}"
    return place.where, place.what, f"`{name}` in `{module}`", f"`{test}` in `{file}`", verdict


def _anchor(title: str) -> str:
    return "".join(c for c in title.lower() if c.isalnum() or c in "_- ").replace(" ", "-")


def pages(folder: Path) -> dict[str, str]:
    """Every page by the name of its file."""
    claims = read_claims(folder)
    made = {
        f"{paper}.md": paper_page(paper, [claim for claim in claims if claim["paper"] == paper], folder)
        for paper in PAPERS
    }
    return made | {f"{MAP}.md": map_page(claims)}
