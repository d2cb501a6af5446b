"""Jobs that a person approves, with parties as processes: held, approved, changed, refused; deployments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parties import CONFIG, DEADLINE, Town, make_certificates, until
from veilboost.party.approvals import run_approval, verify
from veilboost.party.settings import load_party


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("authority") / "certs")


@pytest.fixture
def town(tmp_path: Path, certificates: Path) -> Iterator[Town]:
    made = Town(tmp_path, certificates, rows=200)
    made.settle("shop", {"approval": "ask", "deploy_to": ("bank",)})
    try:
        yield made
    finally:
        made.close()


def proposals(town: Town, party: str = "shop") -> list[dict[str, Any]]:
    return town.answer("jobs", "proposals", "--config", f"{party}.toml")["proposals"]


def test_a_job_is_held_until_it_is_approved_and_its_decision_is_stored_with_the_run(town: Town) -> None:
    job = town.write_job(town.serve("shop"))
    held = "VB-1415: the job 'credit' waits for the approval of shop: a person decides there"
    assert town.refused("train", job.name, "--config", "bank.toml").startswith(held)

    driver = town.train(job, "--wait")
    said = ""

    def waits() -> bool:
        nonlocal said
        said += driver.stderr.read()
        return "waiting for shop: a person there has not decided yet" in said

    until(waits, "the driver waits")
    (proposal,) = proposals(town)  # the repeated proposal is the same one
    assert (proposal["state"], proposal["asked_by"], proposal["kind"]) == ("pending", "bank", "training")
    assert (proposal["columns"], proposal["rows"]) == (["n2", "n3", "shade"], 180)
    text = town.run("jobs", "proposals", proposal["id"], "--config", "shop.toml")[1]
    assert "What each role would learn" in text
    assert "histogram" in text
    assert "n_estimators" in text
    town.answer("jobs", "approve", proposal["id"], "--config", "shop.toml", "--reason", "contract 17")
    town.trained(driver)
    assert town.sha(parties=("bank", "shop")) == town.simulated(parties=("bank", "shop"))

    settings = load_party(town.folder / "shop.toml")
    approval = run_approval(town.run_folder("shop"))
    assert approval is not None
    assert approval.decision is not None
    assert verify(settings, approval)
    assert (approval.decision.reason, approval.decision.approved) == ("contract 17", True)
    shown = town.answer("jobs", "show", "credit", "--config", "shop.toml")["approval"]
    assert shown.startswith(f"approved by {approval.decision.by} on ")
    assert shown.endswith("signature verified")

    # Another job is another proposal; its refusal reaches the driver as a code.
    other = town.write_job({"shop": town.address("shop")}, "other", replace(CONFIG, n_estimators=3))
    driver = town.train(other, "--wait")
    until(lambda: len(proposals(town)) == 2, "the second proposal is stored")
    town.answer("jobs", "refuse", proposals(town)[0]["id"], "--config", "shop.toml", "--reason", "too SECRET")
    _, said = driver.communicate(timeout=DEADLINE)
    assert driver.returncode == 2
    assert said.splitlines()[-1].startswith("VB-1416: shop: the owner of shop has refused this proposal; ")
    assert "SECRET" not in said

    # A deployment of the approved model needs its own approval; new keys for it do not.
    deploy = ("deploy", "runs-bank/credit", "--config", "bank.toml", "--days", "3")
    assert town.refused(*deploy).startswith("VB-1415: shop: ")
    assert proposals(town)[0]["kind"] == "deployment"
    assert proposals(town)[0]["settings"]["days"] == "3"
    town.answer("jobs", "approve", proposals(town)[0]["id"], "--config", "shop.toml")
    assert town.answer(*deploy)["rows"] == {"shop": 180}
    assert town.answer("deployments", "rekey", "credit", "--config", "bank.toml")["state"] == "live"
    assert "VB-1415" in town.refused(*deploy[:-1], "9"), "a longer one is another"
    town.answer("undeploy", "credit", "--version", "2", "--config", "bank.toml")
    assert "VB-1415" in town.refused(*deploy), "the approval was used"
