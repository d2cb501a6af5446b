"""Ids hashed before a job runs: daemons over TLS, an authority that keeps a key, and a job that uses it once."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import make_certificates
from veilboost.align import ids as align_ids
from veilboost.align.hmac_csp import AlignmentKey
from veilboost.config import TrainingConfig
from veilboost.errors import (
    AgainstPolicy,
    DuplicateIds,
    ImpossibleSetting,
    PeerRefused,
    PeerUnreachable,
    UnsupportedCombination,
    VeilBoostError,
)
from veilboost.model.joined import join
from veilboost.party import precompute
from veilboost.party.certs import issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.hub import LinkHub
from veilboost.party.job import Job, JobParty
from veilboost.party.messages import CONTROL_MESSAGES, PrepareAlignment
from veilboost.party.policy import Policy
from veilboost.party.precompute import key_for, prepare, prepare_ids, take_key
from veilboost.party.runs import RunFolder
from veilboost.party.sections import commented_toml
from veilboost.party.settings import CertificateSettings, DataSettings, Limits, PartySettings, PeerSettings
from veilboost.wire.channel import Peers
from veilboost.wire.message import Catalogue
from veilboost.wire.rpc import Caller
from veilboost.wire.transcript import Transcript, read_transcript

OWNERS, HELPERS = ("bank", "shop", "telecom"), {"ta": "authority", "csp": "csp"}
EVERYONE = (*OWNERS, *HELPERS)
ROWS = 90


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = make_certificates(tmp_path_factory.mktemp("certs"))
    for name in (*HELPERS, "stranger"):
        issue(folder, name, ["localhost"])
    return folder


class Market:
    """Three owners and two helpers. Every daemon but the bank's runs in this process."""

    def __init__(self, folder: Path, certs: Path) -> None:
        self.folder, self.certs = folder, certs
        self.daemons: dict[str, Daemon] = {}
        self.settings: dict[str, PartySettings] = {}
        rng = np.random.default_rng(3)
        for name in OWNERS:
            known = rng.permutation(ROWS)[: ROWS - 10]
            self.write(name, [f"c{k:03d}" for k in known], rng.normal(size=len(known)).round(2))
        for name in (*HELPERS, *OWNERS):  # helpers first: the owners' settings hold their addresses
            self.settle(name)
            if name != "bank":
                self.serve(name)

    def write(self, name, ids, values):
        columns = {"id": ids, f"x_{name}": values}
        if name == "bank":
            columns["y"] = (np.arange(len(ids)) % 3 == 0).astype(np.int64)
        pq.write_table(pa.table(columns), self.folder / f"{name}.parquet")

    def settle(self, name, **changes):
        owns = name in OWNERS
        label = "y" if name == "bank" else None
        ways = {helper: PeerSettings(f"127.0.0.1:{self.daemons[helper].port}", "in") for helper in HELPERS if owns}
        self.settings[name] = PartySettings(
            name=name,
            certificates=CertificateSettings(
                self.certs / f"{name}.crt", self.certs / f"{name}.key", self.certs / "ca.crt"
            ),
            data=DataSettings(self.folder / f"{name}.parquet", id="id", label=label) if owns else None,
            policy=Policy(
                protocols=("plain",),
                allow_unprotected=("plain",),
                min_rows=10,
                peers={other: ("any",) for other in (*EVERYONE, "stranger") if other != name},
            ),
            limits=Limits(wait_seconds=15.0, connect_seconds=15.0),
            **{"listen": "127.0.0.1:0", "runs": self.folder / f"runs-{name}", "n_jobs": 1, "peers": ways} | changes,
        )
        return self.settings[name]

    def serve(self, name):
        self.daemons[name] = Daemon(self.settings[name])
        listen = f"127.0.0.1:{self.daemons[name].port}"
        self.settings[name] = dataclasses.replace(self.settings[name], listen=listen)

    def restart(self, name):
        self.daemons[name].stop()
        self.serve(name)

    def job(self, name="first", **changes):
        parties = {"bank": JobParty(role="active")} | {
            other: JobParty(f"127.0.0.1:{daemon.port}", role=HELPERS.get(other, "passive"))
            for other, daemon in self.daemons.items()
        }
        training = TrainingConfig(objective="binary", n_estimators=3, max_depth=2, max_bin=8, subsample=0.8)
        options = {"alignment": "hmac_csp", "id_hash": "hmac-sha512", "training": training, "parties": parties}
        return Job(name=name, **options | changes)

    def train(self, job):
        with coordinate(self.settings["bank"], job) as driver:
            driver.train()
        return join({name: self.run(name, job).load_share() for name in OWNERS}).sha256()

    def prepare(self, job, *names):
        return {name: prepare(self.settings[name], job).ids for name in names or OWNERS}

    def run(self, name, job):
        return RunFolder.open(self.settings[name].runs, job.name)

    def told(self, job):
        return {name: self.run(name, job).status["ids"] for name in OWNERS}

    def kept(self, name):
        """What lies prepared at a party."""
        return sorted(file.name for file in (self.settings[name].runs / "prepared").glob("*"))


