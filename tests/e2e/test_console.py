"""The web console in a real browser: an officer of the shop approves, watches, refuses and cancels jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import browser
from console_client import PASSWORD
from parties import CONFIG, DEADLINE, Town, make_certificates, until
from veilboost.party.approvals import list_proposals, run_approval, verify
from veilboost.party.settings import load_party

WIDE, PHONE = 1280, 390
ENDLESS = 20_000  # rounds of the job that is watched and cancelled: minutes on any machine
OUTSIDE = """return [...document.querySelectorAll('body *')].filter(e => {
  const b = e.getBoundingClientRect();
  return b.width > 0 && b.right > document.documentElement.clientWidth + 1 && !e.closest('.scroll, .skip')
}).map(e => e.outerHTML.slice(0, 120))"""
FOCUSED = """const e = document.activeElement, style = getComputedStyle(e);
  return [e.innerText, style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth)]"""
CONTRAST = """
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(x => { x /= 255; return x <= .03928 ? x / 12.92 :
  ((x + .055) / 1.055) ** 2.4 }); return .2126 * r + .7152 * g + .0722 * b };
const ground = e => { while (e) { const c = getComputedStyle(e).backgroundColor;
  if (!/^rgba.*, 0\\)$/.test(c)) return c; e = e.parentElement }
  return getComputedStyle(document.body).backgroundColor };
