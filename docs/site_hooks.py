"""Hooks of mkdocs: pages from outside of docs/, links to files there, and folders in the navigation."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()((?!\w+:|#)[^)\s#]+)")
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)

# Where a Markdown file of the repository stands in the site.
OUTSIDE = {
    **{path.name: f"project/{path.name.lower()}" for path in ROOT.glob("*.md") if path.name != "README.md"},
    **{
        path.relative_to(ROOT).as_posix(): f"leakage/{path.parent.name}.md"
        for path in sorted((ROOT / "src" / "veilboost").glob("*/*/LEAKAGE.md"))
    },
}
HOMES = {home: source for source, home in OUTSIDE.items()}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = _expanded(config.nav)
    return config


def _expanded(entry: Any) -> Any:
    """The navigation with every folder, an entry that ends with "/", replaced by its pages."""
    if isinstance(entry, list):
        return [_expanded(each) for each in entry]
    if isinstance(entry, dict):
        return {title: _expanded(each) for title, each in entry.items()}
    if not entry.endswith("/"):
        return entry
    pages = [home for home in HOMES if home.startswith(entry)]
    pages += [f"{entry}{path.name}" for path in (ROOT / "docs" / entry).glob("*.md")]
    return sorted(pages, key=lambda page: (not page.endswith("/index.md"), page))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, home in OUTSIDE.items():
        files.append(File.generated(config, home, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site needs them, and the Markdown that GitHub allows in the form that Python-Markdown needs."""
    home = page.file.src_uri
    source = PurePosixPath(HOMES.get(home, f"docs/{home}"))

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(source.parent / match[2])
        return match[1] + posixpath.relpath(_place(target, config, files), posixpath.dirname(home) or ".")

    parts = CODE.split(markdown)
    parts[::2] = (_strict(LINK.sub(link, part)) for part in parts[::2])
    return "".join(parts)


def _place(target: str, config: MkDocsConfig, files: Files) -> str:
    """Where a file of the repository stands in the site. A file that is no page is copied into it."""
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    if target == "README.md":
        return "index.md"
    if target in OUTSIDE:
        return OUTSIDE[target]
    copy = f"source/{target}"
    if copy not in files.src_uris and (ROOT / target).is_file():
        files.append(File.generated(config, copy, abs_src_path=str(ROOT / target)))
    return copy


def _strict(text: str) -> str:
    """An empty line around a comment and before a list; four spaces before what belongs to an item of a list."""
    text = re.sub(r"^(<!--.*-->)\n(?=\S)", r"\1\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^(?![-*] |\d+\. |\s|\|)(.+)\n(?=[-*] |\d+\. )", r"\1\n\n", text, flags=re.MULTILINE)
    return re.sub(r"^ {2,3}(?=\S)", "    ", text, flags=re.MULTILINE)