@pytest.fixture
def market(tmp_path, certificates):
    market = Market(tmp_path, certificates)
    yield market
    for daemon in market.daemons.values():
        daemon.stop()


@pytest.fixture
def hashings(monkeypatch):
    """How many ids were hashed for the alignment, list by list; those that are only dealt into batches do not count."""
    counted, lock, really = [], threading.Lock(), align_ids.keyed_digests

    def counting(texts, key, name, size):
        if size == align_ids.DIGEST_BYTES:
            with lock:
                counted.append(len(texts))
        return really(texts, key, name, size)

    monkeypatch.setattr(align_ids, "keyed_digests", counting)
    return counted


def test_a_prepared_job_hashes_nothing_gives_the_same_model_and_uses_its_key_once(market, hashings):
    unprepared = market.train(market.job("usual"))
    assert set(market.told(market.job("usual")).values()) == {"hashed in the job"}
    job = market.job()
    hashings.clear()
    ready = market.prepare(job)
    assert hashings == [ROWS - 10] * 3
    assert [made.rows for made in ready.values()] == [ROWS - 10] * 3
    assert all(made.seconds > 0 for made in ready.values())
    files = [*(made.file for made in ready.values()), market.settings["ta"].runs / "prepared" / "first.alignment"]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 4
    assert {file.parent.stat().st_mode & 0o777 for file in files} == {0o700}
    market.restart("ta")
    hashings.clear()
    assert market.train(market.job()) == unprepared
    assert hashings == []
    assert set(market.told(job).values()) == {"hashed beforehand"}
    assert not any(market.kept(name) for name in EVERYONE)

    # Once more, under the same name and with what was prepared before: the key has been used, a new one comes.
    for name in OWNERS:
        market.run(name, job).note(state="failed")
    for name in ("bank", "shop"):
        prepare_ids(market.settings[name], market.job())
    take_key(market.settings["ta"], market.job())
    hashings.clear()
    assert market.train(market.job()) == unprepared
    assert hashings == [ROWS - 10] * 3
    assert market.told(job) == {
        "bank": "hashed again: the authority has given another key",
        "shop": "hashed again: the authority has given another key",
        "telecom": "hashed in the job",
    }
    assert not any(market.kept(name) for name in EVERYONE)


def test_some_may_prepare_and_others_not(market, hashings):
    job = market.job()
    market.prepare(job, "shop")
    hashings.clear()
    market.train(job)
    assert hashings == [ROWS - 10] * 2
    assert market.told(job)["shop"] == "hashed beforehand"


def test_ids_that_have_changed_since_are_hashed_anew(market, hashings):
    job = market.job()
    market.prepare(job)
    held = pq.read_table(market.folder / "shop.parquet")
    market.write("shop", held["id"].to_pylist()[:-1][::-1], held["x_shop"].to_numpy()[:-1][::-1])
    hashings.clear()
    found = market.train(job)
    assert hashings == [ROWS - 11]
    assert market.told(job)["shop"].startswith("hashed again: they differ")
    assert found == market.train(market.job("usual")), "the common rows are those of the tables as they are now"


