"""ELXGB's figures and tables: accuracy, seconds, traffic, inference, a load of users, and how well labels are guessed.

    python bench/elxgb.py [--parts accuracy,claim,seconds,published,inference,load,guess] [--sets default_credit,bank]
                          [--results FILE]

Four parties, 32 bins, rate 0.3, lambda 1, epsilon 10, delta 1e-4, clipping 0.5: the paper's Table 2. Seconds are of the
wall and of the processor, because a machine may have other things to do. What is too slow to be run whole (Paillier
with 2048 bits) is run on --rows rows (in `seconds`; `claim` takes all) or for --paillier-users users, and the result
says so; nothing is scaled up but where a key's name ends in `_scaled`. With --results every figure is kept as soon as
it is there, and a bench that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import among, arguments, as_matrix, hold_out, load, note, report, xgboost_parameters
from papers.elxgb.accuracy import accuracy as measured_accuracy
from papers.elxgb.guesses import PAPER_GUESSES, guesses
from papers.elxgb.setting import DELTA, PARTIES, SHORT_KEY, job
from secure_inference import load_of_users, served, timed
from secure_inference_load import load_over_tls
from veilboost.align.ids import Hashing, PreparedHashing, PreparedIds
from veilboost.config import TrainingConfig
from veilboost.crypto.csprng import Csprng
from veilboost.crypto.fingerprint import KEY_BYTES
from veilboost.crypto.paillier.keys import PreparedOwner, generate_key
from veilboost.data import PartyTable
from veilboost.party.simulation import simulate_training
from veilboost.types import AnyArray

SHAPES = [(f"T={t}", t, 3) for t in (2, 4, 6)] + [(f"D={d}", 5, d) for d in (2, 4, 6)]


class Kept:
    """Figures by name, in a file if there is one: what is there is not measured again."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.found: dict[str, Any] = json.loads(file.read_text()) if file is not None and file.exists() else {}

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        if name not in self.found:
            self.found[name] = measure()
            note(f"{name}: {json.dumps(self.found[name])}")
            if self._file is not None:
                written = self._file.with_suffix(".partial")
                written.write_text(json.dumps(self.found, indent=1))
                written.replace(self._file)
        return self.found[name]


# --- Figure 4 -----------------------------------------------------------------------------------------------------


def accuracy_of(table: PartyTable, config: TrainingConfig, protocol: str, seed: int) -> float:
    if protocol != "xgboost":
        return measured_accuracy(table, protocol, config, seed)["accuracy"]
    import xgboost

    train, test = hold_out(table.rows, seed=seed)
    matrix = as_matrix(table.columns)
    data = xgboost.DMatrix(matrix[train], table.label[train])
    model = xgboost.train(xgboost_parameters(config, 2, 2) | {"base_score": 0.5}, data, config.n_estimators)
    return float(np.mean((model.predict(xgboost.DMatrix(matrix[test])) > 0.5) == (table.label[test] == 1)))


def mean_accuracy(table: PartyTable, config: TrainingConfig, runs: int) -> dict[str, float]:
    plain = TrainingConfig(**{**config.to_dict(), "options": {}})
    found = {
        protocol: [accuracy_of(table, settings, protocol, seed) for seed in range(runs)]
        for protocol, settings in (("elxgb", config), ("xgboost", plain))
    }
    return {"runs": runs} | {name: round(float(np.mean(values)), 4) for name, values in found.items()}


