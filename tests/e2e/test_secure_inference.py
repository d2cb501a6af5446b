"""Authority, CSP, owners and users as daemons and clients of their own: ELXGB from alignment to a user's score."""

from __future__ import annotations

import json
import shutil
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from veilboost.cli.main import app
from veilboost.errors import PeerRefused, PeerUnreachable, UnexpectedMessage, VeilBoostError
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.messages import OpenService
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.secure_inference.client import ServiceClient, publish
from veilboost.secure_inference.messages import (
    BlindedNodes,
    Directions,
    EncryptedNodes,
    NodesRequest,
    PrepareService,
    SecureQuery,
    SecureScores,
    ServiceKey,
    ServiceKeyRequest,
)
from veilboost.secure_inference.roles import ServiceUser
from veilboost.types import Column
from veilboost.wire.channel import Peers
from veilboost.wire.message import Done

OWNERS, HELPERS, USERS = ("bank", "shop"), {"ta": "authority", "csp": "csp"}, ("alice",)
EVERYONE = (*HELPERS, *OWNERS, *USERS)
ROWS = 300


def write(folder, name, addresses, listen="127.0.0.1:0"):
    peers = "".join(
        f'[peers.{at}]\naddress = "{where}"\nconnect = "in"\n' for at, where in addresses.items() if at != name
    )
    data = ""
    if name in OWNERS:
        label = 'label = "y"' if name == "bank" else ""
        data = f'[data]\npath = "{name}.parquet"\nid = "id"\n{label}\n'
    policy = "\n".join(f'{other} = ["any"]' for other in EVERYONE if other != name)
    (folder / f"{name}.toml").write_text(
        f'name = "{name}"\nlisten = "{listen}"\nruns = "runs-{name}"\nn_jobs = 1\n{peers}'
        f'[certificates]\ncert = "{name}.crt"\nkey = "{name}.key"\nca = "ca.crt"\n{data}'
        "[limits]\nwait_seconds = 6\n"
        '[policy]\nprotocols = ["elxgb"]\nallow_unprotected = ["elxgb"]\n'
        'predictions_per_day = 60\nserve_users = ["bank"]\n'
        f"[policy.peers]\n{policy}\n"
    )
    return load_party(folder / f"{name}.toml")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """A model of `elxgb`, trained over TLS, and published; its parties as daemons."""
    folder = tmp_path_factory.mktemp("town")
    init_authority(folder)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, 3)).astype(np.float32)
    label = (values.sum(axis=1) + rng.normal(size=ROWS) > 0).astype(np.int64)
    shade = np.array(["red", "green", None])[rng.integers(3, size=ROWS)]
    ids = [f"C{i:04d}" for i in range(ROWS)]
    pq.write_table(pa.table({"id": ids, "income": values[:, 0], "y": label}), folder / "bank.parquet")
    pq.write_table(
        pa.table({"id": ids, "spent": values[:, 1], "visits": values[:, 2], "shade": shade}), folder / "shop.parquet"
    )
    daemons, addresses = {}, {}
    for name in EVERYONE:
        issue(folder, name, ["localhost"])
    for name in (*HELPERS, *OWNERS):
        if name == "csp":
            continue
        daemons[name] = Daemon(write(folder, name, addresses))
        addresses[name] = f"127.0.0.1:{daemons[name].port}"
        if name == "ta":
            daemons["csp"] = Daemon(write(folder, "csp", addresses))
            addresses["csp"] = f"127.0.0.1:{daemons['csp'].port}"
    bank = write(folder, "bank", addresses, addresses["bank"])
    write(folder, "alice", addresses)
    ways = "".join(
        f'[parties.{name}]\naddress = "{addresses[name]}"\nrole = "{HELPERS.get(name, "passive")}"\n'
        for name in ("shop", *HELPERS)
    )
    (folder / "job.toml").write_text(
        f'name = "credit"\nalignment = "hmac_csp"\nprotocol = "elxgb"\n[parties.bank]\nrole = "active"\n{ways}'
        '[training]\nobjective = "binary"\nn_estimators = 2\nmax_depth = 2\nmax_bin = 8\ncategories = "onehot"\n'
        '[training.options]\nbackend = "lattice"\n'
    )
    with coordinate(bank, load_job(folder / "job.toml")) as driver:
        driver.train()
    published = publish(bank, "credit", "ta", "csp", "lattice")
    assert published.directory.size == 1 + 2 + 2 * 2  # a category with missing values has two numbers a name
    yield folder, daemons, addresses
    for daemon in daemons.values():
        daemon.stop()


