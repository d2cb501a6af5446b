"""ELXGB between real processes: encryption beforehand, training, publishing, and many users while an owner is gone."""

from __future__ import annotations

import json
import threading

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from forked import Process
from parties import DEADLINE, free_port
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.messages import OpenService
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.secure_inference.client import ServiceClient
from veilboost.secure_inference.roles import ServiceUser
from veilboost.types import Column
from veilboost.wire.channel import Peers

ROWS, USERS = 120, 32
DAEMONS = ("ta", "csp", "shop", "bank")


class Street:
    """Four daemons and a user, each with its file."""

    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        init_authority(folder)
        self.ports = {name: free_port() for name in DAEMONS}
        rng = np.random.default_rng(5)
        self.values = rng.normal(size=(ROWS, 3)).astype(np.float32)
        label = (self.values.sum(axis=1) > 0).astype(np.int64)
        ids = [f"C{i:04d}" for i in range(ROWS)]
        pq.write_table(pa.table({"id": ids, "income": self.values[:, 0], "y": label}), folder / "bank.parquet")
        pq.write_table(
            pa.table({"id": ids, "spent": self.values[:, 1], "visits": self.values[:, 2]}), folder / "shop.parquet"
        )
        for name in (*DAEMONS, "alice"):
            issue(folder, name, ["localhost"])
            self._write(name)
        parties = "".join(
            f'[parties.{name}]\naddress = "127.0.0.1:{self.ports[name]}"\nrole = "{role}"\n'
            for name, role in (("shop", "passive"), ("ta", "authority"), ("csp", "csp"))
        )
        (folder / "job.toml").write_text(
            f'name = "credit"\nalignment = "hmac_csp"\nprotocol = "elxgb"\n[parties.bank]\nrole = "active"\n{parties}'
            '[training]\nobjective = "binary"\nn_estimators = 2\nmax_depth = 2\nmax_bin = 8\ncategories = "ordinal"\n'
            "[training.options]\nkey_bits = 512\nallow_insecure_key = true\n"
        )

    def _write(self, name):
        peers = "".join(
            f'[peers.{other}]\naddress = "127.0.0.1:{port}"\nconnect = "in"\n'
            for other, port in self.ports.items()
            if other != name
        )
        label = 'label = "y"\n' if name == "bank" else ""
        data = f'[data]\npath = "{name}.parquet"\nid = "id"\n{label}' if name in ("bank", "shop") else ""
        allowed = "\n".join(f'{other} = ["any"]' for other in (*DAEMONS, "alice") if other != name)
        serves = 'serve_users = ["bank"]\n' if name == "shop" else ""
        (self.folder / f"{name}.toml").write_text(
            f'name = "{name}"\nlisten = "127.0.0.1:{self.ports.get(name, 0)}"\nruns = "runs-{name}"\nn_jobs = 1\n'
            f'{peers}[certificates]\ncert = "{name}.crt"\nkey = "{name}.key"\nca = "ca.crt"\n{data}'
            "[limits]\nwait_seconds = 30\n"
            f'[policy]\nprotocols = ["elxgb"]\nallow_unprotected = ["elxgb"]\npredictions_per_day = 100\n{serves}'
            f"[policy.peers]\n{allowed}\n"
        )

    def spawn(self, *arguments):
        return Process(*arguments, folder=self.folder)

    def serve(self, *names):
        for name in names:
            self.running[name] = self.spawn("party", "serve", "--config", f"{name}.toml", "--json")
        told = {}
        for name in names:
            line = self.running[name].stdout.readline()
            assert line, self.running[name].communicate(timeout=DEADLINE)[1]
            told[name] = json.loads(line)
        return told

    def stop(self, name):
        process = self.running.pop(name)
        process.kill()
        process.communicate(timeout=DEADLINE)

    def answer(self, *arguments):
        process = self.spawn(*arguments, "--json")
        try:
            out, err = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
        assert process.returncode == 0, err
        return json.loads(out)

    def scores(self, rows):
        parts = {name: RunFolder(self.folder / f"runs-{name}" / "credit").load_share() for name in ("bank", "shop")}
        return 1 / (1 + np.exp(-join(parts).margins(self.columns(rows))[0]))

    def columns(self, rows):
        return [Column(name, self.values[rows, at]) for at, name in enumerate(("income", "spent", "visits"))]


@pytest.fixture
def street(tmp_path):
    street = Street(tmp_path)
    yield street
    for name in list(street.running):
        street.stop(name)


def test_from_preparation_to_many_users_with_an_owner_offline(street):
    told = street.serve("ta", "csp", "shop")
    assert told["shop"]["policy"]["serve_users"] == ["bank"]
    ready = {name: street.answer("prepare", "job.toml", "--config", f"{name}.toml") for name in ("bank", "shop")}
    assert ready["bank"]["encryption"]["encryptions"] == ready["bank"]["ids"]["rows"] == ROWS
    assert ready["shop"]["encryption"] is None
    files = [street.folder / made["file"] for each in ready.values() for made in each.values() if made]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    done = street.answer("train", "job.toml", "--config", "bank.toml")
    assert {"preparing ids", "aligning rows", "training"} <= set(done["seconds_by_stage"])
    assert done["ids"] == "hashed beforehand"
    assert RunFolder(street.folder / "runs-shop" / "credit").status["ids"] == "hashed beforehand"
    assert not any(file.exists() for file in files), "they are used once"
    published = street.answer(
        *("user", "publish", "--config", "bank.toml", "--run", "credit", "--authority", "ta", "--csp", "csp"),
        *("--scheme", "lattice"),
    )
    assert published["numbers"] == 3

    street.stop("shop")
    street.serve("bank")
    pc.write_csv(pa.table({c.name: c.values for c in street.columns([3, 9])}), street.folder / "me.csv")
    street.answer(
        *("user", "predict", "--config", "alice.toml", "--run", "credit", "--active", "bank", "--authority", "ta"),
        *("--data", "me.csv", "--out", "scores.parquet"),
    )
    written = pq.read_table(street.folder / "scores.parquet")["score"].to_numpy()
    np.testing.assert_array_equal(written, street.scores([3, 9]))

    found = np.zeros(USERS)
    client = ServiceClient(load_party(street.folder / "alice.toml"), OpenService("credit", "ta", ""))
    meeting = threading.Barrier(USERS)

    def ask(k):
        user = ServiceUser(Peers({"authority": client.channel("ta"), "active": client.channel("bank")}))
        own = {column.name: column for column in street.columns([k])}
        meeting.wait(DEADLINE)  # all at the same time
        found[k] = user.predict(own, 1)[0, 0]

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(USERS)]
    with client:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    np.testing.assert_array_equal(found, street.scores(range(USERS)))