def accuracy(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    cases = {f"T={t}": job(trees=t, backend="lattice") for t in range(2, 7)}
    cases |= {f"D={d}": job(depth=d, backend="lattice") for d in range(2, 7)}
    cases |= {f"epsilon={e}": job(backend="lattice", epsilon=float(e)) for e in range(2, 11, 2)}
    kept(f"{name} accuracy most frequent class", lambda: float(max(table.label.mean(), 1 - table.label.mean())))
    for case, config in cases.items():
        kept(f"{name} accuracy {case}", partial(mean_accuracy, table, config, options.runs))


# --- Figures 5 and 7 ----------------------------------------------------------------------------------------------


def training(table: PartyTable, protocol: str, config: TrainingConfig) -> dict[str, Any]:
    """Seconds and traffic. With `elxgb` ids are hashed before, and by Paillier the first tree's encryptions are made.

    `processor_seconds` are of training alone, offline and online: other protocols align no faster.
    """
    tables = among(table, PARTIES)
    owner = None
    offline: dict[str, dict[str, float]] = {}
    if protocol == "elxgb":
        offline["hashing ids, all parties"], _ = timed(lambda: [hashed(each.ids) for each in tables.values()])
        if config.options.get("backend", "paillier") == "paillier":
            offline["encrypting"], owner = timed(lambda: prepared(table.rows, config))
    encrypting = offline.get("encrypting", {}).get("processor_seconds", 0.0)
    online, run = timed(lambda: simulate_training(tables, "party0", protocol, config, threads=2, prepared=owner))
    return {
        "rows": table.rows,
        "offline": offline,
        "online": online,
        "processor_seconds": encrypting + online["processor_seconds"],
        "megabytes": run.bytes_sent / 1e6,
        "exchanges": run.rounds,
    }


def prepared(rows: int, config: TrainingConfig) -> PreparedOwner:
    bits, insecure = config.options.get("key_bits", 2048), config.options.get("allow_insecure_key", False)
    return PreparedOwner.prepare(generate_key(bits, Csprng(), insecure), rows, Csprng())


def hashed(ids: AnyArray) -> PreparedIds:
    """As `veilboost prepare` does it, with the paper's hash."""
    return PreparedIds.make(ids, Hashing().begin(ids), bytes(KEY_BYTES), "hmac-sha512")


def hashing(ids: AnyArray) -> dict[str, Any]:
    """One party's ids: hashed in advance, and checked again in the job."""
    offline, content = timed(lambda: hashed(ids).to_bytes())
    ready = PreparedHashing(PreparedIds.from_bytes(content), note)
    online, _ = timed(lambda: ready.begin(ids)(bytes(KEY_BYTES), "hmac-sha512"))
    return {"rows": len(ids), "offline": offline, "online": online}


def variants(key: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        "elxgb paillier": ("elxgb", key),
        "paillier (SecureBoost)": ("paillier", key),
        "elxgb lattice": ("elxgb", {"backend": "lattice"}),
        "plain": ("plain", {}),
    }


def by_shape(table: PartyTable, name: str, kept: Kept, key: dict[str, Any]) -> None:
    for shape, trees, depth in SHAPES:
        for variant, (protocol, options) in variants(key).items():
            kept(f"{name} {shape} {variant}", partial(training, table, protocol, job(trees, depth, **options)))


def claim(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    """T = 5, D = 3 with all training rows: how much faster the lattice is."""
    train = table.take(hold_out(table.rows)[0])
    for variant, (protocol, chosen) in (
        variants({}) | {f"{w}, 512": v for w, v in variants(SHORT_KEY).items()}
    ).items():
        if variant not in ("elxgb lattice, 512", "plain, 512"):
            kept(f"{name} claim {variant}", partial(training, train, protocol, job(**chosen)))
    kept(f"{name} claim hashing ids", lambda: hashing(train.ids))
    slow, fast = (
        kept.found[f"{name} claim elxgb {variant}"]["processor_seconds"] for variant in ("paillier", "lattice")
    )
    kept(f"{name} claim paillier over lattice", lambda: slow / fast)


def seconds(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    """At 2048 bits, on some of the rows."""
    few = table.take(hold_out(table.rows)[0][: options.rows])
    by_shape(few, f"{name} seconds, 2048 bits, {few.rows} rows,", kept, {})


def published(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    """At the paper's 512 bits, with all training rows."""
    train = table.take(hold_out(table.rows)[0])
    by_shape(train, f"{name} published, 512 bits, {train.rows} rows,", kept, SHORT_KEY)


# --- Figure 6 -----------------------------------------------------------------------------------------------------


def inference(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    """User, active party and CSP, with both encryptions."""
    totals: dict[str, float] = {}
    for scheme, users in (("lattice", options.users), ("paillier", options.paillier_users)):
        label = f"{name} inference {scheme}, {users} users"
        totals[scheme] = kept(label, partial(served, table, scheme, users))["processor_seconds_for_1000_scaled"]
    kept(f"{name} inference paillier over lattice, all roles", lambda: totals["paillier"] / totals["lattice"])


def load_test(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    kept(f"{name} load of 32 users at a time, in one process", lambda: load_of_users(table))
    kept(f"{name} load of 32 users at a time, over TLS", lambda: load_over_tls(table))


# --- Table 5 ------------------------------------------------------------------------------------------------------


def guess(table: PartyTable, name: str, kept: Kept, options: argparse.Namespace) -> None:
    for epsilon in PAPER_GUESSES:
        kept(f"{name} guess epsilon={epsilon:g}", partial(guessed, table, epsilon))


def guessed(table: PartyTable, epsilon: float) -> dict[str, Any]:
    """How often the sign of a tree's noisy gradient is that of its label; the first row as if tree 1 had noise."""
    found = guesses(table, epsilon, 0)
    return {
        "clip": 0.5,
        "delta": DELTA,
        "measured": [round(rate, 4) for rate in found["trees"]],
        "published": PAPER_GUESSES[epsilon],
        "later trees added up": round(found["together"], 4),
    }


PARTS: dict[str, Callable[[PartyTable, str, Kept, argparse.Namespace], None]] = {
    "accuracy": accuracy,
    "claim": claim,
    "seconds": seconds,
    "published": published,
    "inference": inference,
    "load": load_test,
    "guess": guess,
}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="parts, by commas")
    parser.add_argument("--sets", default="default_credit,bank", help="data sets, by commas")
    parser.add_argument("--runs", type=int, default=5, help="runs of the part `accuracy`, of which the mean counts")
    parser.add_argument("--rows", type=int, default=6000, help="rows of the part `seconds`")
    parser.add_argument("--users", type=int, default=1000, help="users of the part `inference`, with the lattice")
    parser.add_argument("--paillier-users", type=int, default=20, help="and with Paillier")
    parser.add_argument("--results", type=Path, help="file that keeps every figure, to go on with after a break")
    options = parser.parse_args()
    kept = Kept(options.results)
    for name in options.sets.split(","):
        if not (options.data / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {options.data}")
            continue
        table = load(options.data, name)
        for part in options.parts.split(","):
            PARTS[part](table, name, kept, options)
    report({"benchmark": "elxgb", "results": kept.found})


if __name__ == "__main__":
    main()
