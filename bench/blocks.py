"""Figures in a page of the documentation, written by the benchmark that measured them."""

from __future__ import annotations

from pathlib import Path


def replace_block(page: Path, name: str, text: str) -> None:
    """Put text between `<!-- begin NAME -->` and `<!-- end NAME -->`."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    old = page.read_text()
    if old.count(begin) != 1 or old.count(end) != 1:
        raise SystemExit(f"{page} has no place for {name}: write {begin} and {end} where it belongs")
    before, after = old.split(begin)[0], old.split(end)[1]
    page.write_text(f"{before}{begin}\n{text.strip()}\n{end}{after}")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
