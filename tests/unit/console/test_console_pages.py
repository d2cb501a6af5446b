"""The pages of the console, for a party with a finished job, and with hostile names."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from markupsafe import escape

from console_client import Reader, check_page, computed, console_of, csrf_of, logged_in, stranger
from parties import until
from two_parties import job_with, make_two, running, settings_of, trained
from veilboost.console.app import STATIC
from veilboost.console.data import Remembered
from veilboost.console.words import WORDS
from veilboost.party.certs import revoke
from veilboost.party.identity import describe
from veilboost.party.progress import RunFollower
from veilboost.party.runs import RunFolder
from veilboost.privacy.event import Adjacency, ExactRelease
from veilboost.privacy.ledger import Ledger
from veilboost.report.pages import TEMPLATES

PAGES = ("/jobs", "/jobs/first", "/ledger", "/peers", "/tables", "/models", "/policy", "/words", "/errors/VB-1612")
GLOSSARY = Path(__file__).parents[3] / "docs" / "reference" / "glossary.md"
HOSTILE = "<script>alert(1)</script>"
TWO_MODES = pytest.mark.parametrize("party", ["bank", "shop"])


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_two(tmp_path_factory.mktemp("console"))
    bank, shop = settings_of(folder, "bank"), settings_of(folder, "shop")
    with running(shop) as daemon:
        trained(bank, job_with(daemon, more='validation = 0.2\nrecord = "payload"'))
    return folder


@TWO_MODES
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_complete_and_loads_nothing_from_elsewhere(town: Path, party: str, page: str) -> None:
    client = logged_in(console_of(town / f"{party}.toml"))
    answer = client.get(page)
    assert answer.status_code == 200, answer.text
    check_page(answer.text)


@pytest.mark.parametrize("word", WORDS)
def test_the_words_are_those_of_the_glossary(word: str) -> None:
    entry = GLOSSARY.read_text().partition(f"\n### {word}\n")[2].partition("\n#")[0].replace("`", "")
    assert re.sub(r" \[[^]]*\]\([^)]*\)\.?$", "", entry.strip()) == WORDS[word]


def test_styles_and_scripts_load_nothing_from_elsewhere() -> None:
    for file in (TEMPLATES / "style.css", STATIC / "console.css", STATIC / "console.js"):
        text = file.read_text()
        assert re.findall(r"https?:|//\w|url\(|@import", text) == [], file


def test_a_job_is_shown_with_its_proof(town: Path) -> None:
    text = logged_in(console_of(town / "bank.toml")).get("/jobs/first").text
    for told in ("AUC on validation rows", "PlainSums", "2 of 2", "What was revealed so far", "common rows"):
        assert told in text, told
    text = logged_in(console_of(town / "shop.toml")).get("/jobs/first").text
    for told in (
        "at the driver",
        "Bytes over time",
        "2 of 2",
        "bank drives this job. This party is a passive party",
    ):
        assert told in text, told
    assert "AUC" not in text


def test_the_report_and_the_ledger_can_be_kept(town: Path) -> None:
    client = logged_in(console_of(town / "shop.toml"), "vera")
    report = client.get("/jobs/first/report")
    assert report.headers["content-disposition"] == 'attachment; filename="first.html"'
    assert "The job first" in report.text
    ledger = client.get("/ledger/export")
    assert ledger.headers["content-disposition"].startswith("attachment")
    assert ledger.json()["head"]["rows"] == len(ledger.json()["rows"]) > 0
    page = computed(client, "/ledger", "Verified: ")
    assert ledger.json()["head"]["hash"] in page
    assert re.search(r'<a href="/jobs/first">first/[0-9a-f]+</a>', page)


def test_a_job_has_its_own_entries_of_the_ledger(town: Path) -> None:
    book = Ledger(town / "runs-shop" / "ledger.sqlite")
    every, own = book.rows(), book.rows("first")
    assert own == tuple(row for row in every if row.job.startswith("first/"))
    assert own
    for other in ("firs", "first/", "firsts", "first%", "f_rst", ""):
        assert book.rows(other) == (), other
    text = logged_in(console_of(town / "shop.toml")).get("/jobs/first").text
    assert all(row.hash[:12] in text for row in own)


def test_a_changed_ledger_is_summed_up_once_in_a_while() -> None:
    stamps, computed = [0], list[int]()

    def compute() -> int:
        computed.append(stamps[0])
        return stamps[0]

    for rest, expected in ((0.0, [0, 1]), (1e12, [0])):
        stamps[0], computed[:] = 0, []
        kept = Remembered(compute, lambda: stamps[0], rest)
        until(lambda kept=kept: kept.get().value is not None, "the first value")
        stamps[0] = 1
        until(lambda kept=kept, last=expected[-1]: kept.get().value == last, "the last value")
        assert computed == expected


def test_an_open_page_hears_that_a_value_can_be_computed_again() -> None:
    stamps = [0]
    kept = Remembered(lambda: stamps[0], lambda: stamps[0])
    until(lambda: kept.get().value is not None, "the first value")
    before = kept.version
    assert kept.version == before
    stamps[0] = 1
    assert kept.version != before


def test_the_table_is_described_without_its_values(town: Path) -> None:
    console = console_of(town / "shop.toml")
    text = computed(logged_in(console), "/tables", "Features, without any value")
    assert console.data.table is not None
    facts = console.data.table.get().value
    assert facts is not None
    assert facts.report.table is None, "the values are not kept"
    for told in ("x_shop", "shade", "category", "200", "first"):
        assert told in text, told
    for value in ("crimson", "turquoise", "c020"):
        assert value not in text
    assert "Training accepts this table. Nothing in it is unusual." in text


def test_the_quality_of_the_table_is_the_report_of_data_check(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    shop = settings_of(make_two(tmp_path), "shop")
    table = pq.read_table(tmp_path / "shop.parquet")
    numbers = pa.array([f"{at}.5" for at in range(table.num_rows)])
    pq.write_table(table.append_column("price", numbers), tmp_path / "shop.parquet")
    report = shop.own_data.check()
    assert report.notes
    text = computed(logged_in(console_of(tmp_path / "shop.toml")), "/tables", "Training accepts this table.")
    for note in report.notes:
        assert escape(note.what) in text
        assert escape(note.fix) in text
    assert "7.5" not in text
    pq.write_table(table.append_column("same", pa.array([1.0] * table.num_rows)), tmp_path / "shop.parquet")
    (error,) = shop.own_data.check().errors
    text = computed(logged_in(console_of(tmp_path / "shop.toml")), "/tables", "Training refuses this table.")
    assert escape(str(error)) in text
    assert f'href="/errors/{error.code}"' in text


def test_jobs_are_filtered_and_paged(town: Path, tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "shop")
    for number in range(120):
        run = RunFolder.create(tmp_path / "runs-shop", f"job-{number}")
        run.note(party="shop", role="passive", active="bank", state="failed" if number % 2 else "finished")
    client = logged_in(console_of(tmp_path / "shop.toml"))
    text = client.get("/jobs").text
    assert "all (120)" in text
    assert "failed (60)" in text
    assert "page 1 of 3" in text
    assert text.count('href="/jobs/job-') == 50
    assert client.get("/jobs?state=failed&page=2").text.count('href="/jobs/job-') == 10
    for wrong in ("?page=0", "?page=-1", "?page=99999999999", "?page=x", "?state=%3Cscript%3E"):
        answer = client.get(f"/jobs{wrong}")
        assert answer.status_code == 200
        assert "<script>" not in answer.text


def test_a_changed_status_is_seen_at_once(tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "shop")
    run = RunFolder.create(tmp_path / "runs-shop", "job")
    run.note(party="shop", role="passive", active="bank", state="training")
    console = console_of(tmp_path / "shop.toml")
    before = console.data.version(None), console.data.version("job")
    run.note(state="failed", error="VB-1612: the policy refuses it; ask")
    console.data._scanned = None  # a second later
    assert all(a != b for a, b in zip(before, (console.data.version(None), console.data.version("job")), strict=True))
    text = logged_in(console).get("/jobs").text
    assert "VB-1612: the policy refuses it; ask" in text
    assert 'href="/errors/VB-1612"' in text


def test_a_running_job_is_shown_with_its_progress(town: Path, tmp_path: Path) -> None:
    make_two(tmp_path)
    for party in ("bank", "shop"):
        settings_of(tmp_path, party)
        run = tmp_path / f"runs-{party}" / "first"
        shutil.copytree(town / f"runs-{party}" / "first", run)
        RunFolder(run).note(state="training", pid=os.getpid())
        client = logged_in(console_of(tmp_path / f"{party}.toml"))
        text = client.get("/jobs").text
        for told in ("<h2>Running</h2>", "<progress", "2 of 2", "time left", "plain", "training (1)"):
            assert told in text, told
        assert ("AUC" if party == "bank" else "at the driver") in text
        assert "Cancel first" in client.get("/jobs/first").text


def test_a_transcript_that_grows_is_read_once(town: Path, tmp_path: Path) -> None:
    whole = RunFolder(town / "runs-shop" / "first")
    lines = (whole.path / "transcript" / "transcript.jsonl").read_bytes().splitlines(keepends=True)
    run = RunFolder.create(tmp_path, "first")
    run.note(**{key: value for key, value in whole.status.items() if key not in ("format", "updated")})
    run.save_job(whole.job_text)
    (run.path / "transcript").mkdir()
    file = run.path / "transcript" / "transcript.jsonl"
    follower = RunFollower(run)
    for at, line in enumerate(lines):
        with file.open("ab") as growing:
            growing.write(line[:10])
        assert sum(each.count for each in follower.read().exchanges) == at  # half a line does not count
        with file.open("ab") as growing:
            growing.write(line[10:])
    assert follower.read().exchanges == RunFollower(whole).read().exchanges
    assert follower.read().round == 2
    file.unlink()  # another attempt
    file.write_bytes(b"".join(lines[:3]))
    assert sum(each.count for each in follower.read().exchanges) == 3


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """Names of columns come from the table, names of parties and errors from peers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = make_two(tmp_path)
    settings_of(folder, "shop")
    pq.write_table(
        pa.table({"id": ["a", "b", "c"], HOSTILE: [1.0, 2.0, 3.0], '"><img src=x>': ["p", "q", "q"]}),
        folder / "shop.parquet",
    )
    run = RunFolder.create(folder / "runs-shop", "job")
    about = {"party": "shop", "role": HOSTILE, "active": HOSTILE, "state": "failed", "error": f"VB-1001: {HOSTILE}; x"}
    run.note(**about)
    run.save_job(HOSTILE)
    (run.path / "transcript").mkdir()
    entry = {
        "when": 1.0,
        "direction": "sent",
        "peer": HOSTILE,
        "message": HOSTILE,
        "size": 1,
        "reveals": [[HOSTILE, "x"]],
    }
    (run.path / "transcript" / "transcript.jsonl").write_text(json.dumps(entry) + "\n")
    (run.path / "audit.json").write_text(
        json.dumps(
            {
                "findings": [
                    dict.fromkeys(("attack", "adversary", "victim", "data", "metric", "sentence", "verdict"), HOSTILE)
                    | dict.fromkeys(("value", "low", "high", "baseline", "seconds"), 0.5)
                ]
            }
        )
    )
    deployment = folder / "runs-shop" / "deployments" / ("0" * 32)
    deployment.mkdir(parents=True)
    status = {
        "name": HOSTILE,
        "version": 1,
        "run": HOSTILE,
        "active": HOSTILE,
        "parties": [HOSTILE],
        "created": 1.0,
        "until": 2e10,
        "trees": 1,
        "format": 1,
    }
    (deployment / "status.json").write_text(json.dumps(status))
    release = ExactRelease(
        what=HOSTILE, adjacency=Adjacency.PASSIVE_RECORD, adversary=HOSTILE, protocol=HOSTILE, release=HOSTILE
    )
    Ledger(folder / "runs-shop" / "ledger.sqlite").append("job/0", release)
    client = logged_in(console_of(folder / "shop.toml"))
    computed(client, "/tables", "Features, without any value")
    computed(client, "/ledger", "Verified: ")
    for page in ("/jobs", "/jobs/job", "/tables", "/models", "/ledger"):
        answer = client.get(page)
        assert answer.status_code == 200, answer.text
        assert "<script>alert" not in answer.text, page
        assert "<img" not in answer.text, page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text, page


