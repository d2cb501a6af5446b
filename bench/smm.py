"""What FedXGBoost-SMM costs, the measurement that its paper left open: beside `plain`, `paillier` and `lattice`.

    python bench/smm.py --data DIR [--svg FILE]

Every line is measured in a process of its own, one thread: seconds per tree (of the clock; of the processor, with
binning), bytes and rounds per tree (depth 6, 32 bins, 2 parties), peak memory of all parties together. `datasets` also
says whether the model equals that of `plain`, in one process and over mutual TLS. A protocol that takes longer than
--patience seconds is noted as such and left out of larger runs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import among, arguments, hold_out, load, note, report
from papers.measure import cost_apart
from papers.tables import synthetic
from veilboost.config import TrainingConfig
from veilboost.data import PartyTable
from veilboost.model.joined import join
from veilboost.party.certs import init_authority, issue
from veilboost.party.daemon import Daemon
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.report.plots import line_chart, sheet
from veilboost.types import Column

PROTOCOLS = ("plain", "lattice", "paillier", "smm1", "smm2")
PARTS = ("rows", "options", "datasets", "give_credit")
DATASETS = ("default_credit", "adult", "bank")
TREES = 2


def config_of(options: dict[str, Any] | None = None, trees: int = TREES) -> TrainingConfig:
    return TrainingConfig(objective="binary", n_estimators=trees, max_depth=6, max_bin=32, options=options or {})


def measured(table: PartyTable, protocol: str, config: TrainingConfig, patience: float) -> dict[str, Any] | None:
    """One run in a process of its own, or None if it took too long."""
    try:
        found = cost_apart(among(table, 2), protocol, config, patience=patience)
    except (TimeoutError, RuntimeError) as error:
        note(f"{table.rows:7d} rows  {error}")
        return None
    note(f"{table.rows:7d} rows  {protocol:9s} {found.cpu_seconds_per_tree:8.3f} s/tree  {dict(config.options)}")
    return found.to_dict()


# --- the same model in one process and over TLS -----------------------------------------------------------


def _serve(file: Path, pipe: Any) -> None:
    daemon = Daemon(load_party(file))
    pipe.send(daemon.port)
    pipe.recv()
    daemon.stop()


def _write_party(folder: Path, party: str, table: PartyTable, protocol: str) -> None:
    columns = {"id": pa.array(table.ids), **{c.name: pa.array(_plain_values(c)) for c in table.columns}}
    if table.label is not None:
        columns["label"] = pa.array(table.label.astype(np.int64))
    pq.write_table(pa.table(columns), folder / f"{party}.parquet")
    (folder / f"{party}.toml").write_text(f"""
name = "{party}"
listen = "127.0.0.1:0"
runs = "runs-{party}"
n_jobs = 1
[certificates]
cert = "{party}.crt"
key = "{party}.key"
ca = "ca.crt"
[data]
path = "{party}.parquet"
id = "id"
{'label = "label"' if table.label is not None else ""}
[policy]
protocols = ["{protocol}"]
allow_unprotected = ["{protocol}"]
[policy.peers]
{"party1" if party == "party0" else "party0"} = ["any"]
""")


def _plain_values(column: Column) -> Any:
    if column.categories is None:
        return column.values
    names = np.array([*column.categories, None], dtype=object)
    return names[column.values]


@contextlib.contextmanager
def served(file: Path) -> Iterator[int]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(file, theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join()


def over_tls(table: PartyTable, protocol: str, config: TrainingConfig) -> dict[str, Any]:
    """The passive party in a process of its own, over mutual TLS."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        init_authority(folder)
        for party, part in among(table, 2).items():
            issue(folder, party, ["localhost"])
            _write_party(folder, party, part, protocol)
        with served(folder / "party1.toml") as port:
            (folder / "job.toml").write_text(f"""
name = "bench"
alignment = "prealigned"
protocol = "{protocol}"
[parties.party0]
role = "active"
[parties.party1]
address = "127.0.0.1:{port}"
[training]
objective = "binary"
n_estimators = {config.n_estimators}
max_depth = {config.max_depth}
max_bin = {config.max_bin}
""")
            with coordinate(load_party(folder / "party0.toml"), load_job(folder / "job.toml")) as driver:
                _, outcome = driver.train()
        parts = {party: RunFolder(folder / f"runs-{party}" / "bench").load_share() for party in ("party0", "party1")}
        return {
            "seconds_per_tree": float(np.mean([each.seconds for each in outcome.history])),
            "sha256": join(parts).sha256(),
        }


