"""ELXGB's figures and tables: accuracy, seconds, traffic, inference, a load of users, and how well labels are guessed.

    python bench/elxgb.py [--parts accuracy,seconds,traffic,inference,load,guess] [--sets default_credit,bank]

Four parties, 32 bins, rate 0.3, lambda 1, epsilon 10, delta 1e-4, clipping 0.5: the paper's Table 2. Seconds are of the
wall and of the processor, because a machine may have other things to do. What is too slow to be run whole (Paillier
with 2048 bits) is run on --paillier-rows rows or --paillier-users users, and the result says so; nothing is scaled up
but where a key's name ends in `_scaled`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import veilboost.party.simulation as simulation_module
from common import among, arguments, as_matrix, hold_out, load, note, report, xgboost_parameters
from veilboost.boost.objective import make_objective
from veilboost.config import TrainingConfig
from veilboost.crypto.paillier.owner import Owner
from veilboost.data import PartyTable
from veilboost.infer.secure.attributes import attributes_of
from veilboost.infer.secure.memory import MemoryService
from veilboost.model.joined import join
from veilboost.party.elxgb_queue import QueuedModel
from veilboost.party.simulation import simulate_prediction, simulate_training
from veilboost.protocols.elxgb.messages import NoisyRound
from veilboost.wire.memory import MemoryChannel

PARTIES = 4
PAPER_TABLE_5 = {
    2: (0.6001, 0.5383, 0.5358, 0.5227, 0.5288),
    4: (0.6823, 0.5718, 0.5598, 0.5544, 0.5584),
    6: (0.7560, 0.5988, 0.5916, 0.5904, 0.5773),
    8: (0.8229, 0.6384, 0.6165, 0.6107, 0.6071),
    10: (0.8773, 0.6652, 0.6392, 0.6287, 0.6312),
}


def job(trees: int = 5, depth: int = 3, **options: Any) -> TrainingConfig:
    return TrainingConfig(
        objective="binary",
        n_estimators=trees,
        max_depth=depth,
        max_bin=32,
        learning_rate=0.3,
        categories="ordinal",
        base_score=0.5,
        options=options,
    )


def timed(run: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return {"seconds": time.perf_counter() - wall, "processor_seconds": time.process_time() - processor}, result


# --- Figure 4 -----------------------------------------------------------------------------------------------------


def accuracy_of(table: PartyTable, config: TrainingConfig, protocol: str, seed: int) -> float:
    train, test = hold_out(table.rows, seed=seed)
    if protocol == "xgboost":
        import xgboost

        matrix = as_matrix(table.columns)
        data = xgboost.DMatrix(matrix[train], table.label[train])
        model = xgboost.train(xgboost_parameters(config, 2, 2) | {"base_score": 0.5}, data, config.n_estimators)
        scores = model.predict(xgboost.DMatrix(matrix[test]))
    else:
        run = simulate_training(among(table.take(train), PARTIES), "party0", protocol, config, threads=2)
        scores = make_objective("binary").predict(join(run.parts).margins(table.take(test).columns))
    return float(np.mean((scores > 0.5) == (table.label[test] == 1)))


def accuracy(table: PartyTable, runs: int) -> dict[str, Any]:
    cases = {f"T={t}": job(trees=t, backend="lattice") for t in range(2, 7)}
    cases |= {f"D={d}": job(depth=d, backend="lattice") for d in range(2, 7)}
    cases |= {f"epsilon={e}": job(backend="lattice", epsilon=float(e)) for e in range(2, 11, 2)}
    found: dict[str, Any] = {"majority": float(max(table.label.mean(), 1 - table.label.mean())), "runs": runs}
    for name, config in cases.items():
        plain = TrainingConfig(**{**config.to_dict(), "options": {}})
        means = {"elxgb": np.mean([accuracy_of(table, config, "elxgb", seed) for seed in range(runs)])}
        if not name.startswith("epsilon") or name == "epsilon=2":
            means["xgboost"] = np.mean([accuracy_of(table, plain, "xgboost", seed) for seed in range(runs)])
        found[name] = {key: round(float(value), 4) for key, value in means.items()}
        note(f"accuracy {name}: {found[name]}")
    return found


# --- Figures 5 and 7 ----------------------------------------------------------------------------------------------


def seconds_of(table: PartyTable, protocol: str, config: TrainingConfig) -> dict[str, Any]:
    """Training whole, and of it the encryption of gradients, which may be done before (offline)."""
    encrypting = [0.0]
    original = Owner.encrypt

    def encrypt(self: Owner, *given: Any) -> list[int]:
        began = time.perf_counter()
        try:
            return original(self, *given)
        finally:
            encrypting[0] += time.perf_counter() - began

    Owner.encrypt = encrypt  # type: ignore[method-assign]
    try:
        took, run = timed(lambda: simulate_training(among(table, PARTIES), "party0", protocol, config, threads=2))
    finally:
        Owner.encrypt = original  # type: ignore[method-assign]
    offline = encrypting[0] if protocol == "elxgb" else 0.0  # later trees' gradients cannot be known before
    return took | {
        "offline_seconds": offline,
        "online_seconds": took["seconds"] - offline,
        "megabytes": run.bytes_sent / 1e6,
        "exchanges": run.rounds,
    }


def seconds(table: PartyTable, rows: int, short: bool) -> dict[str, Any]:
    few = table.take(hold_out(table.rows)[0][:rows])
    key = {"key_bits": 512, "allow_insecure_key": True} if short else {}
    found: dict[str, Any] = {"rows": few.rows, "key_bits": 512 if short else 2048}
    for name, trees, depth in [(f"T={t}", t, 3) for t in (2, 4, 6)] + [(f"D={d}", 5, d) for d in (2, 4)]:
        found[name] = {
            "elxgb paillier": seconds_of(few, "elxgb", job(trees, depth, **key)),
            "paillier": seconds_of(few, "paillier", job(trees, depth, **key)),
            "elxgb lattice": seconds_of(few, "elxgb", job(trees, depth, backend="lattice")),
            "plain": seconds_of(few, "plain", job(trees, depth)),
        }
        note(f"seconds {name}: { {k: round(v['processor_seconds'], 2) for k, v in found[name].items()} }")
    return found


def traffic(table: PartyTable) -> dict[str, Any]:
    """With all rows, at the lattice backend and at the paper's 512-bit keys."""
    found: dict[str, Any] = {}
    for name, trees, depth in [(f"T={t}", t, 3) for t in (2, 4, 6)] + [(f"D={d}", 5, d) for d in (2, 4)]:
        found[name] = {
            "elxgb lattice": seconds_of(table, "elxgb", job(trees, depth, backend="lattice"))["megabytes"],
            "lattice": seconds_of(table, "lattice", job(trees, depth))["megabytes"],
        }
        note(f"megabytes {name}: {found[name]}")
    return found