def test_a_damaged_run_does_not_hide_the_others(town: Path, tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "shop")
    RunFolder.create(tmp_path / "runs-shop", "good").note(party="shop", state="finished", active="bank")
    RunFolder.create(tmp_path / "runs-shop", "bad")
    (tmp_path / "runs-shop" / "bad" / "status.json").write_text("{")
    client = logged_in(console_of(tmp_path / "shop.toml"))
    text = client.get("/jobs").text
    assert "good" in text
    assert "VB-1711" in text
    assert client.get("/jobs/bad").status_code == 400


def test_an_audit_of_a_trial_is_started_from_the_page(town: Path) -> None:
    """The console of a trial has the settings of the other party; without them there is no audit."""
    console = console_of(town / "shop.toml", trial=(town / "bank.toml",))
    client = logged_in(console)
    assert client.post("/jobs/first/audit", data={"csrf": csrf_of(client)}).status_code == 303
    until(lambda: not console.data.audits.state("first")[0], "the audit")
    assert console.data.audits.state("first")[1] is None
    text = client.get("/jobs/first").text
    assert "Attacks and their results" in text
    assert "adversary → victim" in text
    alone = logged_in(console_of(town / "shop.toml"))
    assert alone.post("/jobs/first/audit", data={"csrf": csrf_of(alone)}).status_code == 400


