"""What encryption costs: `lattice` beside `paillier`, and beside what others encrypt with, all in one run.

    python bench/encryption.py --data DIR [--identity] [--heu PYTHON] [--fedtree PYTHON] [--secretflow PYTHON]
                               [--xgboost PYTHON] [--prototype DIR] [--markdown PAGE]

default_credit, two parties (11 columns and the labels; 12 columns), depth 6, 32 bins. CPU seconds are those of all
parties together with one thread each, wall seconds those of a run with two threads. Each PYTHON is an interpreter that
has the peer installed (the scripts in `bench/peers` say what); a peer without one is skipped. --markdown writes the
table of figures into a page between its marks.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from common import among, arguments, as_matrix, hold_out, load, note, report
from encryption_claims import claims, markdown
from exchange import kernel, recorded_exchange
from paillier_units import counting, unit_costs
from prototype import Prototype, made_up_levels
from veilboost._native import lattice_engines
from veilboost.config import TrainingConfig
from veilboost.crypto.lattice.keys import ENGINE_VARIABLE
from veilboost.data import PartyTable
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.simulation import simulate_training
from wire import training as train_over_tls

PEERS = Path(__file__).parent / "peers"
ACTIVE_COLUMNS = 11  # of 23: the passive party has the larger half
SETS = {"adult": "binary", "bank": "binary", "default_credit": "binary", "dry_bean": "multiclass"}
KERNEL_ROWS, KERNEL_FEATURES, KERNEL_BINS, KERNEL_RUN = 24000, 12, 32, 512


def halves(table: PartyTable) -> dict[str, PartyTable]:
    active = replace(table, columns=table.columns[:ACTIVE_COLUMNS])
    return {"active": active, "passive": PartyTable(table.ids, table.columns[ACTIVE_COLUMNS:])}


@contextmanager
def engine(name: str) -> Iterator[None]:
    before = os.environ.get(ENGINE_VARIABLE)
    os.environ[ENGINE_VARIABLE] = name
    try:
        yield
    finally:
        del os.environ[ENGINE_VARIABLE]
        if before is not None:
            os.environ[ENGINE_VARIABLE] = before


def per_tree(tables: Mapping[str, PartyTable], protocol: str, config: TrainingConfig, threads: int) -> dict[str, float]:
    """CPU and wall seconds per tree after the first, which has keys and bins in it, and megabytes of all trees."""
    stamps: list[tuple[float, float]] = []
    run = simulate_training(
        tables,
        "active",
        protocol,
        config,
        threads=threads,
        watcher=lambda _: stamps.append((time.process_time(), time.perf_counter())),
    )
    cpu, wall = (np.array(stamps[-1]) - np.array(stamps[0])) / (len(stamps) - 1)
    sent = {name: transcript.bytes_sent() / config.n_estimators / 1e6 for name, transcript in run.transcripts.items()}
    return {
        "cpu_seconds": float(cpu),
        "wall_seconds": float(wall),
        "megabytes": sum(sent.values()),
        "megabytes_to_passive": sent["active"],
    }


def best_per_tree(
    tables: Mapping[str, PartyTable], protocol: str, config: TrainingConfig, threads: int, repeats: int
) -> dict[str, float]:
    runs = [per_tree(tables, protocol, config, threads) for _ in range(repeats)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def lattice(tables: Mapping[str, PartyTable], config: TrainingConfig, repeats: int) -> dict[str, Any]:
    result = {}
    for name in ("auto", *(n for n in ("avx2",) if n in lattice_engines())):
        with engine(name):
            one = best_per_tree(tables, "lattice", config, 1, repeats)
            two = best_per_tree(tables, "lattice", config, 2, repeats)
        result[name] = {
            "cpu_seconds_per_tree": one["cpu_seconds"],
            "seconds_per_tree_one_thread": one["wall_seconds"],
            "seconds_per_tree_two_threads": two["wall_seconds"],
            "megabytes_per_tree": one["megabytes"],
            "megabytes_per_tree_to_passive": one["megabytes_to_passive"],
        }
        note(f"lattice, engine {name}: {one['cpu_seconds']:.3f} CPU s, {two['wall_seconds']:.3f} s with two threads")
    return {"engines": lattice_engines(), **result}


def paillier(tables: Mapping[str, PartyTable], config: TrainingConfig, key_bits: int, repeats: int) -> dict[str, Any]:
    """A tree beside the sum of its operations at their unit costs."""
    job = replace(config, options={"key_bits": key_bits, "allow_insecure_key": key_bits < 2048})
    counts: Counter[str] = Counter()
    counting(counts)
    cost = per_tree(tables, "paillier", job, 1)
    rows = tables["active"].rows
    asked = {name: count / job.n_estimators for name, count in counts.items()}
    units = unit_costs(key_bits, rows, 100, repeats)
    parts = {
        "encrypt": rows * units["encrypt_us"] / 1e6,
        "add": asked["additions"] * units["add_us"] / 1e6,
        "compress": asked["bins"] * units["compress_step_us"] / 1e6,
        "decrypt": asked["packages"] * units["decrypt_us"] / 1e6,
    }
    note(f"paillier {key_bits}: {cost['cpu_seconds']:.2f} CPU s, sum of its units {sum(parts.values()):.2f}")
    return {
        "key_bits": key_bits,
        "cpu_seconds_per_tree": cost["cpu_seconds"],
        "megabytes_per_tree": cost["megabytes"],
        "units": units,
        "sum_of_units": parts | {"all": sum(parts.values())},
    }


def identity(folder: Path, quick: bool) -> dict[str, Any]:
    """The models of `plain`, `lattice` and `paillier`; the key's size does not matter to them, so a small one does."""
    found: dict[str, Any] = {}
    for name, objective in SETS.items():
        if not (folder / f"{name}.parquet").exists():
            note(f"skipped identity on {name}: not in {folder}")
            continue
        table = load(folder, name)
        table = table.take(hold_out(table.rows)[0][:: 6 if quick else 1])
        trees = 2 if quick else 10
        config = TrainingConfig(objective=objective, n_estimators=trees, max_depth=6, max_bin=32)
        few = replace(config, n_estimators=2, max_depth=4)
        small = replace(few, options={"key_bits": 1024, "allow_insecure_key": True})

        def model(protocol: str, job: TrainingConfig, table: PartyTable = table) -> str:
            return join(simulate_training(among(table, 2), "party0", protocol, job, threads=2).shares).sha256()

        def tls(
            protocol: str,
            trees: int,
            options: Any,
            name: str = name,
            objective: str = objective,
            own: int = len(table.columns) // 2,
        ) -> bool:
            done = over_tls(folder, trees, 2, protocol, own, name=name, objective=objective, options=options)
            return done["same_as_plain"]

        found[name] = {
            "model_sha256": model("plain", config),
            "lattice": model("lattice", config) == model("plain", config),
            "paillier": model("paillier", small) == model("plain", few),
            "lattice_tls": tls("lattice", 3, {}),
            "paillier_tls": tls("paillier", 1, small.options),
        }
        note(f"{name}: {found[name]}")
    return found


