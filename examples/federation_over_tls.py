"""A bank and a shop as separate processes that train over mutual TLS, driven from Python with `Federation`.

Each party has a certificate, a settings file and a folder of its own; only the messages of the protocol are exchanged.
Between real companies each party runs its commands on its own machine, and the certificates name those machines.

    python examples/federation_over_tls.py
"""

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

from veilboost import Federation, make_demo_data

JOB = """
name = "credit"
protocol = "lattice"  # the bank's gradients are encrypted
alignment = "ecdh"    # entity alignment by private set intersection: no party shows its ids
validation = 0.2      # the share of the common rows that measures the model

[parties.bank]
role = "active"

[parties.shop]
address = "{address}"

[training]
objective = "binary"
n_estimators = 10
max_depth = 3
max_bin = 32
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        with serving(folder / "shop") as address:
            (folder / "bank" / "credit.toml").write_text(JOB.format(address=address))
            federation = Federation(folder / "bank" / "credit.toml", folder / "bank" / "bank.toml")
            # None means that a party can take part: its policy allows the job, and its table fits. Nothing is spent.
            print("check:", federation.check().errors)
            done = federation.train(progress=False)
            print(f"trained {done.rounds} trees on {done.rows} common customers in {done.seconds:.1f} s")
            print(f"{done.metric} on the validation rows: {done.validation:.4f}")
            traffic = done.traffic["shop"]
            print(f"sent {traffic['bytes_sent'] / 1e6:.1f} MB, received {traffic['bytes_received'] / 1e6:.1f} MB")
        print("the bank's run folder:", ", ".join(sorted(path.name for path in federation.run.path.iterdir())))


def prepare(folder: Path) -> None:
    """Certificates, a table and a settings file for each party."""
    veilboost(folder, "certs", "init")
    for party, other in (("bank", "shop"), ("shop", "bank")):
        veilboost(folder, "certs", "issue", party)
        (folder / party).mkdir()
        pq.write_table(make_demo_data(2000)[party], folder / party / f"{party}.parquet")
        label = ("--label", "default") if party == "bank" else ()
        # The policy in each file names the peer and the protocol; a job outside of it is refused.
        policy = ("--peer", other, "--protocol", "lattice", "--allow-unprotected", "lattice")
        options = ("--certs", "../certs", "--id", "customer_id", "--listen", "127.0.0.1:0", *label, *policy)
        veilboost(folder / party, "init", "party", party, *options)


def veilboost(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "veilboost", *arguments], cwd=folder, check=True, capture_output=True)


@contextmanager
def serving(folder: Path):
    """Run a party's daemon; gives the address on which it listens."""
    command = [sys.executable, "-m", "veilboost", "party", "serve", "--config", f"{folder.name}.toml", "--json"]
    with (
        (folder / "daemon.log").open("w") as log,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log) as daemon,
    ):
        try:
            yield json.loads(daemon.stdout.readline())["address"]
        finally:
            daemon.terminate()


if __name__ == "__main__":
    main()