# --- Figure 6 -----------------------------------------------------------------------------------------------------


def service(table: PartyTable, scheme: str) -> tuple[MemoryService, dict[str, PartyTable], Any]:
    tables = among(table, PARTIES)
    run = simulate_training(tables, "party0", "elxgb", job(backend="lattice"), threads=2)
    attributes = {name: attributes_of(name, own.columns, "ordinal") for name, own in tables.items()}
    return MemoryService(run.parts, "party0", attributes, scheme=scheme), tables, run


def served(table: PartyTable, scheme: str, count: int) -> dict[str, Any]:
    """So many users, fifty to a queue."""
    ready, tables, run = service(table, scheme)
    rows = {name: own.take(np.arange(count)) for name, own in tables.items()}
    columns = {column.name: column for own in rows.values() for column in own.columns}
    user = ready.user()
    encrypting, query = timed(lambda: user._service.encrypt_rows(user.directory.rows_of(columns, count)))
    offline, online = ({"seconds": 0.0, "processor_seconds": 0.0} for _ in range(2))
    scores: list[np.ndarray] = []
    for low in range(0, count, 50):
        took, answer = prepared_and_served(ready, query[low : low + 50], scheme)
        for total, part in zip((offline, online), took, strict=True):
            for key in total:
                total[key] += part[key]
        scores.append(answer)
    expected = make_objective("binary").predict(simulate_prediction(run.parts, "party0", rows))
    sent = ready.transcripts["party0"].bytes_sent() + ready.transcripts["csp"].bytes_sent()
    return {
        "users": count,
        "M": ready.directory.size,
        "exact": bool(np.array_equal(np.concatenate(scores)[:, 0], expected)),
        "users_encrypt": encrypting,
        "offline": offline,
        "online": online,
        "online_processor_seconds_for_1000_scaled": online["processor_seconds"] * 1000 / count,
        "offline_processor_seconds_for_1000_scaled": offline["processor_seconds"] * 1000 / count,
        "megabytes_of_active_and_csp_per_user": sent / count / 1e6,
    }


def prepared_and_served(ready: MemoryService, batch: np.ndarray, scheme: str) -> tuple[tuple[Any, Any], np.ndarray]:
    """What may be done before the users come, and what must wait for them."""
    before: Any = {"seconds": 0.0, "processor_seconds": 0.0}
    if scheme == "lattice":
        before, _ = timed(lambda: ready.model._service.prepare(5 * 3 * len(batch)))
    during, answer = timed(lambda: ready.model.predict([batch])[0])
    return (before, during), answer