def test_who_is_not_logged_in_only_sees_the_login(town: Path) -> None:
    client = stranger(console_of(town / "shop.toml"))
    text = client.get("/login").text
    assert "shop" in text
    assert Reader(text).inline == []
    assert "first" not in text


def test_a_horizontal_job_tells_who_was_lost_and_what_was_measured(tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "shop")
    run = RunFolder.create(tmp_path / "runs-shop", "sums")
    changes = [
        {"party": "east", "event": "lost", "round": 1, "level": 0, "reason": "VB-1401"},
        {"party": "east", "event": "returned", "round": 3},
    ]
    reports = {"north": {"auc": 0.75, "rows": 150}, "south": {"auc": 0.5}}
    run.note(party="shop", role="server", state="finished", membership=changes, reports=reports)
    parties = '[parties.shop]\nrole = "server"\n[parties.north]\naddress = "127.0.0.1:1"\n'
    run.save_job(f'name = "sums"\nprotocol = "secagg"\n{parties}[parties.south]\naddress = "127.0.0.1:2"\n')
    text = logged_in(console_of(tmp_path / "shop.toml")).get("/jobs/sums").text
    for told in ("east was lost in round 2 at level 1", "east returned in round 4", "server", "participant", "secagg"):
        assert told in text, told
    assert re.findall(r'rowheader">(north|south)</th>\s*<td[^>]*>([^<]*)</td>\s*<td[^>]*>([^<]*)<', text) == [
        ("north", "0.75", "150"),
        ("south", "0.5", "–"),
    ]
    assert "alignment" not in text
    assert "To north, south</h3>" in text


