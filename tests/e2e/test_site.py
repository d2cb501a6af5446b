"""The documentation as a site: built strictly, complete, without requests to elsewhere, readable on every screen."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import browser

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings")
MISSING = [name for name in NEEDED if find_spec(name) is None]
WIDE, PHONE = 1200, 390
LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data"), ("embed", "src")}
LOADED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "prefetch", "modulepreload", "manifest"}

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed: pip install '.[docs]'")


class Page(HTMLParser):
    """The links of a page, what it loads, and the pages that its navigation names."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.loads += [given[name] for kind, name in LOADED if kind == tag and name in given]
        if tag == "link" and LOADED_LINKS & set(given.get("rel", "").split()):
            self.loads.append(given["href"])


def build(folder: Path, config: Path = REPOSITORY / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(folder)],
        cwd=REPOSITORY, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once, also if several processes run the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            done = build(folder)
            assert done.returncode == 0, done.stderr
            (folder / "built").touch()
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Window]:
    reason = browser.missing()
    if reason is not None:
        if browser.required():
            pytest.fail(reason)
        pytest.skip(reason)
    with browser.window(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


# --- what is built ----------------------------------------------------------------------------------------


def test_every_source_has_a_page(site: Path) -> None:
    sources = (REPOSITORY / "docs").rglob("*.md")
    expected = {path.relative_to(REPOSITORY / "docs").with_suffix(".html").as_posix() for path in sources}
    expected |= {f"leakage/{path.parent.name}.html" for path in REPOSITORY.glob("src/veilboost/*/*/LEAKAGE.md")}
    expected |= {f"project/{path.stem.lower()}.html" for path in REPOSITORY.glob("*.md") if path.stem != "README"}
    made = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert made - {"404.html"} == expected
    assert not list(site.rglob("*.py"))


def test_links_lead_somewhere_and_every_page_is_reached_from_the_home_page(site: Path, pages: dict[Path, Page]) -> None:
    seen, waiting = set[Path](), [site / "index.html"]
    while waiting:
        file = waiting.pop()
        if file in seen or file.suffix != ".html":
            continue
        seen.add(file)
        for link in pages[file].links:
            split = urlsplit(link)
            if split.scheme or not split.path:
                continue
            target = (file.parent / unquote(split.path)).resolve()
            assert target.is_file(), f"{file.relative_to(site)}: {link} leads nowhere"
            waiting.append(target)
    assert seen == set(pages)


def test_a_page_outside_the_navigation_and_a_broken_link_fail_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[Nowhere](none.md), [no such heading](#none)\n")
    (tmp_path / "docs" / "orphan.md").write_text("# Orphan\n")
    settings = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    kept = settings[settings.index("validation:") :].partition("\n\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: small\nplugins: []\nnav: [index.md]\n{kept}\n")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert all(name in done.stderr for name in ("orphan.md", "none.md", "#none")), done.stderr


def test_nothing_comes_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for file, page in pages.items():
        assert page.loads, file
        for address in page.loads:
            split = urlsplit(address)
            assert not split.netloc, f"{file.relative_to(site)} loads {address}"
            assert split.scheme in {"", "data"}, address
    for style in site.rglob("*.css"):
        found = re.findall(
            r"(?:url\(|@import)\s*[\"']?\s*((?:https?:)?//[^\"')\s]+)", style.read_text(encoding="utf-8")
        )
        assert not found, f"{style.name} loads {found}"


def test_the_index_of_the_search_has_every_term_of_the_glossary(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {doc["title"] for doc in index["docs"] if doc["location"].startswith("reference/glossary.html#")}
    glossary = (REPOSITORY / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = set(re.findall(r"^### (.+)$", glossary, re.MULTILINE))
    assert {"Active party", "PSI", "Assignments", "Model share", "Ledger", "Unprotected"} <= terms
    assert terms <= titles
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")


def test_the_reference_has_parameters_with_their_defaults(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference" / "api" / "estimators.html").read_text(encoding="utf-8"))
    assert re.search(r"max_depth:\s*int\s*=\s*6", text)
    assert "DEFAULTS" not in text
    for name in ("VerticalClassifier", "HorizontalRegressor", "feature_importances_", "participants"):
        assert name in text


# --- what is seen -----------------------------------------------------------------------------------------


def settled_width(window: browser.Window, width: int) -> int:
    """The width of the content; a script puts wide tables into frames after the page has loaded."""
    until = time.monotonic() + 10
    while (found := window.run("return document.documentElement.scrollWidth")) != width and time.monotonic() < until:
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("width", [WIDE, PHONE])
@pytest.mark.parametrize("page", ["index", "explanation/threat-model", "how-to/choose-a-protocol"])
def test_a_page_fits_its_screen_in_light_and_dark(
    page: str, width: int, site: Path, window: browser.Window, tmp_path: Path
) -> None:
    window.resize(width, 900)
    background = "return getComputedStyle(document.body).backgroundColor"
    colours: list[str] = []
    for scheme, script in (("light", "default"), ("dark", "slate")):
        window.open(site / f"{page}.html")
        window.run("document.body.setAttribute('data-md-color-scheme', arguments[0])", script)
        assert settled_width(window, width) == width
        assert window.run("return performance.getEntriesByType('resource').map(e => e.name)") == []
        assert window.complaints() == []
        assert window.run("return [...document.images].filter(i => !i.naturalWidth || !i.alt).length") == 0
        colours.append(window.run(background))
        name = f"site-{page.replace('/', '-')}-{width}-{scheme}.png"
        assert window.screenshot(browser.artefacts(tmp_path) / name).stat().st_size > 20_000
    assert colours[0] != colours[1]


def test_the_dark_of_the_system_is_followed_and_the_reader_can_change_it(site: Path, window: browser.Window) -> None:
    window.resize(WIDE, 900)
    window.dark()
    window.open(site / "index.html")
    scheme = "return document.body.getAttribute('data-md-color-scheme')"
    assert window.run(scheme) == "slate"
    window.run("document.querySelector('label[for=__palette_1]').click()")
    assert window.run(scheme) == "default"


def test_search_works_from_a_folder(site: Path, window: browser.Window) -> None:
    window.resize(WIDE, 900)
    window.open(site / "tutorial" / "first-federation.html")
    window.run("document.querySelector('label[for=__search]').click()")
    window.run("const i = document.querySelector('.md-search__input'); i.value = 'model share'; i.focus()")
    found: list[str] = []
    until = time.monotonic() + 20
    while not found and time.monotonic() < until:
        window.run("document.querySelector('.md-search__input').dispatchEvent(new KeyboardEvent('keyup'))")
        time.sleep(0.2)
        found = window.run("return [...document.querySelectorAll('.md-search-result__link')].map(a => a.href)")
    assert any("reference/glossary.html" in address for address in found), found
    assert window.complaints() == []
