"""Three organisations as processes of their own, over mutual TLS on loopback, as people start them."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from parties import CONFIG, Town, free_port, make_certificates, until
from veilboost.party.runs import read_exchanges
from veilboost.wire.transcript import traffic_by_peer

LONG = replace(CONFIG, n_estimators=60)  # long enough to be interrupted
ENDLESS = replace(CONFIG, n_estimators=1000)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Iterator[Town]:
    made = Town(tmp_path, certificates)
    yield made
    made.close()


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


# --- one model, however it is trained ---------------------------------------------------------------------


def test_jobs_one_after_another_give_the_model_of_the_simulation(town: Town) -> None:
    addresses = town.serve("shop", "telecom")
    job = town.write_job(addresses, validation=0.0)
    ready = town.answer("check", job.name, "--config", "bank.toml")
    assert ready["ready"]
    assert list(ready["parties"]) == ["bank", "shop", "telecom"]
    assert not (town.folder / "runs-shop" / "credit").exists(), "a dry run keeps nothing"
    done = town.answer("train", job.name, "--config", "bank.toml")
    expected = town.simulated()
    assert town.sha() == expected
    assert (done["rounds"], done["resumed"], done["party"]) == (CONFIG.n_estimators, False, "bank")
    assert set(done["traffic"]) == {"shop", "telecom"}

    # Both ends wrote down the same bytes.
    _, exchanges = read_exchanges(town.folder / "runs-bank" / "credit")
    here = traffic_by_peer("bank", exchanges)
    assert done["traffic"] == here
    for party in ("shop", "telecom"):
        _, exchanges = read_exchanges(town.folder / f"runs-{party}" / "credit")
        there = traffic_by_peer(party, exchanges)["bank"]
        for what in ("messages", "bytes"):
            assert (there[f"{what}_received"], there[f"{what}_sent"]) == (
                here[party][f"{what}_sent"],
                here[party][f"{what}_received"],
            )
        assert min(there.values()) > 0
    seen = town.answer("transcript", "runs-shop/credit")["exchanges"]
    gradients = next(item for item in seen if item["message"] == "PlainRound")
    assert (gradients["sender"], gradients["receiver"], gradients["count"]) == ("bank", "shop", CONFIG.n_estimators)
    assert any(item["to"] == "shop" and "labels" in item["what"] for item in gradients["reveals"])

    files = open_files(town.daemons["shop"].pid)
    again = town.write_job(addresses, "second")
    town.answer("train", again.name, "--config", "bank.toml")
    assert town.sha("second") == expected
    assert open_files(town.daemons["shop"].pid) <= files + 1
    listed = town.answer("jobs", "list", "--config", "bank.toml")["runs"]
    assert [(run["job"], run["state"]) for run in listed] == [("second", "finished"), ("credit", "finished")]
    assert "VB-1704" in town.refused("train", job.name, "--config", "bank.toml")


def test_a_finished_model_gets_more_rounds(town: Town) -> None:
    addresses = town.serve("shop", "telecom")
    first = town.write_job(addresses, validation=0.0)
    second = town.write_job(addresses, "more", validation=0.0)
    assert "VB-1706" in town.refused("train", second.name, "--config", "bank.toml", "--continue-from", first.stem)
    town.answer("train", first.name, "--config", "bank.toml")
    out, err = town.trained(town.train(second, "--continue-from", first.stem))
    assert town.sha("more") == town.simulated(replace(CONFIG, n_estimators=2 * CONFIG.n_estimators))
    assert town.sha() == town.simulated(), "the earlier model stays as it was"
    assert "\x1b" not in out + err, "a progress bar in a pipe"

    for process in town.daemons.values():
        process.send_signal(signal.SIGTERM)
    assert [process.wait(10) for process in town.daemons.values()] == [0, 0]


def test_prealigned_rows_give_the_model_of_the_simulation(tmp_path: Path, certificates: Path) -> None:
    town = Town(tmp_path, certificates, overlap=False)
    try:
        job = town.write_job(town.serve("shop", "telecom"), alignment="prealigned", validation=0.2)
        done = town.answer("train", job.name, "--config", "bank.toml")
        assert done["rows"] == 500
        assert 0.5 < done["validation"] <= 1
        config = replace(CONFIG, n_estimators=5)
        plain = town.write_job({"shop": town.address("shop")}, "two", config, alignment="prealigned")
        town.answer("train", plain.name, "--config", "bank.toml")
        assert town.sha("two", ("bank", "shop")) == town.simulated(config, ("bank", "shop"))
    finally:
        town.close()


def test_a_party_behind_a_firewall_dials_the_active_one(town: Town) -> None:
    town.dial_out("shop")
    addresses = town.serve("shop", "telecom")
    job = town.write_job({"telecom": addresses["telecom"]}, dialled_by=("shop",))
    assert town.answer("check", job.name, "--config", "bank.toml")["ready"]
    town.answer("train", job.name, "--config", "bank.toml")
    assert town.sha() == town.simulated()


# --- interruptions ----------------------------------------------------------------------------------------


def test_a_killed_passive_party_comes_back_and_training_goes_on(town: Town) -> None:
    job = town.write_job(town.serve("shop", "telecom"), config=LONG)
    driver = town.train(job)
    town.until_round(2, driver)
    town.kill(town.daemons["shop"])
    assert town.rounds() < LONG.n_estimators, "the job ended before the party was killed"
    told = driver.stderr
    assert told is not None
    assert any("waiting for shop" in line for line in iter(told.readline, "")), "nobody said whom the job waits for"
    town.serve("shop")
    out, _ = town.trained(driver)
    assert "60 rounds" in out
    assert town.sha() == town.simulated(LONG)
    # What left before the party was killed still stands in its transcript.
    _, exchanges = read_exchanges(town.folder / "runs-shop" / "credit")
    gradients = [item.count for item in exchanges if item.message == "PlainRound"]
    assert gradients[0] >= LONG.n_estimators


def test_a_killed_driver_resumes_to_the_same_model(town: Town) -> None:
    job = town.write_job(town.serve("shop", "telecom"), config=LONG)
    driver = town.train(job)
    town.until_round(2, driver)
    town.kill(driver)
    kept = town.rounds()
    assert kept < LONG.n_estimators
    shown = town.answer("jobs", "show", "credit", "--config", "bank.toml")
    assert (shown["state"], shown["role"]) == ("interrupted", "active")
    assert shown["rounds"] >= kept
    assert len(list(town.folder.glob("runs-*/credit/job.key"))) == 3, "what is needed to go on"
    done = town.answer("train", job.name, "--config", "bank.toml", "--resume")
    assert (done["rounds"], done["resumed"]) == (LONG.n_estimators, True)
    assert town.sha() == town.simulated(LONG)
    left = {path.name for path in town.folder.glob("runs-*/**/*key*")}
    assert left == {"table.key"}, "a key ends with its job, but that of a digest for jobs that continue the model"
    assert "VB-1703" in town.refused("train", job.name, "--config", "bank.toml", "--resume")


def test_ctrl_c_says_how_to_go_on_and_a_new_start_forgets_the_old_rounds(town: Town) -> None:
    job = town.write_job(town.serve("shop", "telecom"), config=LONG)
    driver = town.train(job)
    town.until_round(2, driver)
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=30)
    assert driver.returncode == 130
    assert "rounds are saved; to continue: veilboost train credit.toml --config bank.toml --resume" in err
    assert "Traceback" not in err
    other = replace(CONFIG, n_estimators=6, learning_rate=0.5)
    job = town.write_job({name: town.address(name) for name in ("shop", "telecom")}, config=other)
    town.answer("train", job.name, "--config", "bank.toml")
    assert town.sha() == town.simulated(other)


def test_a_party_that_never_comes_is_a_coded_error_within_the_deadline(town: Town) -> None:
    town.settle("bank", limits={"wait_seconds": 1.0, "connect_seconds": 1.0})
    addresses = town.serve("telecom") | {"shop": f"127.0.0.1:{free_port()}"}
    job = town.write_job(addresses)
    code, out, _ = town.run("check", job.name, "--config", "bank.toml", "--json")
    answers = json.loads(out)["parties"]
    assert code == 1
    assert answers["telecom"]["table"] == {"code": None, "text": ""}
    assert answers["shop"]["network"]["code"] == "VB-1409"
    began = time.monotonic()
    assert town.refused("train", job.name, "--config", "bank.toml").startswith(
        "VB-1409: shop did not answer within 1 s"
    )
    assert time.monotonic() - began < 10
    assert town.answer("jobs", "show", "credit", "--config", "bank.toml")["state"] == "failed"


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_job_against_policy_is_refused_and_the_daemon_lives_on(town: Town) -> None:
    town.settle("shop", policy={"protocols": ("lattice",)})
    town.settle("telecom", policy={"max_trees": 5})
    addresses = town.serve("shop", "telecom")
    job = town.write_job({"shop": addresses["shop"]}, "first")
    for _ in range(2):
        line = town.refused("train", job.name, "--config", "bank.toml")
        assert line.startswith("VB-1410: shop refused (VB-1612: the policy rule protocols refuses it")
    assert not (town.folder / "runs-shop" / "first").exists()
    job = town.write_job({"telecom": addresses["telecom"]}, "second")
    assert "max_trees" in town.refused("train", job.name, "--config", "bank.toml")
    config = replace(CONFIG, n_estimators=5)
    job = town.write_job({"telecom": addresses["telecom"]}, "second", config)
    town.answer("train", job.name, "--config", "bank.toml")
    parties = ("bank", "telecom")
    assert town.sha("second", parties) == town.simulated(config, parties)
    assert town.daemons["shop"].poll() is None


def test_two_jobs_use_one_table_and_each_side_can_end_one(town: Town) -> None:
    town.settle("shop", limits={"max_jobs": 2})
    addresses = town.serve("shop")
    drivers = {name: town.train(town.write_job(addresses, name, ENDLESS)) for name in ("first", "second")}
    for name, driver in drivers.items():
        town.until_round(1, driver, name)
    job = town.write_job(addresses, "other")
    assert "VB-1701" in town.refused("train", job.name, "--config", "bank.toml")
    told = town.answer("jobs", "show", "first", "--config", "shop.toml")
    assert (told["state"], told["active"]) == ("training", "bank")
    assert town.answer("jobs", "cancel", "first", "--config", "bank.toml")["cancelled"] == "stops"
    assert town.answer("jobs", "cancel", "second", "--config", "shop.toml")["cancelled"] == "stops"
    ends = {"first": r"VB-1705", "second": r"VB-1410: shop refused \(VB-1705: the owner of shop has ended the job"}
    for name, driver in drivers.items():
        _, err = driver.communicate(timeout=30)
        assert driver.returncode == 2
        assert re.match(ends[name], err.splitlines()[-1]), err
    assert town.answer("jobs", "show", "first", "--config", "bank.toml")["state"] == "cancelled"
    assert town.answer("jobs", "show", "first", "--config", "shop.toml")["state"] == "cancelled"
    assert town.answer("jobs", "show", "second", "--config", "shop.toml")["state"] == "ended"
    assert "already" in town.refused("jobs", "cancel", "first", "--config", "bank.toml")
    assert "VB-1705" in town.refused("train", "second.toml", "--config", "bank.toml", "--resume")
    town.answer("train", job.name, "--config", "bank.toml")
    parties = ("bank", "shop")
    assert town.sha("other", parties) == town.simulated(CONFIG, parties)


def test_the_job_of_a_killed_driver_is_cancelled_at_both_sides(town: Town) -> None:
    addresses = town.serve("shop")
    driver = town.train(town.write_job(addresses, "long", ENDLESS))
    town.until_round(1, driver, "long")
    town.kill(driver)
    assert town.answer("jobs", "show", "long", "--config", "bank.toml")["state"] == "interrupted"
    assert town.answer("jobs", "cancel", "long", "--config", "bank.toml")["cancelled"] == "told"
    for party in ("bank", "shop"):
        assert town.answer("jobs", "show", "long", "--config", f"{party}.toml")["state"] == "cancelled"


# --- the demonstration ------------------------------------------------------------------------------------


def processes_of(folder: Path) -> list[str]:
    """Command lines of running processes that speak of a folder."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes().decode(errors="replace"))
        except OSError:  # it has ended
            continue
    return [line for line in found if str(folder) in line and "serve" in line]


def test_the_demonstration_ends_with_one_screen_and_leaves_nothing_running(town: Town) -> None:
    folder = town.folder / "demo"
    out, _ = town.trained(town.spawn("demo", "--protocol", "lattice", "--folder", folder))
    auc = {
        line.split("0.")[0].strip(): float(f"0.{line.split('0.')[1][:4]}") for line in out.splitlines() if "█" in line
    }
    alone, together, *central = auc.values()
    assert together > alone + 0.05
    assert all(abs(together - value) < 0.03 for value in central)
    for words in (
        "Seconds",
        "Bytes sent",
        "What each party received",
        "which rows share a node",
        "runs-telecom",
        "all processes have ended",
    ):
        assert words in out
    assert not processes_of(folder)
    assert "VB-1609" in town.refused("demo", "--folder", folder)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demonstration_leaves_nothing_running(town: Town, kind: signal.Signals) -> None:
    folder = town.folder / "demo"
    process = town.spawn("demo", "--folder", folder)
    until((folder / "runs-bank").exists, "the bank has begun to train")
    assert len(processes_of(folder)) == 2
    process.send_signal(kind)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not processes_of(folder)