def test_ids_that_are_aligned_in_batches_are_hashed_batch_by_batch(market, hashings, monkeypatch):
    monkeypatch.setattr("veilboost.party.batches.BATCH_ROWS", 100)
    rows = 160  # two batches, with ids enough in each to be dealt
    for name in OWNERS:
        market.write(name, [f"c{k:03d}" for k in range(rows)], np.arange(rows) % 7)
    market.daemons.pop("telecom").stop()
    market.settle("telecom", engine="disk")
    market.serve("telecom")
    training = dataclasses.replace(market.job().training, subsample=1.0)
    job, usual = (market.job(name, training=training) for name in ("first", "usual"))
    market.prepare(job, "bank", "shop")
    hashings.clear()
    found = market.train(job)
    assert len(hashings) == 6
    assert sum(hashings) == 3 * rows
    assert market.told(job)["shop"].startswith("hashed again: they differ")
    assert found == market.train(usual)
    assert not any(market.kept(name) for name in EVERYONE)


def test_a_damaged_file_is_not_used_and_does_not_stop_the_job(market, hashings):
    job = market.job()
    ready = market.prepare(job)
    content = bytearray(ready["shop"].file.read_bytes())
    content[200] ^= 1
    ready["shop"].file.write_bytes(content)
    ready["telecom"].file.write_bytes(b"")
    hashings.clear()
    market.train(job)
    assert hashings == [ROWS - 10] * 2
    assert set(market.told(job).values()) == {
        "hashed beforehand",
        "hashed again: the prepared ids cannot be read",
    }
    assert not any(market.kept(name) for name in EVERYONE)


def test_what_the_job_cannot_use_does_not_stay(market):
    job = market.job()
    market.prepare(job, "bank", "shop")
    owners = {name: party for name, party in job.parties.items() if name in OWNERS}
    market.train(market.job(alignment="ecdh", id_hash="blake2b", parties=owners))
    assert not market.kept("bank")
    assert not market.kept("shop")
    assert not any("ids" in market.run(name, job).status for name in OWNERS)


def as_role(job, **roles):
    """The job with other roles for some of its parties, who may be new."""
    new = {
        name: dataclasses.replace(job.parties.get(name, JobParty("127.0.0.1:1")), role=role)
        for name, role in roles.items()
    }
    return dataclasses.replace(job, parties=job.parties | new)


def test_only_those_whose_rows_align_get_the_key(market):
    job, ta = market.job(), market.settings["ta"]
    market.prepare(job, "shop")
    genuine = key_for(ta, job)
    for name in ("csp", "stranger"):
        asking = market.settle(name, peers={"ta": PeerSettings(ta.listen, "in")})
        with pytest.raises(AgainstPolicy, match=f"{name} has no table"):
            prepare_ids(asking, job)
        with pytest.raises(PeerRefused, match=f"VB-1612: {name} has no table in 'first'"):
            precompute._ask_key(asking, job)
    # A CSP that writes itself into the job as an owner gets a key, but not the one that the owners have.
    forged = as_role(job, csp="passive", stranger="csp")
    assert precompute._ask_key(market.settings["csp"], forged) != genuine
    assert take_key(ta, job) is None, "what is kept is of other parties now"
    hidden = market.train(job)
    assert market.told(job)["shop"] == "hashed again: the authority has given another key"
    assert hidden == market.train(market.job("usual"))


def test_the_authoritys_owner_decides_as_about_the_job(market):
    job, ta, shop = market.job(), market.settings["ta"], market.settings["shop"]
    for refused, why in (
        (market.job(protocol="lattice"), "protocols refuses it"),
        (as_role(job, nobody="passive"), "nobody is not admitted"),
        (market.job(alignment="ecdh", id_hash="blake2b"), "ta is not the authority"),
        (as_role(job, ta="passive", stranger="authority"), "ta is not the authority"),
    ):
        asking = dataclasses.replace(shop, peers={name: PeerSettings(ta.listen) for name in ("ta", "stranger")})
        with pytest.raises(VeilBoostError, match=why):
            ask_as_ta(asking, refused)
    assert not market.kept("ta")
    assert prepare_ids(shop, job).rows == ROWS - 10, "the daemon lives on"


