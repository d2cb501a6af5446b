"""Standing deployments, with real parties over TLS in one process: scores equal the offline model bit for bit."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from command_line import call
from deploying import PASSIVE, Asking, Deploying, ints
from parties import DEADLINE, PARTIES, free_port, make_certificates, until
from veilboost.align.slots import IndexRequest, LookUp
from veilboost.crypto.curve import hash_to_points
from veilboost.errors import (
    DeploymentEnded,
    LimitReached,
    MalformedMessage,
    PeerRefused,
    PeerUnreachable,
    RowsDiffer,
    StaleIndex,
    UnexpectedMessage,
    UnknownDeployment,
    VeilBoostError,
)
from veilboost.infer.messages import (
    AllSplits,
    AllSplitsOfRows,
    BeginScoring,
    RouteAnswer,
    RouteRequest,
    SplitColumnsRequest,
)
from veilboost.model.explanation import Explanation
from veilboost.model.share import SplitRecords
from veilboost.party import deployed
from veilboost.party.deployed import read_trail
from veilboost.party.deployment_folder import DeploymentFolder, end_expired, find_deployment, list_deployments
from veilboost.party.deployments import deploy, open_deployment, rekey, withdraw
from veilboost.party.messages import OpenDeployment, ProposeDeployment
from veilboost.party.settings import PeerSettings
from veilboost.privacy.ledger import Ledger
from veilboost.wire.message import Done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deploying]:
    certificates = make_certificates(tmp_path_factory.mktemp("authority") / "certs")
    made = Deploying(tmp_path_factory.mktemp("town"), certificates)
    try:
        made.train()
        yield made
    finally:
        made.stop(*list(made.daemons))


@pytest.fixture
def town(trained: Deploying, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deploying]:
    """The trained town; what a test changes is undone. The daemons look at their files with every request."""
    monkeypatch.setattr(deployed, "LOOK_SECONDS", 0.0)
    tables = {party: trained.table(party) for party in PARTIES}
    yield trained
    trained.stop(*list(trained.daemons))
    for party in PARTIES:
        trained.write(party, tables[party])
        runs = trained.settings(party).runs
        shutil.rmtree(runs / "deployments", ignore_errors=True)
        for count in ("predictions.json", "lookups.json"):
            (runs / count).unlink(missing_ok=True)
    for party in PASSIVE:
        trained.settle(party)
    trained.start(*PASSIVE)


def test_scores_are_those_of_the_joined_model_and_the_index_outlives_the_process(town: Deploying) -> None:
    ids = town.common()
    with deploy(town.bank, town.run, days=2) as made:
        assert (made.version, made.info.name) == (1, "credit")
        town.check(made, ids)
        town.check(made, ids[5:6])
        assert made.known_rows() == {party: town.table(party).num_rows for party in PASSIVE}
    looked_up = json.loads((town.settings("shop").runs / "lookups.json").read_text())["rows"]
    assert looked_up == town.table("bank").num_rows
    with open_deployment(town.bank, town.run) as again:
        town.check(again, ids[::-1])
    after = json.loads((town.settings("shop").runs / "lookups.json").read_text())["rows"]
    assert after == looked_up, "no id was looked up twice"


def test_concurrent_callers_get_their_own_scores(town: Deploying) -> None:
    ids = town.common()
    with deploy(town.bank, town.run) as made, ThreadPoolExecutor(8) as pool:
        rows = [town.rows(made, ids[at : at + 3]) for at in range(0, 60, 2)]  # rows overlap
        found = list(pool.map(lambda each: made.score(each, seconds=DEADLINE), rows))
    expected = town.expected(ids)
    for at, each in zip(range(0, 60, 2), found, strict=True):
        assert each.scores.tolist() == expected[at : at + 3]


def test_rows_that_a_party_does_not_know(town: Deploying) -> None:
    lost = town.unknown_at("shop")[:2]
    ids = [town.common()[0], *lost, town.common()[1]]
    status = ("known", "unknown at shop", "unknown at shop", "known")
    with deploy(town.bank, town.run) as made:
        rows = town.rows(made, ids)
        with pytest.raises(RowsDiffer, match="2 of the 4 rows"):
            made.score(rows, seconds=DEADLINE)
        with ThreadPoolExecutor(4) as pool:  # a request that is refused does not affect others
            all_kinds = [pool.submit(made.score, rows, each, DEADLINE) for each in ("skip", "error", "default", "skip")]
            with pytest.raises(RowsDiffer):
                all_kinds[1].result()
        skipped, defaulted = all_kinds[0].result(), all_kinds[2].result()
        expected = town.expected(ids)
        assert (skipped.status, defaulted.status) == (status, status)
        assert skipped.scores[[0, 3]].tolist() == [expected[0], expected[3]]
        assert np.isnan(skipped.scores[1:3]).all()
        assert defaulted.scores.tolist() == expected


def test_only_answered_rows_count_and_the_trail_names_them(town: Deploying) -> None:
    lost = town.unknown_at("shop")[:1]
    ids = town.common()[:3]
    with deploy(town.bank, town.run) as made:
        town.score(made, ids + lost, "skip")
        with pytest.raises(RowsDiffer):
            town.score(made, ids + lost)
    town.stop(*PASSIVE)
    for party in PASSIVE:
        runs = town.settings(party).runs
        assert json.loads((runs / "predictions.json").read_text())["rows"] == 3
        kept = [(each["peer"], each["what"], each["rows"]) for each in town.trail(party)]
        assert kept == [("bank", "looked up", town.table("bank").num_rows), ("bank", "scored", 3)]
        job = f"deployment credit 1/{made.folder.id[:12]}"
        booked = Ledger(runs / "ledger.sqlite").events(job)
        assert [event.release.split(" on ")[0] for event in booked] == ["looked up", "scored"]
    assert not any(id in path.read_text() for id in ids for path in town.settings("shop").runs.rglob("trail-*"))


def test_the_trail_of_many_rows_is_readable(town: Deploying) -> None:
    ids = town.common()[:13]
    with deploy(town.bank, town.run) as made:
        town.score(made, ids)
        town.score(made, ids[:2])
    printed = call("deployments", "trail", "credit", "--config", "shop.toml", folder=town.town.folder).stdout
    assert "3 more" in printed
    assert [id in printed for id in ids] == [True] * 10 + [False] * 3
    shop = town.settings("shop")
    whole, one = (read_trail(shop, find_deployment(shop, "credit"), id) for id in (None, ids[0]))
    assert [each.get("ids") for each in whole] == [None, ids, ids[:2]]
    assert [(each["rows"], each["ids"]) for each in one] == [(13, ids[:1]), (2, ids[:1])]


def test_the_daily_limits_hold(town: Deploying) -> None:
    rows = town.table("bank").num_rows
    town.stop("shop")
    town.settle("shop", predictions_per_day=5, lookups_per_day=rows - 1)
    town.start("shop")
    with pytest.raises(PeerRefused, match="lookups_per_day"):
        deploy(town.bank, town.run)
    assert all(each.status.now == "withdrawn" for each in list_deployments(town.settings("telecom")))
    town.stop("shop")
    town.settle("shop", predictions_per_day=500, predictions_per_peer=5, lookups_per_day=rows, lookups_per_peer=rows)
    town.start("shop")
    ids = town.common()
    with deploy(town.bank, town.run) as made:
        town.check(made, ids[:3])
        with pytest.raises(PeerRefused, match="predictions_per_peer"):
            town.score(made, ids[:3])
        town.check(made, ids[:2])


class Untouched:
    """Values that nobody may take."""

    def __getitem__(self, at: object) -> None:
        raise AssertionError("the values were taken")


@pytest.mark.parametrize("explain", [False, True])
def test_rows_beyond_the_daily_limit_take_no_memory(town: Deploying, explain: bool) -> None:
    """A message has room for millions of slots, and each would take the values of a row."""
    explaining(town)
    with deploy(town.bank, town.run) as made, Asking(town.bank, town, "shop") as ask:
        ask(OpenDeployment(made.folder.id), Done)
        (loaded,) = town.daemons["shop"].host._loaded.values()
        loaded._rows = loaded._rows._replace(values=Untouched())  # type: ignore[attr-defined]
        with pytest.raises(PeerRefused, match="predictions_per_day"):
            ask(BeginScoring(1, np.zeros(100_001, dtype=np.int32), explain))


def test_deployments_that_are_proposed_at_once_do_not_exceed_the_limit(
    town: Deploying, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.stop("shop")
    town.settle("shop", limits={"max_deployments": 1})
    town.start("shop")
    status = town.town.run_folder("bank").load_share().skeleton
    proposal = ProposeDeployment("1" * 32, "credit", 1, "credit", 1.0, len(status.trees), status.digest("shop"))
    both, create = Barrier(2), DeploymentFolder.create

    def slow(*about: Any) -> DeploymentFolder:
        with contextlib.suppress(BrokenBarrierError):
            both.wait(2.0)  # for the other proposal, if it comes this far
        return create(*about)

    monkeypatch.setattr(DeploymentFolder, "create", staticmethod(slow))

    def propose(id: str) -> bool:
        with Asking(town.bank, town, "shop") as ask, contextlib.suppress(LimitReached):
            ask(replace(proposal, id=id), Done)
            return True
        return False

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(propose, ("1" * 32, "2" * 32))) == [False, True]
    assert len(list_deployments(town.settings("shop"))) == 1


def test_rows_that_are_added_and_removed(town: Deploying) -> None:
    ids, new = town.common(), town.unknown_at("shop")[:2]
    with deploy(town.bank, town.run) as made:
        town.check(made, ids[:5])
        before = json.loads((town.settings("shop").runs / "lookups.json").read_text())
        shop = town.table("shop")
        kept = shop.filter(pa.array([id not in ids[:2] for id in shop["id"].to_pylist()]))
        added = kept.slice(0, 2).set_column(0, "id", pa.array(new))
        town.write("shop", pa.concat_tables([added, kept]))

        def refreshed() -> bool:
            status = town.score(made, [ids[0], *new], "skip").status
            return status == ("unknown at shop", "known", "known")

        until(refreshed, "the changed table is used")
        town.check(made, [*ids[2:], *new])
        assert json.loads((town.settings("shop").runs / "lookups.json").read_text()) == before
        town.write("shop", shop)  # and back: an id that returns has a new slot
        until(lambda: town.score(made, [ids[0], new[0]], "skip").status[0] == "known", "it is back")
        town.check(made, ids)
        assert made.known_rows()["shop"] == shop.num_rows


def test_a_table_that_cannot_be_read_leaves_the_rows_that_were_loaded(town: Deploying) -> None:
    ids = town.common()
    with deploy(town.bank, town.run) as made:
        town.check(made, ids)
        expected, rows = town.expected(ids), town.rows(made, ids)
        shop = town.table("shop")
        (town.town.folder / "shop.parquet").write_bytes(b"half a table")
        for _ in range(3):
            assert made.score(rows, seconds=DEADLINE).scores.tolist() == expected
        town.write("shop", shop)


def test_a_restarted_party_is_found_again_and_an_absent_one_is_named(
    town: Deploying, caplog: pytest.LogCaptureFixture
) -> None:
    ids = town.common()
    with deploy(town.bank, town.run) as made:
        town.check(made, ids[:3])
        town.stop("telecom")
        with pytest.raises(PeerUnreachable, match="telecom"):
            made.score(town.rows(made, ids[:3]), seconds=5.0)
        with caplog.at_level("INFO", logger="veilboost"):
            assert made.presence(5.0) == {"shop": True, "telecom": False}
        assert not [each for each in caplog.records if getattr(each, "event", "") in ("check_failed", "job_refused")]
        town.start("telecom")
        town.check(made, ids)
        town.stop(*PASSIVE)
        town.start(*PASSIVE)
        town.check(made, ids)


def test_a_party_that_has_moved_is_reached_at_the_address_in_the_settings(town: Deploying) -> None:
    def move(port: int) -> None:
        town.stop("shop")
        town.ports["shop"] = port
        town.settle("shop")
        town.start("shop")

    ids, trained_at = town.common(), town.ports["shop"]
    move(free_port())
    try:
        moved = {"shop": PeerSettings(f"127.0.0.1:{town.ports['shop']}")}
        with deploy(replace(town.bank, peers=moved), town.run) as made:
            town.check(made, ids[:3])
    finally:
        move(trained_at)


def test_versions_keys_and_withdrawal(town: Deploying) -> None:
    ids = town.common()
    first = deploy(town.bank, town.run, name="scoring")
    second = deploy(town.bank, town.run, name="scoring")
    assert (first.version, second.version) == (1, 2)
    town.check(first, ids[:4])
    town.check(second, ids[:4])
    old = second.folder
    with rekey(town.bank, old) as renewed:
        assert (renewed.version, renewed.folder.id) != (2, old.id)
        assert renewed.folder.key != first.folder.key
        assert not (old.path / "deployment.key").exists()
        town.check(renewed, ids[:4])
    town.check(second, ids[:4])  # an open handle goes on with the new keys
    shop = town.settings("shop")
    slots = [DeploymentFolder.at(shop, each.id).load_index(dict) for each in (first.folder, second.folder)]
    assert not np.array_equal(slots[0]["digests"], slots[1]["digests"])
    assert withdraw(shop, find_deployment(shop, "scoring", 1)) == []
    with pytest.raises(DeploymentEnded, match="shop: the deployment scoring version 1 is withdrawn"):
        town.score(first, ids[:1])
    town.check(second, ids[:4])
    assert withdraw(town.bank, second.folder) == []
    with pytest.raises(DeploymentEnded):
        town.score(second, ids[:1])
    assert {each.status.now for each in list_deployments(town.settings("telecom"))} == {"live", "withdrawn"}
    first.close()
    second.close()


def test_a_party_that_was_away_is_told_later(town: Deploying) -> None:
    """Otherwise the deployment would live on there, and count towards its limit."""
    shop = town.settings("shop")
    first, second = (deploy(town.bank, town.run, name="away") for _ in range(2))
    town.stop("shop")
    assert withdraw(town.bank, first.folder) == withdraw(town.bank, second.folder) == ["shop"]
    with pytest.raises(PeerUnreachable):
        deploy(town.bank, town.run)
    town.start("shop")
    assert [each.status.now for each in list_deployments(shop)] == ["live", "live"]
    with deploy(town.bank, town.run) as third:
        assert [each.status.now for each in list_deployments(shop)] == ["live", "withdrawn", "withdrawn"]
        assert not any(each.status.untold for each in list_deployments(town.bank))
        town.check(third, town.common()[:1])
    (first.folder.path / "deployment.key").write_bytes(bytes(32))  # as a killed command leaves it
    assert withdraw(town.bank, third.folder) == []
    assert not first.folder.has_secrets
    first.close()
    second.close()


def test_the_lifetime_ends_by_itself(town: Deploying) -> None:
    shop = town.settings("shop")
    with deploy(town.bank, town.run, days=30) as made:
        rows, there = town.rows(made, town.common()[:1]), DeploymentFolder.at(shop, made.folder.id)
        made.score(rows, seconds=DEADLINE)
        assert 29.9 < (there.status.until - time.time()) / 86_400 < 30
        there.write_status(replace(there.status, until=time.time() - 1))
        with pytest.raises(DeploymentEnded, match="shop: the deployment credit version 1 is expired"):
            made.score(rows, seconds=DEADLINE)
        end_expired(shop)
        assert (there.status.state, (there.path / "deployment.key").exists()) == ("expired", False)
        made.folder.write_status(replace(made.status, until=time.time() - 1))
    with pytest.raises(UnknownDeployment):
        open_deployment(town.bank, town.run)


@pytest.mark.parametrize("how", ["expired", "withdrawn here", "deleted"])
def test_what_has_ended_is_not_kept_in_memory(town: Deploying, how: str) -> None:
    """Otherwise a peer could fill it with deployments that last for a second."""
    host, shop = town.daemons["shop"].host, town.settings("shop")
    with deploy(town.bank, town.run, name="ends") as ends, deploy(town.bank, town.run, name="stays") as stays:
        folder = DeploymentFolder.at(shop, ends.folder.id)
        if how == "expired":
            folder.write_status(replace(folder.status, until=time.time() - 1))
        elif how == "deleted":
            shutil.rmtree(folder.path)
        else:
            withdraw(shop, folder)
        host.tidy()
        assert [path.name for path in host._loaded] == [stays.folder.id]
        town.check(stays, town.common()[:2])


def test_the_policy_decides_about_deployments(town: Deploying) -> None:
    with pytest.raises(PeerRefused, match="deployment_days"):
        deploy(town.bank, town.run, days=366)
    town.stop("shop")
    town.settle("shop", deploy_to=())
    town.start("shop")
    with pytest.raises(PeerRefused, match="deploy_to"):
        deploy(town.bank, town.run)
    assert not list_deployments(town.settings("shop"))
    with pytest.raises(UnknownDeployment):
        open_deployment(town.bank, town.run)


def test_a_party_keeps_no_more_deployments_than_it_allows(town: Deploying) -> None:
    town.stop("shop")
    town.settle("shop", limits={"max_deployments": 2})
    town.start("shop")
    made = [deploy(town.bank, town.run, name=name) for name in ("first", "second")]
    with pytest.raises(LimitReached, match="shop: the party has as many deployments as it allows"):
        deploy(town.bank, town.run, name="third")
    assert {each.status.name for each in list_deployments(town.settings("shop"))} == {"first", "second"}
    assert find_deployment(town.settings("telecom"), "third").status.now == "withdrawn"
    town.check(made[0], town.common()[:2])
    withdraw(town.bank, made[1].folder)
    with deploy(town.bank, town.run, name="third") as third:
        town.check(third, town.common()[:2])
    for each in made:
        each.close()


def answered_nodes(ask: Asking, records: SplitRecords) -> int:
    """For how many nodes of the tree in which it has most a party answers about one row."""
    answered, tree = 0, np.bincount(records.tree).argmax()
    for node in records.node[records.tree == tree].tolist():
        with contextlib.suppress(MalformedMessage):
            ask(RouteRequest(ints(tree), ints(node), ints(0, 1), ints(0), ints(-1)), RouteAnswer)
            answered += 1
    return answered


def test_what_a_hostile_peer_is_refused(town: Deploying) -> None:
    ids = town.common()
    with deploy(town.bank, town.run) as made:
        town.check(made, ids[:2])
        id = made.folder.id
        with Asking(town.settings("telecom"), town, "shop") as other, pytest.raises(PeerRefused, match="VB-1714"):
            other(OpenDeployment(id))
        status, skeleton = made.status, town.town.run_folder("bank").load_share().skeleton
        proposal = ProposeDeployment("1" * 32, "credit", 1, "credit", 1.0, status.trees, skeleton.digest("shop"))
        for wrong in ({"version": 0}, {"days": 1e9}, {"days": 0.0}, {"run": "../credit"}, {"digest": ""}):
            with Asking(town.bank, town, "shop") as ask, pytest.raises(VeilBoostError, match="VB-"):
                ask(replace(proposal, **wrong))
        for wrong in ("0" * 32, "../credit"):
            with Asking(town.bank, town, "shop") as ask, pytest.raises(PeerRefused, match="VB-1714"):
                ask(OpenDeployment(wrong))
        with Asking(town.bank, town, "shop") as ask:
            ask(OpenDeployment(id), Done)
            shop = town.town.run_folder("shop").load_share().records
            route = RouteRequest(shop.tree[:1], shop.node[:1], ints(0, 1), ints(0), ints(-1))
            with pytest.raises(UnexpectedMessage):
                ask(route)
            slots = town.table("shop").num_rows
            for slot in (slots, -2, -(2**31), 2**31 - 1):
                with pytest.raises(MalformedMessage):
                    ask(BeginScoring(1, ints(0, slot)))
            for nothing in (BeginScoring(1, ints()), LookUp(np.empty((0, 32), dtype=np.uint8))):
                with pytest.raises(MalformedMessage):  # it would fill the trail
                    ask(nothing)
            for generation in (0, 2):
                with pytest.raises(StaleIndex):
                    ask(BeginScoring(generation, ints(0)))
            ask(BeginScoring(1, ints(0)), Done)
            ask(route)
            with pytest.raises(MalformedMessage):  # a row that was not announced
                ask(replace(route, rows=ints(1)))
            ask(BeginScoring(1, ints(0)), Done)
            assert 0 < answered_nodes(ask, shop) < np.bincount(shop.tree).max()
            for request in (IndexRequest(slots + 1, 0), IndexRequest(0, 2), IndexRequest(-1, 0)):
                with pytest.raises(MalformedMessage):
                    ask(request)
            low_order = np.zeros((1, 32), dtype=np.uint8)
            with pytest.raises(MalformedMessage):
                ask(LookUp(low_order))
            with pytest.raises(PeerRefused, match="lookups_per_day"):
                ask(LookUp(np.repeat(hash_to_points([b"guess"]), 1_000_001, axis=0)))
            withdraw(town.settings("shop"), find_deployment(town.settings("shop"), "credit"))
            with pytest.raises(DeploymentEnded):
                ask(BeginScoring(1, ints(0)))


# --- explanations ---------------------------------------------------------------------------------------------------


def explaining(town: Deploying, **levels: str) -> None:
    """Give the passive parties these levels of explanations; the others allow the sum of their columns."""
    town.stop(*PASSIVE)
    for party in PASSIVE:
        town.settle(party, explanations=levels.get(party, "party"))
    town.start(*PASSIVE)


def by_party(found: Explanation, party: str) -> list[float]:
    return found.values[:, [owner == party for owner in found.parties]].sum(axis=1).tolist()


def test_contributions_are_those_of_the_joined_model_and_each_explanation_is_booked(town: Deploying) -> None:
    explaining(town, telecom="names")
    ids = town.common()[:7]
    with deploy(town.bank, town.run) as made:
        for _ in range(2):
            scored, found = made.explain(town.rows(made, ids), seconds=DEADLINE)
        town.check(made, ids)
    whole = town.model.explain(town.columns(ids))
    for party in PARTIES:
        assert by_party(found, party) == pytest.approx(by_party(whole, party), abs=1e-12)
    assert found.base_values == pytest.approx(whole.base_values, abs=1e-12)
    assert scored.scores.tolist() == pytest.approx(town.expected(ids), abs=1e-12)
    assert (scored.ids.tolist(), scored.status) == (ids, ("known",) * len(ids))
    assert [name for name, party in zip(found.feature_names, found.parties, strict=True) if party == "shop"] == ["shop"]
    town.stop(*PASSIVE)
    for party in PASSIVE:
        runs = town.settings(party).runs
        assert json.loads((runs / "predictions.json").read_text())["rows"] == 3 * len(ids)
        kept = [(each["peer"], each["what"], each["rows"], len(each["slots"])) for each in town.trail(party)[1:]]
        assert kept == [("bank", "explained", 7, 7)] * 2 + [("bank", "scored", 7, 7)]
        booked = Ledger(runs / "ledger.sqlite").events(f"deployment credit 1/{made.folder.id[:12]}")
        explained = [event for event in booked if event.release.startswith("explanation")]
        splits = town.town.run_folder(party).load_share().records.count
        assert [(event.rows, event.assignments, event.adversary) for event in explained] == [(7, splits, "bank")] * 2
        assert not any(event.counted for event in explained)


def test_explained_rows_that_a_party_does_not_know(town: Deploying) -> None:
    explaining(town)
    lost = town.unknown_at("shop")[:2]
    ids = [town.common()[0], *lost]
    with deploy(town.bank, town.run) as made:
        rows = town.rows(made, ids)
        with pytest.raises(RowsDiffer, match="2 of the 3 rows"):
            made.explain(rows, seconds=DEADLINE)
        skipped, defaulted = (made.explain(rows, how, DEADLINE) for how in ("skip", "default"))
        nobody, nothing = made.explain(town.rows(made, lost), "skip", DEADLINE)
    whole, expected = town.model.explain(town.columns(ids)), town.expected(ids)
    for scored, found in (skipped, defaulted):
        assert scored.status == ("known", "unknown at shop", "unknown at shop")
        explained = found.explained
        assert explained.margins[0] == pytest.approx(whole.margins[0, : len(explained.values)], abs=1e-12)
        assert len(found.values) == len(found.data) == len(found.reasons(3)) == 3
    assert by_party(defaulted[1], "shop") == pytest.approx(by_party(whole, "shop"), abs=1e-12)
    assert defaulted[0].scores.tolist() == pytest.approx(expected, abs=1e-12)
    assert skipped[0].scores[0] == pytest.approx(expected[0], abs=1e-12)
    assert np.isnan(skipped[0].scores[1:]).all()
    assert np.isnan(skipped[1].values[1:]).all()
    assert skipped[1].reasons(3)[1:] == [[], []]
    assert np.isnan(nobody.scores).all()
    assert nothing.reasons(3) == [[], []]
    town.stop(*PASSIVE)
    assert [each["rows"] for each in town.trail("shop")[1:]] == [1, 3]
    assert json.loads((town.settings("shop").runs / "predictions.json").read_text())["rows"] == 4


def test_a_party_that_allows_no_explanations_refuses_before_anything_is_spent(town: Deploying) -> None:
    explaining(town, shop="none")
    ids = town.common()[:3]
    with deploy(town.bank, town.run) as made:
        with pytest.raises(PeerRefused, match="VB-1612: the policy rule explanations refuses it"):
            made.explain(town.rows(made, ids), seconds=DEADLINE)
        town.check(made, ids)
    town.stop("shop")
    assert [each["what"] for each in town.trail("shop")] == ["looked up", "scored"]
    assert json.loads((town.settings("shop").runs / "predictions.json").read_text())["rows"] == 3


def test_what_a_hostile_peer_is_refused_about_explanations(town: Deploying) -> None:
    explaining(town)
    every, columns = AllSplitsOfRows(0, 1), SplitColumnsRequest()
    with deploy(town.bank, town.run) as made, Asking(town.bank, town, "shop") as ask:
        ask(OpenDeployment(made.folder.id), Done)
        for message in (every, columns):
            with pytest.raises(UnexpectedMessage):
                ask(message)
        ask(BeginScoring(1, ints(0)), Done)
        for message in (every, columns):  # not about rows that are only scored
            with pytest.raises(UnexpectedMessage):
                ask(message)
        with pytest.raises(MalformedMessage):
            ask(BeginScoring(1, ints(), True))
        with pytest.raises(MalformedMessage):
            ask(BeginScoring(1, ints(town.table("shop").num_rows), True))
        ask(BeginScoring(1, ints(0, 1), True), Done)
        for wrong in (AllSplitsOfRows(0, 3), AllSplitsOfRows(1, 1), AllSplitsOfRows(-1, 1)):
            with pytest.raises(MalformedMessage):
                ask(wrong)
        shop = town.town.run_folder("shop").load_share().records
        with pytest.raises(UnexpectedMessage):  # no routes of rows that are explained
            ask(RouteRequest(shop.tree[:1], shop.node[:1], ints(0, 1), ints(0), ints(-1)))
        assert ask(every, AllSplits).left.shape == (shop.count, 1)
        with pytest.raises(PeerRefused, match="predictions_per_day"):
            ask(BeginScoring(1, np.zeros(100_001, dtype=np.int32), True))
    town.stop("shop")
    assert [(each["what"], each["rows"]) for each in town.trail("shop")[1:]] == [("scored", 1), ("explained", 2)]