def test_a_participant_sees_the_round_from_what_it_stores(tmp_path: Path) -> None:
    """No message of secagg begins a round; the server asks for a checkpoint after each."""
    run = RunFolder.create(tmp_path, "sums")
    run.note(party="north", role="participant", active="hub", state="training", pid=os.getpid())
    run.save_job(
        'name = "sums"\nprotocol = "secagg"\n[parties.hub]\nrole = "server"\n[parties.north]\naddress = "127.0.0.1:1"\n'
        '[parties.south]\naddress = "127.0.0.1:2"\n[training]\nn_estimators = 10\n'
    )
    (run.path / "transcript").mkdir()
    entry = {"direction": "received", "peer": "hub", "message": "Checkpoint", "size": 1, "reveals": []}
    lines = [json.dumps({**entry, "when": 1.0 + 2 * at}) + "\n" for at in range(4)]
    (run.path / "transcript" / "transcript.jsonl").write_text("".join(lines))
    found = RunFollower(run).read()
    assert (found.round, found.rounds, found.seconds_left) == (5, 10, 12.0)
    run.note(state="finished")
    assert RunFollower(run).read().round == 4


def test_a_job_that_waits_for_an_approval_says_so(tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "bank")
    run = RunFolder.create(tmp_path / "runs-bank", "held")
    why = "VB-1415: shop: a person decides; wait"
    run.note(party="bank", role="active", state="proposed", pid=os.getpid(), error=why)
    text = logged_in(console_of(tmp_path / "bank.toml")).get("/jobs").text
    assert "<h2>Running</h2>" in text
    assert why in text
    assert 'href="/errors/VB-1415"' in text


