"""Standing deployments, with real parties over TLS in one process: scores equal the offline model bit for bit."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import CONFIG, DEADLINE, PARTIES, Town, free_port, make_certificates, until
from veilboost.align.slots import IndexRequest, LookUp
from veilboost.boost.objective import make_objective
from veilboost.crypto.curve import hash_to_points
from veilboost.data.load import load_table
from veilboost.errors import (
    DeploymentEnded,
    MalformedMessage,
    PeerRefused,
    PeerUnreachable,
    RowsDiffer,
    StaleIndex,
    UnexpectedMessage,
    UnknownDeployment,
    VeilBoostError,
)
from veilboost.infer.messages import BeginScoring, RouteRequest
from veilboost.model.joined import join
from veilboost.party import deployed
from veilboost.party.coordinator import Connections
from veilboost.party.daemon import Daemon
from veilboost.party.deployment_folder import DeploymentFolder, end_expired, find_deployment, list_deployments
from veilboost.party.deployments import CATALOGUE, Deployment, Scored, Unknown, deploy, open_deployment, rekey, withdraw
from veilboost.party.job import read_job
from veilboost.party.messages import OpenDeployment, ProposeDeployment
from veilboost.party.settings import PartySettings, load_party
from veilboost.privacy.ledger import Ledger
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done, Message

PASSIVE = PARTIES[1:]
ROWS = 200


class Deploying:
    """A town with a trained model. Each test has its own tables and deployments."""

    def __init__(self, folder: Path, certificates: Path) -> None:
        self.town = Town(folder, certificates, rows=ROWS)
        self.daemons: dict[str, Daemon] = {}
        self.ports = {party: free_port() for party in PASSIVE}
        for party in PASSIVE:
            self.settle(party)
        self.town.settle("bank", limits={"connect_seconds": 5.0})
        self.start(*PASSIVE)

    def settle(self, party: str, **policy: Any) -> None:
        self.town.settle(party, policy={"deploy_to": ("bank",)} | policy, listen=f"127.0.0.1:{self.ports[party]}")

    def start(self, *parties: str) -> None:
        for party in parties:
            self.daemons[party] = Daemon(self.settings(party))

    def stop(self, *parties: str) -> None:
        for party in parties:
            self.daemons.pop(party).stop()

    def settings(self, party: str) -> PartySettings:
        return load_party(self.town.folder / f"{party}.toml")

    @property
    def bank(self) -> PartySettings:
        return self.settings("bank")

    @property
    def run(self) -> Path:
        return self.bank.runs / "credit"

    def train(self) -> None:
        addresses = {party: f"127.0.0.1:{port}" for party, port in self.ports.items()}
        job = self.town.write_job(addresses, config=replace(CONFIG, n_estimators=4))
        self.town.answer("train", job.name, "--config", "bank.toml")

    # --- rows and what they should score ----------------------------------------------------------------

    def table(self, party: str) -> pa.Table:
        return pq.read_table(self.town.folder / f"{party}.parquet")

    def write(self, party: str, table: pa.Table) -> None:
        """Replace a table as an owner does: at once."""
        path = self.town.folder / f"{party}.parquet"
        pq.write_table(table, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def common(self) -> list[str]:
        return sorted(set.intersection(*(set(self.table(party)["id"].to_pylist()) for party in PARTIES)))

    def unknown_at(self, party: str) -> list[str]:
        """People whom the others know."""
        others = [set(self.table(other)["id"].to_pylist()) for other in PARTIES if other != party]
        return sorted(set.intersection(*others) - set(self.table(party)["id"].to_pylist()))

    def rows(self, deployment: Deployment, ids: list[str]) -> Any:
        bank = self.table("bank").drop_columns(["label"])
        place = {id: at for at, id in enumerate(bank["id"].to_pylist())}
        return deployment.load(bank.take([place[id] for id in ids]))

    def expected(self, ids: list[str]) -> list[float]:
        """What the joined model gives; the values of people whom a party does not know are missing."""
        columns = []
        for party in PARTIES:
            label = {"label": "label"} if party == "bank" else {}
            table = load_table(self.town.folder / f"{party}.parquet", id="id", **label)
            place = {id: at for at, id in enumerate(table.ids.tolist())}
            for column in table.take(np.array([place.get(id, 0) for id in ids])).columns:
                values = column.values.copy()
                values[[id not in place for id in ids]] = -1 if column.categories else np.nan
                columns.append(replace(column, values=values))
        model = join({party: self.town.run_folder(party).load_share() for party in PARTIES})
        return make_objective("binary").predict(model.margins(columns)).tolist()

    def score(self, deployment: Deployment, ids: list[str], unknown: Unknown = "error") -> Scored:
        return deployment.score(self.rows(deployment, ids), unknown, DEADLINE)

    def check(self, deployment: Deployment, ids: list[str]) -> None:
        found = self.score(deployment, ids)
        assert (found.ids.tolist(), found.status) == (ids, ("known",) * len(ids))
        assert found.scores.tolist() == self.expected(ids)

    def trail(self, party: str) -> list[dict[str, Any]]:
        return list(list_deployments(self.settings(party))[0].read_trail())


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


class Asking:
    """A peer that sends what it likes to one party."""

    def __init__(self, settings: PartySettings, town: Deploying, party: str) -> None:
        job = deploy_job(town)
        self._connections = Connections(settings, job)
        self._caller = self._connections.caller(party, CATALOGUE, seconds=5.0)
        self._party = party

    def __call__(self, message: Message, kind: type[Message] = Message) -> Message:
        return Peers({self._party: self._caller}).ask({self._party: message}, kind)[self._party]

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()


def deploy_job(town: Deploying) -> Any:
    return read_job(town.town.run_folder("bank").job_text)


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


def test_the_daily_limits_hold(town: Deploying) -> None:
    rows = town.table("bank").num_rows
    town.stop("shop")
    town.settle("shop", predictions_per_day=5, lookups_per_day=rows - 1)
    town.start("shop")
    with pytest.raises(PeerRefused, match="lookups_per_day"):
        deploy(town.bank, town.run)
    assert all(each.status.now == "withdrawn" for each in list_deployments(town.settings("telecom")))
    town.stop("shop")
    town.settle("shop", predictions_per_day=5, lookups_per_day=rows)
    town.start("shop")
    ids = town.common()
    with deploy(town.bank, town.run) as made:
        town.check(made, ids[:3])
        with pytest.raises(PeerRefused, match="predictions_per_day"):
            town.score(made, ids[:3])
        town.check(made, ids[:2])


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


def test_a_restarted_party_is_found_again_and_an_absent_one_is_named(town: Deploying) -> None:
    ids = town.common()
    with deploy(town.bank, town.run) as made:
        town.check(made, ids[:3])
        town.stop("telecom")
        with pytest.raises(PeerUnreachable, match="telecom"):
            made.score(town.rows(made, ids[:3]), seconds=5.0)
        assert made.presence(5.0) == {"shop": True, "telecom": False}
        town.start("telecom")
        town.check(made, ids)
        town.stop(*PASSIVE)
        town.start(*PASSIVE)
        town.check(made, ids)


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
    slots = [DeploymentFolder.at(shop, each.id).load_index() for each in (first.folder, second.folder)]
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


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


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
            route = RouteRequest(shop.tree[:1], shop.node[:1], ints(0, 1), ints(0))
            with pytest.raises(UnexpectedMessage):
                ask(route)
            slots = town.table("shop").num_rows
            for slot in (slots, -2, -(2**31), 2**31 - 1):
                with pytest.raises(MalformedMessage):
                    ask(BeginScoring(1, ints(0, slot)))
            for generation in (0, 2):
                with pytest.raises(StaleIndex):
                    ask(BeginScoring(generation, ints(0)))
            ask(BeginScoring(1, ints(0)), Done)
            ask(route)
            with pytest.raises(MalformedMessage):  # a row that was not announced
                ask(replace(route, rows=ints(1)))
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
