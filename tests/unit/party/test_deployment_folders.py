"""The folders of deployments: how long they are kept, and what killed processes and damaged disks leave."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from two_parties import make_two, settings_of
from veilboost.align.slots import SlotTable
from veilboost.errors import DamagedState
from veilboost.party import deployment_folder, retention
from veilboost.party.deployed import asked_by_day
from veilboost.party.deployment_folder import (
    DAY,
    LIVE,
    WITHDRAWN,
    DeploymentFolder,
    DeploymentStatus,
    Trail,
    end_expired,
    find_deployment,
    list_deployments,
)
from veilboost.party.settings import PartySettings

KEPT = "[retention]\nruns_days = 300\ntranscripts_days = 30\nkeys_days = 7"


@pytest.fixture
def shop(tmp_path: Path) -> PartySettings:
    return settings_of(make_two(tmp_path), "shop", more=KEPT)


def make(shop: PartySettings, number: int, name: str = "credit", days: float = 1000.0) -> DeploymentFolder:
    """A deployment with an index and a trail."""
    now = time.time()
    status = DeploymentStatus(name, 1, "first", "bank", ("shop",), now + number, now + days * DAY, 5)
    made = DeploymentFolder.create(shop, f"{number:032x}", status)
    made.save_index({"slots": np.arange(3)})
    trail = Trail(made)
    trail.add(peer="bank", what="scored", rows=1, slots=[2])
    trail.close()
    return made


@pytest.fixture
def days_later(monkeypatch: pytest.MonkeyPatch):
    def set_forward(days: float) -> None:
        clock = SimpleNamespace(time=lambda: time.time() + DAY * days)
        monkeypatch.setattr(retention, "time", clock)

    return set_forward


def deleted(shop: PartySettings) -> list[tuple[str, str]]:
    found = retention.apply_retention(shop)
    return sorted((each.what, each.path.relative_to(shop.runs).parts[1]) for each in found)


def test_trails_and_ended_deployments_are_deleted_and_live_ones_stay(shop: PartySettings, days_later) -> None:
    live, ended = make(shop, 1), make(shop, 2)
    ended.end(WITHDRAWN)
    assert deleted(shop) == []
    days_later(31)
    assert deleted(shop) == [("transcripts", live.id), ("transcripts", ended.id)]
    assert not live.trails
    assert (live.key, live.status.now) != (b"", WITHDRAWN)
    days_later(299)
    assert deleted(shop) == []
    days_later(301)
    assert deleted(shop) == [("runs", ended.id)]
    assert not ended.path.exists()
    assert [each.id for each in list_deployments(shop)] == [live.id]
    assert live.load_index(dict) is not None


def test_the_run_of_a_live_deployment_is_kept(shop: PartySettings, days_later) -> None:
    made, run = make(shop, 1), shop.runs / "first"
    run.mkdir()
    (run / "status.json").write_text(json.dumps({"state": "finished", "updated": time.time(), "party": "shop"}))
    days_later(301)
    assert ("runs", "first") not in [(each.what, each.path.name) for each in retention.apply_retention(shop)]
    made.end(WITHDRAWN)
    assert ("runs", "first") in [(each.what, each.path.name) for each in retention.apply_retention(shop)]
    assert not run.exists()


def test_what_a_killed_process_left_is_removed_later(shop: PartySettings, monkeypatch: pytest.MonkeyPatch) -> None:
    status = make(shop, 1).status

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeploymentFolder, "write_status", killed)
        with pytest.raises(KeyboardInterrupt):
            DeploymentFolder.create(shop, "f" * 32, status)
    left = shop.runs / "deployments" / ("f" * 32)
    assert (left / "deployment.key").exists()
    end_expired(shop)
    assert left.exists()  # a process may be about to write the status
    old = time.time() - 3601
    os.utime(left, (old, old))
    end_expired(shop)
    assert not left.exists()
    assert len(list_deployments(shop)) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"null", b'{"format": 1}', "created"])
def test_a_damaged_status_does_not_affect_other_deployments(
    shop: PartySettings, damage: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = make(shop, 1), make(shop, 2, "other")
    if isinstance(damage, str):
        damage = json.dumps(json.loads(bad.status_file.read_bytes()) | {damage: "yesterday"}).encode()
    bad.status_file.write_bytes(damage)
    with pytest.raises(DamagedState):
        bad.status  # noqa: B018
    with caplog.at_level("WARNING", logger="veilboost"):
        assert [each.id for each in list_deployments(shop)] == [good.id]
    assert any(str(bad.status_file) in record.getMessage() for record in caplog.records)
    assert find_deployment(shop, "credit").id == good.id
    end_expired(shop)
    assert retention.apply_retention(shop) == []
    traces = [each.path for each in retention.find_person(shop, "c030")]
    assert {good.path / "index.npz", bad.path / "index.npz"} < set(traces)


def test_a_damaged_index_is_a_coded_error_that_says_how_to_go_on(shop: PartySettings) -> None:
    made = make(shop, 1)
    whole = (made.path / "index.npz").read_bytes()
    for damage in (b"", whole[:-30], whole.replace(b"NUMPY", b"NUMPX"), b"PK\3\4", b"no archive"):
        (made.path / "index.npz").write_bytes(damage)
        with pytest.raises(DamagedState, match=r"index\.npz cannot be read") as found:
            made.load_index(dict)
        assert "rekey" in found.value.remedy
    made.save_index({"points": np.arange(3)})
    with pytest.raises(DamagedState):
        made.load_index(SlotTable.of)


def test_a_line_that_was_cut_short_hides_no_other(shop: PartySettings) -> None:
    made = make(shop, 1)
    (file,) = made.trails
    for cut in (b'{"when": 1, "pee', b"\xff\n[1, 2]\n{}\n" + b"[" * 5000):
        with file.open("ab") as end:
            end.write(cut)
        trail = Trail(made)
        trail.add(peer="bank", what="scored", rows=2, slots=[1, 2])
        trail.close()
    assert [each["rows"] for each in made.read_trail()] == [1, 2, 2]
    assert [each["requests"] for each in asked_by_day(made)] == [3]


def test_a_deployment_that_is_deleted_meanwhile_is_left_out(
    shop: PartySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, gone = make(shop, 1), DeploymentFolder(shop.runs / "deployments" / ("e" * 32))
    monkeypatch.setattr(deployment_folder, "all_folders", lambda _: [gone, good])
    assert list_deployments(shop) == [good]


def test_nothing_of_an_index_outlives_its_deployment(shop: PartySettings) -> None:
    live, ended = make(shop, 1), make(shop, 2)
    ended.end(WITHDRAWN)
    ended.save_index({"slots": np.arange(3)})  # by a thread that had begun before
    old, new = (live.path / f".index.npz.{name}.partial" for name in ("old", "new"))
    for file in (old, new):
        file.touch()
    os.utime(old, (time.time() - 3601,) * 2)
    end_expired(shop)
    assert not ended.has_secrets
    assert ended.status.state == WITHDRAWN
    assert (live.has_secrets, old.exists(), new.exists()) == (True, False, True)


def test_expired_deployments_lose_their_secrets(shop: PartySettings) -> None:
    made, other = make(shop, 1), make(shop, 2)
    made.write_status(replace(made.status, until=time.time() - 1))
    end_expired(shop)
    assert (made.status.state, (made.path / "deployment.key").exists(), made.load_index(dict)) == (
        "expired",
        False,
        None,
    )
    assert (other.status.state, len(other.key)) == (LIVE, 32)