def ask_as_ta(asking, job):
    """Ask the daemon of `ta`, whoever the job says is the authority."""
    hub, way = LinkHub(asking), asking.peers["ta"].address
    caller = Caller(
        *("ta", lambda seconds: hub.open("ta", way, seconds), bytes(16), Catalogue({*CONTROL_MESSAGES, AlignmentKey})),
        *(Transcript(asking.name), 15.0),
    )
    try:
        return Peers({"ta": caller}).ask({"ta": PrepareAlignment(commented_toml(job, "A job."))}, AlignmentKey)["ta"]
    finally:
        caller.close()


def test_what_hinders_is_said_before_anything_is_kept(market):
    job, shop = market.job(), market.settings["shop"]
    with pytest.raises(UnsupportedCombination, match="ecdh"):
        prepare(shop, market.job(alignment="ecdh", id_hash="blake2b"))
    with pytest.raises(UnsupportedCombination, match="engine disk"):
        prepare(dataclasses.replace(shop, engine="disk"), job)
    without = dataclasses.replace(job.parties["ta"], address=None, connect="in")
    away = dataclasses.replace(
        job,
        parties=job.parties | {"ta": without, "bank": dataclasses.replace(job.parties["bank"], address="127.0.0.1:1")},
    )
    with pytest.raises(ImpossibleSetting, match=r"\[peers.ta\]"):
        prepare(dataclasses.replace(shop, peers={}), away)
    assert prepare(dataclasses.replace(shop, peers={}), job).ids is not None, "the job's address serves as well"
    market.daemons.pop("ta").stop()
    gone = dataclasses.replace(market.settings["telecom"], limits=Limits(connect_seconds=0.3))
    with pytest.raises(PeerUnreachable):
        prepare(gone, job)
    market.write("telecom", ["x", "x "], [1.0, 2.0])
    with pytest.raises(DuplicateIds):
        prepare(gone, job)
    assert not market.kept("telecom")


def test_all_who_ask_at_the_same_time_get_the_same_key_and_one_takes_it(market):
    job, ta = market.job(), market.settings["ta"]
    meeting, found, taken = threading.Barrier(8), [], []

    def ask(do, into):
        meeting.wait(30)
        into.append(do(ta, job))

    for do, into in ((key_for, found), (take_key, taken)):
        threads = [threading.Thread(target=ask, args=(do, into)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(set(found)) == 1
    assert [key for key in taken if key is not None] == found[:1]
    assert key_for(ta, job) != found[0]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"[1]", b"{}", b'{"parties": 1, "key": "zz"}', b'{"key": "00"}'])
def test_a_damaged_key_is_none(market, content):
    job, ta = market.job(), market.settings["ta"]
    first = key_for(ta, job)
    file = ta.runs / "prepared" / "first.alignment"
    assert json.loads(file.read_text())["key"] == first.hex()
    file.write_bytes(content)
    second = key_for(ta, job)
    assert second != first
    assert len(second) == 32
    file.write_bytes(content)
    assert take_key(ta, job) is None


def test_the_job_writes_down_the_same_messages_prepared_or_not(market):
    """What lies ready changes who works when, not what is told to whom."""
    market.prepare(market.job("ready"))
    seen = {}
    for name in ("ready", "usual"):
        market.train(market.job(name))
        entries = read_transcript(market.run("shop", market.job(name)).path / "transcript")
        seen[name] = [(entry.direction, entry.peer, entry.message) for entry in entries]
    assert seen["ready"] == seen["usual"]


def test_a_hash_of_ids_is_refused_where_no_ids_are_hashed(market):
    job = market.job()
    assert job.id_hash == "hmac-sha512"
    with pytest.raises(ImpossibleSetting, match="hashes no ids"):
        dataclasses.replace(job, alignment="prealigned")