def test_a_continued_model_names_the_run_before(town: Path, tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "bank")
    shutil.copytree(town / "runs-bank" / "first", tmp_path / "runs-bank" / "more")
    run = RunFolder(tmp_path / "runs-bank" / "more")
    run.save_job('continues = "first"\n' + run.job_text.replace('name = "first"', 'name = "more"'))
    text = logged_in(console_of(tmp_path / "bank.toml")).get("/jobs/more").text
    assert re.search(r"continues the model of</th>\s*<td[^>]*>first<", text)


def test_peers_are_shown_with_their_health_certificate_and_last_job(town: Path) -> None:
    """The bank finds the shop in the newest job that it began; the shop does not dial the bank, which drove a job."""
    bank = logged_in(console_of(town / "bank.toml"))
    RunFolder.create(town / "runs-bank", "not begun").note(party="bank", role="active", state="failed")
    shop, file = settings_of(town, "shop"), town / "runs-bank" / "first" / "job.toml"
    port = int(re.findall(r"127\.0\.0\.1:(\d+)", file.read_text())[0])
    with running(replace(shop, listen=f"127.0.0.1:{port}")):
        text = computed(bank, "/peers", "healthy")
    expires = describe(shop.certificates.cert).not_after
    assert f"until {expires:%Y-%m-%d} (" in text
    assert "the daemon does not run" in text
    seen = computed(logged_in(console_of(town / "shop.toml")), "/peers", "not dialled: it has no address here")
    assert "first, 20" in seen
    proposed_with = describe(settings_of(town, "bank").certificates.cert).not_after
    assert f"until {proposed_with:%Y-%m-%d}, when it proposed its last job" in seen


def test_revoked_certificates_are_listed(tmp_path: Path) -> None:
    make_two(tmp_path)
    settings_of(tmp_path, "shop")
    assert "name no list of revoked certificates" in logged_in(console_of(tmp_path / "shop.toml")).get("/peers").text
    settings_of(tmp_path, "shop", certificates='revoked = "revoked.crl"')
    client = logged_in(console_of(tmp_path / "shop.toml"))
    assert "No certificate is revoked." in client.get("/peers").text
    revoke(tmp_path, "bank")
    assert f"<li>{describe(tmp_path / 'bank.crt').serial:x}</li>" in client.get("/peers").text
    (tmp_path / "revoked.crl").write_text("damaged")
    text = client.get("/peers").text
    assert "No certificate is revoked." not in text
    assert re.search(r'class="error">VB-\d{4}: .*href="/errors/VB-', text)