const texts = 'a, button, p, td, th, dt, dd, li, code, caption, summary, label, h1, h2, h3, .state';
return [...document.querySelectorAll(texts)]
  .filter(e => e.innerText && e.getBoundingClientRect().left >= 0)
  .map(e => { const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), e.outerHTML.slice(0, 120)] }).filter(([ratio]) => ratio < 4.5)"""


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("console")
    made = Town(folder, make_certificates(folder / "certs"), rows=300)
    made.settle("shop", {"approval": "ask", "deploy_to": ("bank",), "max_trees": ENDLESS})
    for party in ("bank", "telecom"):
        made.settle(party, {"max_trees": ENDLESS})
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def window(tmp_path: Path) -> Iterator[browser.Window]:
    reason = browser.missing()
    if reason is not None:
        if browser.required():
            pytest.fail(reason)
        pytest.skip(reason)
    with browser.window(tmp_path / "profile") as opened:
        yield opened


def open_console(town: Town, party: str) -> str:
    password = town.folder / "password"
    password.write_text(PASSWORD + "\n")
    password.chmod(0o600)
    for user, role in (("anna", "approver"), ("vera", "viewer")):
        options = ("--role", role, "--config", f"{party}.toml", "--password-file", password)
        assert town.answer("console", "add-user", user, *options)["new"]
    process = town.spawn("console", "--config", f"{party}.toml", "--listen", "127.0.0.1:0")
    line = process.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None, line + process.stderr.read()
    return found[0]


def log_in(window: browser.Window, address: str, name: str) -> None:
    window.open(address)
    assert window.address == f"{address}/login"
    window.write("name", name)
    window.write("password", PASSWORD)
    window.click("Log in")
    window.until_text(f"{name} (")


def tab_to(window: browser.Window, text: str) -> None:
    """Move the focus to the element with this text, as a person without a mouse does."""
    for _ in range(50):
        window.press_tab()
        if window.run(FOCUSED)[0] == text:
            return
    pytest.fail(f"the keyboard does not reach {text}")


def picture(window: browser.Window, folder: Path, name: str) -> None:
    """The page as it is, at both widths: it fits, and the browser has nothing to complain about."""
    for width in (WIDE, PHONE):
        window.resize(width, 900)
        assert window.run("return document.documentElement.scrollWidth") == width, name
        assert window.run(OUTSIDE) == [], name
        window.screenshot(folder / f"console-{name}-{width}.png")
    assert window.run(CONTRAST) == [], name
    assert window.complaints() == [], name
    window.resize(WIDE, 900)


def test_an_officer_decides_watches_and_keeps_the_proof(town: Town, window: browser.Window, tmp_path: Path) -> None:
    pictures = browser.artefacts(tmp_path)
    addresses = town.serve("shop", "telecom")
    address = open_console(town, "shop")
    window.resize(WIDE, 900)
    window.open(address)
    picture(window, pictures, "login")
    log_in(window, address, "anna")
    window.until_text("No proposal waits for a decision.")

    # A proposal appears by itself; she reads and approves it.
    quick = replace(CONFIG, n_estimators=8)
    driver = town.train(town.write_job(addresses, "credit", quick, validation=0.2), "--wait")
    window.until_text("Training credit")
    picture(window, pictures, "inbox-pending")
    window.click("Training credit")
    window.until_text("What it would reveal")
    for told in (
        "bank asks to train a model with the table main",
        "a passive party, which has columns",
        "plain",
        "n2, n3, shade",
        "unprotected",
    ):
        assert told in window.text, told
    picture(window, pictures, "proposal")
    window.write("reason", "contract 17")
    window.click("Approve")
    window.until_text("Decision: approved by anna")
    assert "signature verified: contract 17" in window.text

    window.until_text("Open the job")
    window.click("Open the job")
    town.trained(driver)
    window.until(lambda: window.run("return document.querySelector('.state').textContent") == "finished", "the end")
    assert "This job was approved by anna" in window.text
    picture(window, pictures, "job")
    approval = run_approval(town.run_folder("shop"))
    assert approval is not None
    assert verify(load_party(town.folder / "shop.toml"), approval)

    window.click("Ledger")
    window.until_text("Verified: ")
    assert "sums of gradients" in window.text
    picture(window, pictures, "ledger")

    # A second job is refused.
    driver = town.train(town.write_job(addresses, "second", quick), "--wait")
    window.click("Inbox")
    window.until_text("Training second")
    window.click("Training second")
    window.until_text("What it would reveal")
    window.write("reason", "too few trees")
    window.click("Refuse")
    window.until_text("Decision: refused by anna")
    assert "VB-1416" in driver.communicate(timeout=DEADLINE)[1]

    # A third one is approved with the keyboard alone, watched without reloading the page, and cancelled.
    endless = replace(CONFIG, n_estimators=ENDLESS)
    driver = town.train(town.write_job(addresses, "third", endless, validation=0.2), "--wait")
    window.click("Inbox")
    window.until_text("Training third")
    window.click("Training third")
    window.until_text("What it would reveal")
    tab_to(window, "Approve")
    window.press_enter()
    window.until_text("Open the job")
    window.click("Open the job")
    curve = "return document.querySelector('#live-progress figure svg')?.querySelector('polyline.s0, .s0')?.outerHTML"
    seen = set[str]()

    def moved() -> bool:
        found = re.search(rf"(\d+) of {ENDLESS}", window.text)
        if found is not None:
            seen.add(f"{found[1]} {window.run(curve)}")
        return len(seen) >= 3

    window.run("window.stays = true")
    window.until(moved, "the curve moves")
    assert window.run("return window.stays"), "the page was not loaded again"

    # The party that drives the job sees its metric, too.
    driving = open_console(town, "bank")
    log_in(window, driving, "anna")
    window.open(f"{driving}/jobs/third")
    window.until_text("AUC on validation rows")
    seen.clear()
    window.until(moved, "the learning curve moves")
    picture(window, pictures, "job-driver")

    window.open(f"{address}/jobs")
    window.until_text("Running")
    picture(window, pictures, "jobs-running")
    window.click("third")
    window.until_text(f"of {ENDLESS}")
    picture(window, pictures, "job-running")
    window.click("Cancel this job")
    window.click("Cancel third")
    assert "VB-1705" in driver.communicate(timeout=DEADLINE)[1]
    window.until(lambda: window.run("return document.querySelector('.state').textContent") == "ended", "the end")

    # Every page, light and dark.
    (held, *_) = list_proposals(load_party(town.folder / "shop.toml"))
    pages = {
        "inbox": "Decided and expired proposals",
        f"inbox/{held.id}": "Decision: ",
        "jobs": "All jobs",
        "jobs/third": "Settings of the job",
        "ledger": "Verified: ",
        "peers": "The daemon of this party runs",
        "tables": "Features, without any value",
        "models": "No model is deployed",
        "policy": "Rules of the policy",
        "words": "Left/right assignments: for every row",
        "errors/VB-1705": "What it means",
    }
    for dark in (False, True):
        window.dark(dark)
        for page, text in pages.items():
            window.open(f"{address}/{page}")
            window.until_text(text)
            name = page.replace("/", "-").replace(held.id, "decided")
            picture(window, pictures, f"dark-{name}" if dark else name)

    # The keyboard reaches everything, and the focus is visible.
    window.open(f"{address}/models")
    reached = [window.press_tab() or window.run(FOCUSED) for _ in range(9)]
    names = ["Inbox", "Jobs", "Ledger", "Peers", "Tables", "Models", "Policy"]
    assert [each[0] for each in reached] == ["Skip to the content", "Log out", *names]
    assert all(width >= 2 for _, width in reached), reached
    window.click("Log out")
    window.until(lambda: window.address.endswith("/login"), "the page to log in")
    log_in(window, address, "vera")
    assert {each.state for each in list_proposals(load_party(town.folder / "shop.toml"))} == {"approved", "refused"}
    window.open(f"{address}/jobs/third")
    assert "Cancel" not in window.text
    until(lambda: town.daemons["shop"].poll() is None, "the daemon goes on")