def datasets(folder: Path, protocols: list[str], patience: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in DATASETS:
        if not (folder / f"{name}.parquet").exists():
            note(f"skipped {name}: not in {folder}")
            continue
        table = load(folder, name)
        table = table.take(hold_out(table.rows)[0])
        lines = {protocol: measured(table, protocol, config_of(), patience) for protocol in protocols}
        expected = (lines.get("plain") or measured(table, "plain", config_of(), patience) or {})["sha256"]
        for protocol, line in lines.items():
            if line is not None:
                line["same_model_as_plain"] = line.pop("sha256") == expected
                if protocol.startswith("smm"):
                    line["tls"] = over_tls(table, protocol, config_of())
                    line["tls"]["same_model_as_plain"] = line["tls"].pop("sha256") == expected
        found[name] = {"rows": table.rows, "columns": len(table.columns), "protocols": lines}
    return found


def large(folder: Path, patience: float) -> dict[str, Any] | None:
    """give_credit, 120000 rows: the memory of all parties together."""
    if not (folder / "give_credit.parquet").exists():
        note(f"skipped give_credit: not in {folder}")
        return None
    table = load(folder, "give_credit")
    table = table.take(hold_out(table.rows)[0])
    return {protocol: measured(table, protocol, config_of(), patience) for protocol in ("plain", "smm1", "smm2")}


# --- what it grows with -----------------------------------------------------------------------------------


def by_rows(sizes: list[int], protocols: list[str], patience: float) -> dict[str, Any]:
    lines: dict[str, Any] = {}
    for protocol in protocols:
        lines[protocol] = {}
        for rows in sizes:
            line = measured(synthetic(rows), protocol, config_of(trees=1), patience)
            if line is None:
                break
            lines[protocol][rows] = line
    return lines


def by_options(rows: int, patience: float) -> dict[str, Any]:
    table = synthetic(rows)
    found: dict[str, Any] = {"rows": rows, "r": {}, "l1, l2": {}}
    for r in (1, 4, 16, 64, 256):
        options = {"r": r, "share": 0.1}
        found["r"][r] = {p: measured(table, p, config_of(options, 1), patience) for p in ("smm1", "smm2")}
    for l1, l2 in ((0, 0), (16, 32), (64, 128), (256, 512)):
        found["l1, l2"][f"{l1}, {l2}"] = measured(table, "smm2", config_of({"l1": l1, "l2": l2}, 1), patience)
    return found


# --- the picture ------------------------------------------------------------------------------------------

PANELS = {"cpu_seconds_per_tree": "processor seconds per tree", "megabytes_per_tree": "megabytes per tree"}


def draw(lines: dict[str, Any], path: Path) -> None:
    """Seconds and megabytes against rows, both axes logarithmic."""
    charts = []
    for field, title in PANELS.items():
        points = {p: [(rows, line[field]) for rows, line in sizes.items()] for p, sizes in lines.items()}
        charts.append(line_chart(title, "rows", title, points, log_x=True, log_y=True))
    path.write_text(sheet("What a tree costs", charts))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 3000, 10_000, 30_000, 100_000])
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="what to measure")
    parser.add_argument("--protocols", nargs="+", default=PROTOCOLS, choices=PROTOCOLS, help="beside which protocols")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds for one run, with its start")
    parser.add_argument("--svg", type=Path, help="draw seconds and megabytes against rows here")
    options = parser.parse_args()
    measures: dict[str, Callable[[], Any]] = {
        "rows": lambda: by_rows(options.rows, options.protocols, options.patience),
        "options": lambda: by_options(10_000, options.patience),
        "datasets": lambda: datasets(options.data, options.protocols, options.patience),
        "give_credit": lambda: large(options.data, options.patience),
    }
    result: dict[str, Any] = {"benchmark": "smm", **{part: measures[part]() for part in options.parts}}
    if options.svg is not None and "rows" in result:
        draw(result["rows"], options.svg)
    report(result)


if __name__ == "__main__":
    main()