def inference(table: PartyTable, users: int, paillier_users: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for scheme, count in (("lattice", users), ("paillier", paillier_users)):
        found[scheme] = served(table, scheme, count)
        note(f"inference {scheme}: {found[scheme]}")
    fast, slow = (found[name]["online_processor_seconds_for_1000_scaled"] for name in ("lattice", "paillier"))
    found["paillier_over_lattice_online"] = slow / fast
    found["paillier_over_lattice_all"] = slow / (fast + found["lattice"]["offline_processor_seconds_for_1000_scaled"])
    return found


def load_of_users(table: PartyTable, at_once: int = 32) -> dict[str, Any]:
    """So many users at a time, each with one row, against the queue of the active party's service."""
    ready, tables, _ = service(table, "lattice")
    columns = {column.name: column.take(np.arange(at_once)) for own in tables.values() for column in own.columns}
    user = ready.user()
    queries = user._service.encrypt_rows(user.directory.rows_of(columns, at_once))
    queued = QueuedModel(ready.model)
    waited = [0.0] * at_once

    def ask(k: int) -> None:
        began = time.perf_counter()
        queued.predict(queries[k : k + 1])
        waited[k] = time.perf_counter() - began

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(at_once)]
    took, _ = timed(lambda: [*(t.start() for t in threads), *(t.join() for t in threads)])
    return took | {"users": at_once, "batches": queued.batches, "longest_wait": max(waited)}


# --- Table 5 ------------------------------------------------------------------------------------------------------


def guesses(table: PartyTable) -> dict[str, Any]:
    """How often the sign of a tree's noisy gradient is that of its label; the first row as if tree 1 had noise."""
    found: dict[str, Any] = {}
    train = table.take(hold_out(table.rows)[0])
    positive = train.label == 1
    for epsilon, published in PAPER_TABLE_5.items():
        by_paper = math.sqrt(2 * math.log(1.25 / 1e-4)) / epsilon  # the paper's sigma, over a range of 1
        heard: list[NoisyRound] = []

        class Listening(MemoryChannel):
            def send(self, message: Any, heard: list[NoisyRound] = heard) -> Any:
                if isinstance(message, NoisyRound):
                    heard.append(message)
                return super().send(message)

        simulation_module.MemoryChannel = Listening  # type: ignore[misc]
        config = job(trees=5, backend="lattice", noise_multiplier=by_paper)
        simulate_training(among(train, PARTIES), "party0", "elxgb", config, threads=2)
        simulation_module.MemoryChannel = MemoryChannel  # type: ignore[misc]
        noise = np.random.default_rng(epsilon).normal(scale=by_paper, size=len(positive))
        trees = [np.where(positive, -0.5, 0.5) + noise]
        trees += [message.gradients[0, :, 0].astype(float) for message in heard[:: PARTIES - 1]]
        rates = [float(np.mean((g < 0) == positive)) for g in trees]
        together = sum(trees[1:])
        found[f"epsilon={epsilon}"] = {
            "measured": [round(rate, 4) for rate in rates],
            "published": published,
            "later trees added up": round(float(np.mean((together < 0) == positive)), 4),
        }
        note(f"guess epsilon={epsilon}: {found[f'epsilon={epsilon}']}")
    return found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parts", default="accuracy,seconds,traffic,inference,load,guess", help="parts, by commas")
    parser.add_argument("--sets", default="default_credit,bank", help="data sets, by commas")
    parser.add_argument("--paillier-rows", type=int, default=24_000, help="rows of the part `seconds`")
    parser.add_argument("--short-keys", action="store_true", help="512-bit keys, as published, in `seconds`")
    parser.add_argument("--users", type=int, default=1000, help="users of the part `inference`")
    parser.add_argument("--paillier-users", type=int, default=20, help="of them, with Paillier")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "elxgb"}
    for name in options.sets.split(","):
        if not (options.data / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {options.data}")
            continue
        table = load(options.data, name)
        parts: dict[str, Callable[[], Any]] = {
            "accuracy": lambda table=table: accuracy(table, options.repeats),
            "seconds": lambda table=table: seconds(table, options.paillier_rows, options.short_keys),
            "traffic": lambda table=table: traffic(table),
            "inference": lambda table=table: inference(table, options.users, options.paillier_users),
            "load": lambda table=table: load_of_users(table),
            "guess": lambda table=table: guesses(table),
        }
        result[name] = {part: parts[part]() for part in options.parts.split(",")}
    report(result)


if __name__ == "__main__":
    main()