def kernels(prototype: Prototype | None, repeats: int, rows: int) -> dict[str, Any]:
    """One node of the size that the prototype was written for."""
    rng = np.random.default_rng(1)
    pairs = np.stack([rng.integers(-(2**20), 2**20 + 1, rows), rng.integers(0, 2**18 + 1, rows)], axis=1)
    bins = rng.integers(0, KERNEL_BINS, (KERNEL_FEATURES, rows)).astype(np.uint8)
    names = ("auto", *(name for name in ("avx2",) if name in lattice_engines()))
    result: dict[str, Any] = {name: kernel(pairs, bins, KERNEL_BINS, KERNEL_RUN, name, repeats) for name in names}
    if prototype is not None:
        runs = [prototype.exchange(pairs, bins, KERNEL_BINS, KERNEL_RUN) for _ in range(repeats)]
        best = {step: min(run[step] for run in runs) * 1e3 for step in runs[0]}
        result["prototype"] = {**best, "all": sum(best.values())}
    return result


def prototype_tree(prototype: Prototype, depth: int, repeats: int, rows: int) -> float:
    """Least CPU seconds of the exchanges of a made-up tree."""
    rng = np.random.default_rng(2)
    pairs = np.stack([rng.integers(-(2**20), 2**20 + 1, rows), rng.integers(0, 2**18 + 1, rows)], axis=1)
    bins = rng.integers(0, KERNEL_BINS, (KERNEL_FEATURES, rows)).astype(np.uint8)
    levels = made_up_levels(rows, depth, rng)
    return sum(min(prototype.nodes(pairs, bins, KERNEL_BINS, nodes) for _ in range(repeats)) for nodes in levels)