def expected(folder, rows):
    parts = {name: RunFolder(folder / f"runs-{name}" / "credit").load_share() for name in OWNERS}
    bank, shop = (pq.read_table(folder / f"{name}.parquet").take(rows) for name in OWNERS)
    names = {name: k for k, name in enumerate(("green", "red"))}
    shade = np.array([names.get(text, -1) for text in shop["shade"].to_pylist()], dtype=np.int32)
    columns = [Column("income", bank["income"].to_numpy())]
    columns += [Column(name, shop[name].to_numpy()) for name in ("spent", "visits")]
    columns.append(Column("shade", shade, ("green", "red")))
    return columns, 1 / (1 + np.exp(-join(parts).margins(columns)[0]))


def alice(folder):
    client = ServiceClient(load_party(folder / "alice.toml"), OpenService("credit", "ta", ""))
    return Peers({"authority": client.channel("ta"), "active": client.channel("bank")})


def test_a_user_predicts_from_the_command_line_while_the_shop_is_offline(town):
    folder, daemons, _ = town
    daemons["shop"].stop()
    rows = [3, 7, 11, 200]
    columns, scores = expected(folder, rows)
    table = {
        c.name: c.values if c.categories is None else [(*c.categories, None)[v] for v in c.values] for c in columns
    }
    pc.write_csv(pa.table({"me": [f"u{k}" for k in rows], **table}), folder / "me.csv")
    base = ["user", "predict", "--config", str(folder / "alice.toml"), "--run", "credit", "--active", "bank"]
    base += ["--authority", "ta", "--data", str(folder / "me.csv"), "--id", "me", "--out", str(folder / "s.parquet")]
    result = CliRunner().invoke(app, [*base, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rows"] == 4
    written = pq.read_table(folder / "s.parquet")
    assert written["me"].to_pylist() == [f"u{k}" for k in rows]
    np.testing.assert_array_equal(written["score"].to_numpy(), scores)


def test_users_at_the_same_time_get_their_own_scores(town):
    folder, _, _ = town
    columns, scores = expected(folder, list(range(8)))
    found = {}

    def ask(k):
        own = {column.name: column.take(np.array([k])) for column in columns}
        found[k] = ServiceUser(alice(folder)).predict(own, 1)[0, 0]

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    np.testing.assert_array_equal([found[k] for k in range(8)], scores)


def test_publishing_again_changes_nothing_and_nonsense_is_refused(town):
    folder, daemons, addresses = town
    if daemons["shop"]._stopping.is_set():
        daemons["shop"] = Daemon(write(folder, "shop", addresses, addresses["shop"]))
    base = ["user", "publish", "--config", str(folder / "bank.toml"), "--run", "credit", "--authority", "ta"]
    result = CliRunner().invoke(app, [*base, "--csp", "csp", "--scheme", "lattice", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["numbers"] == 7
    for wrong in (["--csp", "csp", "--scheme", "rot13"], ["--csp", "nobody"], ["--csp", "csp", "--scheme", "paillier"]):
        assert isinstance(CliRunner().invoke(app, [*base, *wrong]).exception, VeilBoostError)


def test_the_secret_key_and_the_days_limit_are_kept(town):
    folder, _, _ = town
    peers = alice(folder)
    with pytest.raises(UnexpectedMessage):
        peers.ask({"authority": ServiceKeyRequest()}, ServiceKey)
    with pytest.raises(VeilBoostError) as caught:
        peers.ask(
            {"active": SecureQuery(np.zeros((1, 10), dtype=np.uint8), np.zeros(32, dtype=np.uint8))}, SecureScores
        )
    assert "VB-1401" in str(caught.value)
    with pytest.raises(PeerRefused, match="predictions_per_day"):
        peers.ask(
            {"active": SecureQuery(np.zeros((100, 1), dtype=np.uint8), np.zeros(32, dtype=np.uint8))}, SecureScores
        )


def test_an_owner_trusts_the_authority_of_the_job_and_no_other(town):
    """Else the active party could have nodes encrypted under a key of its choice."""
    folder, daemons, addresses = town
    if daemons["shop"]._stopping.is_set():
        daemons["shop"] = Daemon(write(folder, "shop", addresses, addresses["shop"]))
    client = ServiceClient(load_party(folder / "bank.toml"), OpenService("credit", "csp", "ta"))
    with pytest.raises(PeerRefused, match="VB-1612"):
        Peers({"shop": client.channel("shop")}).ask({"shop": NodesRequest()}, EncryptedNodes)
    other = ServiceClient(load_party(folder / "alice.toml"), OpenService("credit", "ta", "csp"))
    with pytest.raises(PeerRefused, match="VB-1612"):
        Peers({"shop": other.channel("shop")}).ask({"shop": NodesRequest()}, EncryptedNodes)


def test_who_wakes_the_csp_first_does_not_become_the_active_party(town):
    """Else whoever may speak to the CSP could have its own ciphertexts decided."""
    folder, _, _ = town
    shutil.rmtree(folder / "runs-csp" / "credit" / "service")
    csp = ServiceClient(load_party(folder / "alice.toml"), OpenService("credit", "ta", "csp")).channel("csp")
    Peers({"csp": csp}).ask({"csp": PrepareService()}, Done)
    with pytest.raises(PeerRefused, match="does not serve this model"):
        Peers({"csp": csp}).ask({"csp": BlindedNodes(np.zeros((1, 8), dtype=np.uint8))}, Directions)
    columns, scores = expected(folder, [5])
    assert ServiceUser(alice(folder)).predict({column.name: column for column in columns}, 1)[0, 0] == scores[0]


def test_a_service_is_withdrawn_and_published_again_with_new_keys(town):
    folder, daemons, addresses = town
    if daemons["shop"]._stopping.is_set():
        daemons["shop"] = Daemon(write(folder, "shop", addresses, addresses["shop"]))
    secret = folder / "runs-csp" / "credit" / "service" / "service.key"
    before = secret.read_bytes()
    columns, scores = expected(folder, [9])
    own = {column.name: column for column in columns}
    old = ServiceUser(alice(folder))
    assert old.predict(own, 1)[0, 0] == scores[0]
    base = ["--config", str(folder / "bank.toml"), "--run", "credit", "--authority", "ta", "--csp", "csp"]
    for _ in range(2):  # it can be repeated
        result = CliRunner().invoke(app, ["user", "withdraw", *base])
        assert result.exit_code == 0, result.output
    assert not secret.exists()
    assert not list((folder / "runs-bank" / "credit" / "service").iterdir())
    with pytest.raises(VeilBoostError, match="VB-"):
        old.predict(own, 1)
    publish(load_party(folder / "bank.toml"), "credit", "ta", "csp", "lattice")
    assert secret.read_bytes() != before
    assert ServiceUser(alice(folder)).predict(own, 1)[0, 0] == scores[0]


def test_an_authority_that_was_started_again_still_knows_and_a_csp_that_is_gone_is_named(town):
    folder, daemons, addresses = town
    daemons["ta"].stop()
    daemons["ta"] = Daemon(write(folder, "ta", {}, addresses["ta"]))
    user = ServiceUser(alice(folder))
    daemons["csp"].stop()
    columns, _ = expected(folder, [1])
    with pytest.raises((PeerRefused, PeerUnreachable), match="csp"):
        user.predict({column.name: column for column in columns}, 1)
