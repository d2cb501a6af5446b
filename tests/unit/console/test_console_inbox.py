"""Proposals in the console: shown as text whatever a peer has sent, and decided by approvers only."""

from __future__ import annotations

from pathlib import Path

import pytest

from console_client import check_page, console_of, csrf_of, hold, logged_in
from two_parties import make_two, settings_of
from veilboost.console.app import Console
from veilboost.party.approvals import APPROVALS, PROPOSAL, decide, list_proposals, use_approval, verify
from veilboost.party.settings import PartySettings, load_party

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def settings(tmp_path: Path) -> PartySettings:
    settings_of(make_two(tmp_path), "shop")
    hold(tmp_path / "shop.toml", HOSTILE)
    return load_party(tmp_path / "shop.toml")


@pytest.fixture
def console(settings: PartySettings, tmp_path: Path) -> Console:
    return console_of(tmp_path / "shop.toml")


def test_a_proposal_is_shown_with_all_that_matters(settings: PartySettings, console: Console) -> None:
    client = logged_in(console)
    assert client.get("/").headers["location"] == "/inbox"
    text = client.get("/inbox").text
    assert "1 proposal waits for a decision" in text
    (held,) = list_proposals(settings)
    assert f'href="/inbox/{held.id}"' in text
    check_page(text)
    text = client.get(f"/inbox/{held.id}").text
    for told in (
        "bank asks to train a model with the table main, by the protocol plain. This party would be a passive party",
        "180",
        "income",
        "this party (passive)",
        "1.5",
        "6.5",
        "broken",
        held.fingerprint,
    ):
        assert told in text, told
    check_page(text)
    assert "<script>alert" not in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 5
    for wrong in (held.id[:8], "..", "0" * 16 + "-1", "%2e%2e%2f"):
        assert client.get(f"/inbox/{wrong}").status_code in (303, 404), wrong  # 303: /inbox/.. is /


def test_a_claim_names_the_parties_and_the_settings_it_depends_on(tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "shop")
    told = {"adversary": "x", "why": "y", "status": "sound"}
    own = {**told, "victim": "passive", "data": "sums, with eps_features on", "attack": "histogram_bins"}
    others = {**told, "victim": "active", "data": "the order of labels", "attack": None}
    learned = ({"what": "with sampling='goss', which rows", "to": "passive"},)
    values = {"eps_features": "2.0", "order": "second", "sampling": "uniform", "delta": "1e-05"}
    hold(tmp_path / "shop.toml", statements=(others, own), settings=values, reveals=learned)
    client = logged_in(console_of(tmp_path / "shop.toml"))
    (held,) = list_proposals(load_party(tmp_path / "shop.toml"))
    text = client.get(f"/inbox/{held.id}").text
    assert text.index("this party (passive)") < text.index("bank (active)"), "its own data come first"
    assert "sums, with eps_features on (in this job eps_features is 2.0)" in text
    assert "which rows (in this job sampling is uniform)" in text
    assert "the order of labels<" in text
    assert "histogram bins" in text


def test_a_deployment_leads_to_the_models(tmp_path: Path) -> None:
    settings_of(make_two(tmp_path), "shop")
    hold(tmp_path / "shop.toml", kind="deployment", job="scores")
    settings = load_party(tmp_path / "shop.toml")
    client, (held,) = logged_in(console_of(tmp_path / "shop.toml")), list_proposals(settings)
    assert "asks to keep a trained model deployed" in client.get(f"/inbox/{held.id}").text
    decide(settings, held.id, True, by="anna", reason="")
    use_approval(settings, list_proposals(settings)[0])
    text = client.get(f"/inbox/{held.id}").text
    assert "Open the models" in text
    assert "/jobs/scores" not in text


def test_a_decision_needs_an_approver_and_the_form_of_the_session(settings: PartySettings, console: Console) -> None:
    (held,) = list_proposals(settings)
    viewer, client = logged_in(console, "vera"), logged_in(console)
    assert viewer.get(f"/inbox/{held.id}").text.count("<form") == 1  # to log out
    approve = {"decision": "approve", "reason": "contract 17"}
    assert viewer.post(f"/inbox/{held.id}", data={**approve, "csrf": csrf_of(viewer)}).status_code == 403
    assert client.post(f"/inbox/{held.id}", data=approve).status_code == 403
    given = {**approve, "csrf": csrf_of(client)}
    for wrong in ({**given, "decision": "maybe"}, {**given, "reason": "x" * 1001}):
        assert client.post(f"/inbox/{held.id}", data=wrong).status_code == 400
    assert client.post(f"/inbox/{held.id[:8]}", data=given).status_code == 404
    assert list_proposals(settings)[0].state == "pending"
    before = console.data.version(None)
    assert client.post(f"/inbox/{held.id}", data=given).headers["location"] == f"/inbox/{held.id}"
    assert console.data.version(None) != before
    (decided,) = list_proposals(settings)
    assert (decided.state, decided.decision and decided.decision.by) == ("approved", "anna")
    assert verify(settings, decided)
    assert client.post(f"/inbox/{held.id}", data=given).status_code == 400  # once
    text = client.get(f"/inbox/{held.id}").text
    assert "approved by anna" in text
    assert "signature verified: contract 17" in text
    assert "Refuse</button>" not in text


def test_a_refusal_is_stored_with_its_reason(settings: PartySettings, console: Console) -> None:
    client, (held,) = logged_in(console), list_proposals(settings)
    refuse = {"decision": "refuse", "reason": HOSTILE, "csrf": csrf_of(client)}
    assert client.post(f"/inbox/{held.id}", data={**refuse, "reason": " "}).status_code == 400
    assert client.post(f"/inbox/{held.id}", data=refuse).status_code == 303
    assert list_proposals(settings)[0].state == "refused"
    text = client.get("/inbox").text
    assert "refused by anna" in text
    assert "<script>alert" not in text


def test_a_proposal_is_read_again_when_it_changes_and_a_damaged_one_hides_no_other(
    settings: PartySettings, console: Console
) -> None:
    client, (held,) = logged_in(console), list_proposals(settings)
    assert [each.state for each in console.data.proposals()] == ["pending"]
    damaged = settings.runs / APPROVALS / f"{'0' * 16}-1"
    damaged.mkdir()
    (damaged / PROPOSAL).write_text("{")
    decide(settings, held.id, False, by="boss", reason="no")
    assert [each.state for each in console.data.proposals()] == ["refused"]
    assert "refused by boss" in client.get("/inbox").text
