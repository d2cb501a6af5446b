"""`veilboost audit` on a run of real parties, and `simulate --audit`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_horizontal_parties import HELPERS, HUB, OWNERS
from test_horizontal_parties import Town as HorizontalTown

from command_line import call
from parties import PARTIES, Town, make_certificates
from veilboost.audit.attacks import mal_extremes, membership, name_of, path_restriction, pooled_clusters
from veilboost.protocols.registry import protocol_named


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path, make_certificates(tmp_path / "certs"))
    yield made
    made.close()


def test_a_recorded_run_is_attacked_with_what_each_party_saw(town: Town) -> None:
    job = town.write_job(town.serve("shop", "telecom"), record="payload", validation=0.3)
    town.answer("train", job.name, "--config", "bank.toml")
    runs = [f"runs-{party}/credit" for party in PARTIES]
    truth = [word for party in PARTIES for word in ("--truth", f"{party}.toml")]
    found = town.answer("audit", *runs, *truth, "--html", "audit.html")
    by = {(item["attack"], item["adversary"], item["victim"]): item for item in found["findings"]}
    bins = by["bins from sums", "bank", "telecom"]
    assert bins["value"] > bins["baseline"]
    assert {victim for _, _, victim in by} == set(PARTIES)
    assert (pooled_clusters.name, "shop and telecom", "bank") in by
    assert (membership.name, "a user", "bank") in by  # validation rows stand for strangers
    assert "bins from sums" in (town.folder / "audit.html").read_text()

    alone = town.answer("audit", runs[1], "--truth", "shop.toml", "--truth", "bank.toml")
    assert {item["adversary"] for item in alone["findings"]} == {"shop"}


def test_a_run_without_payloads_is_refused(town: Town) -> None:
    job = town.write_job(town.serve("shop"))
    town.answer("train", job.name, "--config", "bank.toml")
    assert "payload" in town.refused("audit", "runs-bank/credit", "--truth", "bank.toml")


def test_what_makes_no_sense_is_refused(town: Town) -> None:
    assert "--truth" in town.refused("audit", "runs-bank/credit")
    assert "--lower-bound" in town.refused("audit", "runs-bank/credit", "--lower-bound")
    assert "VB-" in town.refused("audit", "nowhere", "--truth", "bank.toml")
    assert "repeats" in town.refused("audit", "--lower-bound", "--repeats", "3")


def test_a_simulation_can_be_attacked_in_one_go(town: Town) -> None:
    options = ("simulate", "--demo-data", "--protocol", "lattice", "--trees", "2", "--max-bin", "16", "--no-baselines")
    found = town.answer(*options, "--audit", "--audit-html", "page.html")
    assert {item["victim"] for item in found["findings"]} == {"bank", "shop", "telecom"}
    attacks = {item["attack"] for item in found["findings"]}
    assert attacks >= {pooled_clusters.name, membership.name, path_restriction.name}
    assert "bins from sums" in (town.folder / "page.html").read_text()


def decisive(protocol: str) -> set[str]:
    """The decisive attacks on a job in which no participant is lost."""
    return {name_of(each) for each in protocol_named(protocol).evidence if each.attack != "secagg_differences"}


@pytest.mark.parametrize("protocol", ["mal", "secagg"])
def test_a_horizontal_simulation_can_be_attacked_in_one_go(town: Town, protocol: str) -> None:
    options = ("simulate", "--dataset", "breast_cancer", "--protocol", protocol, "--participants", "4", "--trees", "2")
    found = town.answer(*options, "--max-bin", "16", "--no-baselines", "--audit", "--audit-html", "page.html")
    assert {item["attack"] for item in found["findings"]} >= decisive(protocol)
    assert {item["victim"] for item in found["findings"]} == {f"participant{k}" for k in range(4)}
    page = (town.folder / "page.html").read_text()
    assert all(name in page for name in decisive(protocol))


def test_a_recorded_horizontal_run_is_attacked_with_what_each_party_saw(tmp_path: Path) -> None:
    town = HorizontalTown(tmp_path)
    try:
        for protocol in ("mal", "secagg"):
            job = town.job(protocol, protocol)
            text = job.read_text().replace('record = "types"', 'record = "payload"')
            assert "\nvalidation = 0.0\n" in text
            job.write_text(text.replace("\nvalidation = 0.0\n", "\nvalidation = 0.2\n"))  # these rows are not attacked
            with town.driver(job) as driver:
                driver.train()
            helpers = HELPERS if protocol == "mal" else {}
            shutil.rmtree(tmp_path / "runs-east" / protocol / "share")  # as of a participant that was lost
            runs = [str(tmp_path / f"runs-{name}" / protocol) for name in (HUB, *OWNERS, *helpers)]
            truth = [word for name in OWNERS for word in ("--truth", str(tmp_path / f"{name}.toml"))]
            done = call("audit", *runs, *truth, "--json")
            assert done.returncode == 0, done.stderr
            found = json.loads(done.stdout)
            assert found["protocol"] == protocol
            assert {item["victim"] for item in found["findings"]} == set(OWNERS)
            assert {item["attack"] for item in found["findings"]} >= decisive(protocol)
            assert {item["adversary"] for item in found["findings"]} == {HUB, *(["judge"] if helpers else ())}
            told = {item["attack"] for item in found["findings"] if item["adversary"] == "judge"}
            assert told == ({mal_extremes.name} if helpers else set())
    finally:
        town.close()


def test_epsilon_is_measured_from_below(town: Town) -> None:
    found = town.answer("audit", "--lower-bound", "--eps", "1", "--repeats", "20", "--trees", "2")
    assert found["holds"] is True
    assert (found["of"], found["claimed"], found["repeats"]) == ("labels", 1.0, 20)
    for what in ("features", "cuts"):
        size = ("--repeats", "20", "--trees", "1", "--depth", "1")
        found = town.answer("audit", "--lower-bound", "--of", what, "--eps", "2", *size)
        assert (found["of"], found["claimed"], found["holds"]) == ("features", 2.0, True)
    found = town.answer("audit", "--lower-bound", "--of", "records", "--eps", "2")
    assert (found["of"], found["repeats"], found["holds"]) == ("records", 20_000, True)
    assert found["epsilon"] > 0  # 1.1 with a deviation below 0.2
    assert "VB-" in town.refused("audit", "--lower-bound", "--of", "everything")
    assert "--trees" in town.refused("audit", "--lower-bound", "--of", "records", "--trees", "1")
