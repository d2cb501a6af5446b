"""Authority and computing service as daemons of their own: alignment by keyed hashes (ELXGB section 6.1) for real."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parties import until
from veilboost.align.clear import align_by_id
from veilboost.audit.attacks import audit
from veilboost.audit.sources import views_of_runs
from veilboost.errors import NothingToResume, PeerRefused, VeilBoostError
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import Federation, coordinate
from veilboost.party.job import load_job
from veilboost.party.messages import Accepted, Propose
from veilboost.party.predicting import LivePredictor
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.party.simulation import simulate_training
from veilboost.wire.message import Catalogue
from veilboost.wire.transcript import read_transcript

OWNERS, HELPERS = ("bank", "shop"), {"ta": "authority", "csp": "csp"}


@pytest.fixture
def town(tmp_path):
    """The files of two owners and two helpers, the daemons of all but the bank, and the job between them."""
    init_authority(tmp_path)
    rng = np.random.default_rng(0)
    everyone = (*OWNERS, *HELPERS)
    ids = {"bank": np.arange(0, 400), "shop": np.arange(150, 500)[::-1]}
    daemons = {}
    for name in (*HELPERS, *OWNERS):  # helpers first: the owners' files hold their addresses
        issue(tmp_path, name, ["localhost"])
        peers = "".join(
            f'[peers.{helper}]\naddress = "127.0.0.1:{daemons[helper].port}"\nconnect = "in"\n'
            for helper in HELPERS
            if name in OWNERS
        )
        data = ""
        if name in OWNERS:
            columns = {"id": [f"C{i:04d}" for i in ids[name]], f"x_{name}": rng.normal(size=len(ids[name]))}
            if name == "bank":
                columns["y"] = (columns["x_bank"] + rng.normal(size=400) > 0).astype(np.int64)
            pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
            label = 'label = "y"' if name == "bank" else ""
            data = f'[data]\npath = "{name}.parquet"\nid = "id"\n{label}\n'
        policy = "\n".join(f'{other} = ["any"]' for other in everyone if other != name)
        (tmp_path / f"{name}.toml").write_text(f"""