def over_tls(
    data: Path, trees: int, threads: int, protocol: str = "lattice", own: int = ACTIVE_COLUMNS, **job: Any
) -> dict[str, Any]:
    """The active party in this process, the passive one in its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        init_authority(folder)
        for party in ("bank", "shop"):
            issue(folder, party, ["localhost"])
        return train_over_tls(folder, data, trees, protocol, own, threads, **job)


def peer(name: str, python: str | None, script: str, *given: object, timeout: float = 3600) -> dict[str, Any] | None:
    """What a peer's script found in its own interpreter; None, with a message, where it cannot run."""
    if python is None:
        note(f"skipped {name}: no interpreter given that has it (see bench/peers/{script})")
        return None
    command = [python, str(PEERS / script), *map(str, given)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except (OSError, subprocess.TimeoutExpired) as error:
        note(f"skipped {name}: {error}")
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        note(f"skipped {name}: {(done.stderr.strip().splitlines() or ['no result'])[-1]}")
        return None
    found = json.loads(lines[-1].removeprefix("RESULT "))
    note(f"{name}: {found}")
    return found


def peers(choice: Any, train: PartyTable, test: PartyTable, config: TrainingConfig) -> dict[str, Any]:
    """The peers: the same rows and columns, the same depth and bins."""
    common = {**config.to_dict(), "active_columns": ACTIVE_COLUMNS, "key_bits": choice.key_bits}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, table in (("train", train), ("test", test)):
            np.savez(folder / part, x=as_matrix(table.columns), y=table.label.astype(np.float32))
        recorded_exchange(halves(train), "active", config).save(folder / "exchange.npz")
        (folder / "fedtree.json").write_text(
            json.dumps({**common, "trees": 2, "few_trees": 1, "repeats": 1, "warm_up": False, "privacy": "he"})
        )
        (folder / "secretflow.json").write_text(json.dumps({**common, "trees": 3}))
        (folder / "xgboost.json").write_text(json.dumps({**common, "trees": 30}))
        rows = (folder / "train.npz", folder / "test.npz")
        repeats = min(choice.repeats, 2)
        return {
            "heu_ou": peer("sf-heu", choice.heu, "heu_ou.py", folder / "exchange.npz", choice.key_bits, repeats),
            "fedtree_he": peer(
                "FedTree with encryption", choice.fedtree, "fedtree_fit.py", *rows, folder / "fedtree.json"
            ),
            "secretflow_sgb": peer(
                "SecretFlow SGB", choice.secretflow, "secretflow_fit.py", *rows, folder / "secretflow.json"
            ),
            "xgboost_federated": peer(
                "XGBoost federated", choice.xgboost, "xgboost_federated.py", *rows, folder / "xgboost.json"
            ),
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, default=20, help="trees of each measurement of lattice")
    parser.add_argument("--paillier-trees", type=int, default=2, help="trees of paillier; 0 to leave it out")
    parser.add_argument("--key-bits", type=int, default=2048, help="of paillier and of the peers that have a choice")
    parser.add_argument("--identity", action="store_true", help="compare models with plain's on four data sets")
    for name, what in (
        ("heu", "sf-heu"),
        ("fedtree", "fedtree"),
        ("secretflow", "secretflow"),
        ("xgboost", "the full xgboost 3.2 wheel"),
    ):
        parser.add_argument(f"--{name}", metavar="PYTHON", help=f"a Python with {what}")
    parser.add_argument("--prototype", metavar="DIR", type=Path, help="another kernel of the same scheme, in C++")
    parser.add_argument("--markdown", metavar="PAGE", type=Path, help="write the figures into this page")
    parser.add_argument("--quick", action="store_true", help="few rows, trees and levels: to see that all of it runs")
    choice = parser.parse_args()
    if not (choice.data / "default_credit.parquet").exists():
        parser.error(f"default_credit.parquet is not in {choice.data}")
    rows, depth = KERNEL_ROWS, 6
    table = load(choice.data, "default_credit")
    fit, held = hold_out(table.rows)
    if choice.quick:
        rows, depth = 3000, 4
        fit, choice.trees, choice.repeats = fit[:rows], 3, 1
    train, test = table.take(fit), table.take(held)
    config = TrainingConfig(objective="binary", n_estimators=choice.trees, max_depth=depth, max_bin=32)
    result: dict[str, Any] = {
        "benchmark": "encryption",
        "settings": {"rows": len(fit), "depth": depth, "bins": 32, "trees": choice.trees, "quick": choice.quick},
        "lattice": lattice(halves(train), config, choice.repeats),
    }
    kernel_of_others = None
    if choice.prototype is None:
        note("skipped the prototype: no --prototype DIR given")
    else:
        kernel_of_others = Prototype(choice.prototype)
        result["prototype_cpu_seconds_per_tree"] = prototype_tree(kernel_of_others, depth, choice.repeats, rows)
    result["kernel_cpu_ms"] = kernels(kernel_of_others, max(choice.repeats, 3), rows)
    result["lattice_tls"] = {
        f"threads_{threads}": over_tls(choice.data, max(choice.trees, 3), threads) for threads in (1, 2)
    }
    result |= peers(choice, train, test, config)
    if choice.paillier_trees:
        few = replace(config, n_estimators=1 + choice.paillier_trees)
        result["paillier"] = paillier(halves(train), few, choice.key_bits, choice.repeats)
    if choice.identity:
        result["identity"] = identity(choice.data, choice.quick)
    result["claims"] = claims(result)
    if choice.markdown is not None:
        markdown(result, choice.markdown)
    report(result)


if __name__ == "__main__":
    main()
