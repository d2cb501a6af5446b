"""The skeleton of every page: one file, nothing from elsewhere, for wide and narrow screens, dark and paper."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from html import escape

from veilboost.version import release

# The same hues, light enough to stand out from a dark ground.
_DARK_COLOURS = ("#6cb6ee", "#f59a67", "#7fcf85", "#c79be8", "#e0b34d", "#55c5d0", "#f587b3", "#bbbbbb")
_STYLE = """
:root{--ink:#1a1a1a;--grey:#555;--line:#ddd;--paper:#fff;--shade:#f5f6f8;--link:#0b57a4;
--bad:#a40000;--fair:#7a4f00;--good:#00602b;--bar:#e4e4e4}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,-apple-system,"Segoe UI",sans-serif;margin:0;color:var(--ink);background:var(--paper)}
header,nav,main,footer{max-width:66rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.5rem}footer{padding-bottom:2rem;color:var(--grey);font-size:.9rem}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 .3rem}h2{font-size:1.25rem;margin:2.2rem 0 .6rem}
h3{font-size:1.05rem;margin:1.4rem 0 .4rem}
p{margin:.5rem 0;max-width:46rem;overflow-wrap:anywhere}p.lead,.quiet{color:var(--grey)}
a{color:var(--link)}a:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:.5rem;background:var(--paper);padding:.4rem}
nav ul{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:.8rem 0;padding:0}
nav a{display:inline-block;padding:.25rem 0}
table{border-collapse:collapse;width:100%;margin:.6rem 0}
caption{text-align:left;color:var(--grey);padding-bottom:.3rem}
th,td{text-align:left;padding:.4rem .6rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}
thead th{border-bottom:2px solid var(--grey)}th{font-weight:600}th,td{overflow-wrap:break-word}
.number{font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}
.scroll{overflow-x:auto}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.7rem;margin:1rem 0;padding:0}
.tiles div{background:var(--shade);border-radius:.5rem;padding:.6rem .8rem}
.tiles dt{color:var(--grey);font-size:.88rem}.tiles dd{margin:0;font-size:1.25rem;font-weight:600}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,25rem),1fr));gap:1rem;align-items:start}
figure{margin:.6rem 0;min-width:0}figure svg{display:block;width:100%;max-width:46rem;height:auto}
figure.sheet{overflow-x:auto}figure.sheet svg{min-width:30rem}
.verdict{font-weight:600}.words{font-weight:400}
.succeeded,.broken,.open,.no{color:var(--bad)}.better,.heuristic,.partly{color:var(--fair)}
.resisted,.sound,.yes{color:var(--good)}
article{border-top:1px solid var(--line);margin-top:1.5rem}
ul.plain{margin:.3rem 0;padding-left:1.1rem}
@media (max-width:44rem){
table.list,.list caption,.list tbody,.list tr,.list td,.list tbody th{display:block}
.list thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.list tr{border-bottom:2px solid var(--line);padding:.5rem 0}
.list td,.list tbody th{border:0;padding:.12rem 0;text-align:left;white-space:normal}
.list td[data-label]:not([data-label=""])::before{content:attr(data-label) ": ";color:var(--grey);font-weight:400}}
@media screen and (prefers-color-scheme:dark){
:root{--ink:#e9e9ec;--grey:#b0b3ba;--line:#3a3d45;--paper:#15171c;--shade:#20232a;--link:#7db8f5;
--bad:#ff8a80;--fair:#f2c14e;--good:#7ddc9b;--bar:#33363f}
svg .paper{fill:var(--paper)}svg .ink{fill:var(--ink)}svg .grey{fill:var(--grey)}
svg .axis{stroke:var(--grey)}svg .grid{stroke:var(--line)}COLOURS}
@media print{body{font-size:11pt}nav,.skip{display:none}header,main,footer{max-width:none}
figure,tr,.tiles{break-inside:avoid}h2,h3{break-after:avoid}.scroll,figure.sheet{overflow:visible}}
"""
_DARK = "".join(f"svg .s{at}{{stroke:{shade}}}svg .f{at}{{fill:{shade}}}" for at, shade in enumerate(_DARK_COLOURS))
# What the page does not have it may not fetch or run, whatever stands in a folder it was made from.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"


@dataclass(frozen=True)
class Section:
    """A part of a page that the table of contents names. `body` is HTML."""

    name: str
    title: str
    body: str


def document(title: str, lead: str, sections: Sequence[Section]) -> str:
    """A whole page; `lead` is text that says what it is."""
    shown = [section for section in sections if section.body]
    contents = "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in shown)
    body = "\n".join(
        f'<section id="{each.name}" aria-labelledby="{each.name}-title">'
        f'<h2 id="{each.name}-title">{escape(each.title)}</h2>\n{each.body}\n</section>'
        for each in shown
    )
    links = f'<nav aria-label="Contents"><ul>{contents}</ul></nav>' if len(shown) > 2 else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><meta name="color-scheme" content="light dark">
<title>{escape(title)}</title><style>{_STYLE.replace("COLOURS", _DARK)}</style></head><body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>
{links}
<main id="content" tabindex="-1">
{body}
</main>
<footer><p>Made by VeilBoost {release()}. This page is complete: it loads nothing and runs nothing.</p></footer>
</body></html>
"""


@dataclass(frozen=True)
class Cell:
    """What stands in a table where text is not enough; `html` is inserted as it is."""

    html: str
    kind: str = ""


def table(
    caption: str, headers: Sequence[str], rows: Sequence[Sequence[str | Cell]], numbers: Collection[str] = ()
) -> str:
    """A table whose first column names its rows; on a narrow screen each row becomes a list.

    Roles are spelt out because browsers forget those of a table that is not displayed as one.
    """
    head = "".join(
        f'<th scope="col" role="columnheader"{_class("number" if header in numbers else "")}>{escape(header)}</th>'
        for header in headers
    )
    body = "\n".join(f'<tr role="row">{_cells(headers, row, numbers)}</tr>' for row in rows)
    return (
        f'<div class="scroll"><table class="list" role="table"><caption>{escape(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """A few numbers that matter most."""
    inner = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="tiles">{inner}</dl>'


def figure(svg: str, kind: str = "") -> str:
    return f"<figure{_class(kind)}>{svg}</figure>"


def charts(drawings: Sequence[str]) -> str:
    """Drawings side by side where there is room."""
    return f'<div class="charts">{"".join(figure(each) for each in drawings)}</div>' if drawings else ""


def words(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{escape(text)}</p>"


def bullets(lines: Sequence[str]) -> str:
    return '<ul class="plain">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def verdict(word: str, kind: str | None = None) -> Cell:
    """A word in the colour of what it means; the word itself says it too."""
    return Cell(escape(word), f"verdict {escape(kind or word)}")


def _cells(headers: Sequence[str], row: Sequence[str | Cell], numbers: Collection[str]) -> str:
    parts: list[str] = []
    for at, (header, cell) in enumerate(zip(headers, row, strict=True)):
        content, kind = (cell.html, cell.kind) if isinstance(cell, Cell) else (escape(cell), "")
        kind = " ".join(filter(None, (kind, "number" if header in numbers else "")))
        if at == 0:
            parts.append(f'<th scope="row" role="rowheader"{_class(kind)}>{content}</th>')
        else:
            parts.append(f'<td role="cell" data-label="{escape(header)}"{_class(kind)}>{content}</td>')
    return "".join(parts)


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