name = "{name}"
listen = "127.0.0.1:0"
runs = "runs-{name}"
n_jobs = 1
{peers}
[certificates]
cert = "{name}.crt"
key = "{name}.key"
ca = "ca.crt"
{data}
[limits]
wait_seconds = 15
[policy]
protocols = ["plain"]
allow_unprotected = ["plain"]
[policy.peers]
{policy}
""")
        if name != "bank":
            daemons[name] = Daemon(load_party(tmp_path / f"{name}.toml"))
    ways = "".join(
        f'[parties.{name}]\naddress = "127.0.0.1:{daemon.port}"\nrole = "{HELPERS.get(name, "passive")}"\n'
        for name, daemon in daemons.items()
    )
    (tmp_path / "job.toml").write_text(
        f'name = "first"\nrecord = "payload"\nalignment = "hmac_csp"\n[parties.bank]\nrole = "active"\n{ways}'
        '[training]\nobjective = "binary"\nn_estimators = 4\nmax_depth = 3\nsubsample = 0.7\n'
    )
    yield tmp_path, daemons
    for daemon in daemons.values():
        daemon.stop()


def test_owners_align_through_helpers_train_and_predict(town):
    folder, _ = town
    before = set(threading.enumerate())
    settings, job = load_party(folder / "bank.toml"), load_job(folder / "job.toml")
    with coordinate(settings, job) as driver:
        assert driver.check().errors == dict.fromkeys(("bank", "ta", "csp", "shop"))
        driver.train()
    parts = {name: RunFolder(folder / f"runs-{name}" / "first").load_share() for name in OWNERS}
    tables = align_by_id({name: load_party(folder / f"{name}.toml").data.load() for name in OWNERS})
    assert tables["bank"].rows == 250
    simulated = simulate_training(tables, "bank", "plain", job.training)
    assert join(parts).sha256() == join(simulated.shares).sha256()

    some = tables["bank"].take(np.array([7, 200, 3]))
    scores = LivePredictor(settings, RunFolder.open(folder / "runs-bank", "first")).predict(some).scores
    margin = join(parts).margins([column.take(np.array([7, 200, 3])) for t in tables.values() for column in t.columns])
    np.testing.assert_array_equal(scores, 1 / (1 + np.exp(-margin[0])))

    federation = Federation(folder / "job.toml", folder / "bank.toml")
    again = federation.predict(pq.read_table(folder / "bank.parquet").take([157, 350, 153]))
    assert again.ids.tolist() == ["C0157", "C0350", "C0153"]
    np.testing.assert_array_equal(again.scores, scores)

    def timers():
        return [thread for thread in set(threading.enumerate()) - before if isinstance(thread, threading.Timer)]

    # The daemons notice shortly afterwards that a peer has disconnected. A timer of an open link runs for an hour.
    until(lambda: not timers(), "the end of all channels of sessions that are over", seconds=60)

    federation.run.note(state="failed")
    changed = (folder / "job.toml").read_text().replace("max_depth = 3", "max_depth = 4")
    (folder / "changed.toml").write_text(changed)
    with pytest.raises(NothingToResume, match="has changed"):
        Federation(folder / "changed.toml", folder / "bank.toml").train(resume=True, progress=False)

    for helper, role in HELPERS.items():  # also those of the two predictions
        run = RunFolder.open(folder / f"runs-{helper}", "first")
        assert (run.status["state"], run.status["role"], run.status["active"]) == ("finished", role, "bank")
        kinds = [entry.message for entry in read_transcript(run.path / "transcript")]
        assert kinds.count("Propose") == kinds.count("EndAlignment") == 3
        assert load_job(run.path / "job.toml").name == "first"

    helpers, truth = (
        [folder / f"runs-{name}" / "first" for name in HELPERS],
        [folder / "bank.toml", folder / "shop.toml"],
    )
    found = audit(*views_of_runs(helpers, truth))
    assert {(each.adversary, each.victim, each.verdict) for each in found} == {
        *(("csp", owner, "resisted") for owner in OWNERS),
        *(("csp and ta", owner, "succeeded") for owner in OWNERS),
    }

    # What the computing service was sent, the shop wrote down itself.
    sent = [e for e in read_transcript(folder / "runs-shop" / "first" / "transcript") if e.peer == "csp"]
    assert sent
    assert all(to == "csp" for entry in sent if entry.direction == "sent" for _, to in entry.reveals)


def test_third_parties_that_the_alignment_does_not_need_are_left_alone(town):
    """A job may name them for secure inference alone."""
    folder, daemons = town
    settings = load_party(folder / "bank.toml")
    job = replace(load_job(folder / "job.toml"), alignment="ecdh")
    with coordinate(settings, job) as driver:
        way = driver.caller("ta", Catalogue([Accepted]))
        asked = way.send(Propose(driver.job.text(), dry_run=True, resume=False))
        with pytest.raises(PeerRefused, match="ecdh needs no authority"):
            asked()
        for name in HELPERS:
            daemons.pop(name).stop()
        assert driver.check().errors == {"bank": None, "shop": None}
        run, _ = driver.train()
    some = settings.data.load().take(np.array([399]))
    assert len(LivePredictor(settings, run).predict(some).scores) == 1


def test_a_helper_that_is_gone_is_named(town):
    folder, daemons = town
    daemons.pop("csp").stop()
    with coordinate(load_party(folder / "bank.toml"), load_job(folder / "job.toml")) as driver:
        answers = driver.check().errors
        assert answers["shop"] is None
        assert "csp" in answers["csp"]
        assert "VB-1409" in answers["csp"]


def test_rows_that_a_party_does_not_know_cannot_be_predicted(town):
    folder, _ = town
    settings, job = load_party(folder / "bank.toml"), load_job(folder / "job.toml")
    with coordinate(settings, job) as driver:
        driver.train()
    stranger = settings.data.load().take(np.array([0, 399]))  # the first is the bank's alone
    predictor = LivePredictor(settings, RunFolder.open(folder / "runs-bank", "first"))
    with pytest.raises(VeilBoostError, match="VB-1202: 1 of the 2 rows"):
        predictor.predict(stranger)
    (folder / "runs-shop" / "first").rename(folder / "runs-shop" / "gone")
    with pytest.raises(PeerRefused, match="VB-1706"):
        predictor.predict(settings.data.load().take(np.array([399])))
