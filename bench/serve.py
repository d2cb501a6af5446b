"""Scores over HTTP: latency, throughput, memory, and a passive party that is killed, next to stand-alone XGBoost.

    python bench/serve.py [--requests 2000] [--clients 8] [--rows 100] [--repeats 3] [--table 100000]
                          [--memory [REQUESTS]] [--kill [SECONDS]] [--markdown PAGE]

Three parties with ten columns each as processes: the service of the bank, the daemons of shop and telecom. All
connections are TLS on loopback: mutual between the parties, and HTTPS to the clients. XGBoost runs behind FastAPI in
another process; its requests have all thirty columns. Clients are threads of this process. Each keeps one connection
and sends the next request when it has the answer. Every score is compared with the joined model.

`single`: one client, one row in a request. `batch`: CLIENTS clients, ROWS rows in a request. The two services take
turns; the figures are those of the repeat with the median p50. CPU seconds are those of the service and the daemons.
`--memory` sends that many requests of one row and reports the resident memory of all processes on the way.
`--kill` sends requests for so many seconds, kills the shop with SIGKILL after a third and starts it again 2 s later.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xgboost as xgb
from sklearn.datasets import make_classification

from against_worker import process_seconds
from blocks import replace_block, table
from common import machine, note, report, today
from settings import write_settings
from veilboost.boost.objective import make_objective
from veilboost.data.load import load_table
from veilboost.model.joined import join
from veilboost.party.runs import RunFolder
from veilboost.types import Float64Array

PARTIES = ("bank", "shop", "telecom")
COLUMNS = 10  # of each party
TRAINING = {"objective": "binary", "n_estimators": 100, "max_depth": 6, "max_bin": 64, "learning_rate": 0.1}
COMMAND = str(Path(sys.executable).parent / "veilboost")
START_SECONDS = 120.0
DOWN_SECONDS = 2.0
SAMPLES = 20  # of memory


# --- services -------------------------------------------------------------------------------------------------


@dataclass
class Service:
    """A running service: where it is, its processes, and the rows and scores that requests and answers must have."""

    name: str
    url: str
    processes: dict[str, subprocess.Popen[str]]
    rows: list[str]  # as JSON
    scores: Float64Array

    def body(self, positions: Sequence[int]) -> bytes:
        return f'{{"rows": [{", ".join(self.rows[at] for at in positions)}]}}'.encode()

    def cpu_seconds(self) -> float:
        return sum(process_seconds(process.pid) for process in self.processes.values())

    def megabytes(self) -> dict[str, float]:
        """Resident memory of each process."""
        return {name: _resident(process.pid) for name, process in self.processes.items()}


def _resident(pid: int) -> float:
    found = re.search(r"^VmRSS:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) / 1e3


class Town:
    """The files of three parties in a folder, and their processes."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        values, label = make_classification(rows, len(PARTIES) * COLUMNS, n_informative=20, random_state=0)
        self.values = values.astype(np.float32)
        self.names = [f"{party}_{k}" for party in PARTIES for k in range(COLUMNS)]
        self.ids = [f"C{at:07d}" for at in range(rows)]
        self.label = label
        self._run("certs", "init", "--folder", "certs")
        for party in PARTIES:
            self._run("certs", "issue", party, "--folder", "certs")
            own = [at for at, name in enumerate(self.names) if name.startswith(party)]
            columns = {"id": self.ids, **{self.names[at]: self.values[:, at] for at in own}}
            pq.write_table(
                pa.table(columns | ({"label": label} if party == "bank" else {})), folder / f"{party}.parquet"
            )
            self._settle(party)

    def _settle(self, party: str, listen: str = "127.0.0.1:0") -> None:
        limits = {"predictions_per_day": 10**9, "lookups_per_day": 10**9}
        write_settings(self.folder, party, PARTIES, ["plain"], listen=listen, deploy_to=["bank"], **limits)

    def _run(self, *words: str) -> None:
        subprocess.run([COMMAND, *words], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def start(self, name: str, words: Sequence[str], listens: str) -> str:
        """Start a process and wait until it has written where it listens."""
        log = self.folder / f"{name}.log"
        with log.open("w") as out:
            self.processes[name] = subprocess.Popen(words, cwd=self.folder, stdout=out, stderr=out, text=True)
        end = time.monotonic() + START_SECONDS
        while not (found := re.search(listens, log.read_text())):
            if self.processes[name].poll() is not None or time.monotonic() > end:
                sys.exit(f"{name} did not start:\n{log.read_text()}")
            time.sleep(0.05)
        return found[1]

    def serve(self, party: str) -> str:
        """Start a daemon, which keeps its address if it is started again."""
        words = [COMMAND, "party", "serve", "--config", f"{party}.toml", "--json"]
        address = self.start(party, words, r'"address": "([^"]+)"')
        self._settle(party, address)
        return address

    def deploy(self) -> Service:
        """Train, deploy, and serve the model."""
        addresses = {party: self.serve(party) for party in PARTIES[1:]}
        parties = "".join(f'[parties.{party}]\naddress = "{address}"\n' for party, address in addresses.items())
        training = "\n".join(f"{key} = {json.dumps(value)}" for key, value in TRAINING.items())
        (self.folder / "job.toml").write_text(
            f'name = "credit"\nprotocol = "plain"\nalignment = "prealigned"\n[parties.bank]\nrole = "active"\n{parties}'
            f"[training]\n{training}\n"
        )
        note("training")
        self._run("train", "job.toml", "--config", "bank.toml", "--json")
        note("deploying")
        self._run("deploy", "runs-bank/credit", "--config", "bank.toml", "--json")
        words = [COMMAND, "serve", "runs-bank/credit", "--config", "bank.toml", "--listen", "127.0.0.1:0", "--quiet"]
        tls = ["--tls-cert", "certs/bank.crt", "--tls-key", "certs/bank.key", "--max-per-minute", str(10**9)]
        url = self.start("service", [*words, *tls], r"serving credit on (\S+)")
        return Service("veilboost", url, self._among("service", *PARTIES[1:]), self._rows("bank"), self._joined())

    def xgboost(self) -> Service:
        """Train XGBoost on the columns of all parties, and serve it."""
        data = xgb.DMatrix(self.values, self.label, feature_names=self.names)
        learning = {key: value for key, value in TRAINING.items() if key not in ("objective", "n_estimators")}
        booster = xgb.train({**learning, "objective": "binary:logistic", "nthread": 1}, data, TRAINING["n_estimators"])
        booster.save_model(self.folder / "xgboost.json")
        words = [sys.executable, str(Path(__file__).with_name("serve_xgboost.py")), "xgboost.json"]
        url = self.start("xgboost", [*words, "certs/bank.crt", "certs/bank.key"], r"(https://\S+)")
        scores = booster.predict(data).astype(np.float64)
        return Service("xgboost", url, self._among("xgboost"), self._rows(""), scores)

    def _among(self, *names: str) -> dict[str, subprocess.Popen[str]]:
        return {name: self.processes[name] for name in names}

    def _rows(self, owner: str) -> list[str]:
        """Each row as JSON, with the columns of this owner."""
        own = [at for at, name in enumerate(self.names) if name.startswith(owner)]
        names = ["id", *(self.names[at] for at in own)]
        columns = [self.ids, *(self.values[:, at].tolist() for at in own)]
        return [json.dumps(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]

    def _joined(self) -> Float64Array:
        """The scores that the shares of all parties give in one process."""
        columns = [
            column
            for party in PARTIES
            for column in load_table(
                self.folder / f"{party}.parquet", id="id", label="label" if party == "bank" else None
            ).columns
        ]
        shares = {party: RunFolder.open(self.folder / f"runs-{party}", "credit").load_share() for party in PARTIES}
        return make_objective("binary").predict(join(shares).margins(columns))

    def close(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()


@contextmanager
def town(rows: int) -> Iterator[Town]:
    with tempfile.TemporaryDirectory(prefix="serve-") as name:
        made = Town(Path(name), rows)
        try:
            yield made
        finally:
            made.close()


# --- clients --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    began: float
    seconds: float
    outcome: str  # "ok", "wrong score", or the status and the code of a refusal


class Client:
    """One connection, kept open. Asks for random rows and compares the scores."""

    def __init__(self, service: Service, rows: int, seed: int) -> None:
        self._service, self._rows, self._random = service, rows, np.random.default_rng(seed)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the certificates are made for this run
        self._connection = http.client.HTTPSConnection(
            service.url.removeprefix("https://"), context=context, timeout=60
        )

    def ask(self) -> Answer:
        positions = self._random.choice(len(self._service.rows), self._rows, replace=False)
        body = self._service.body(positions)
        began = time.perf_counter()
        self._connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        content = response.read()
        seconds = time.perf_counter() - began
        answer = json.loads(content)
        if response.status != 200:
            return Answer(began, seconds, f"{response.status} {answer.get('code')}")
        scores = np.array([each["score"] for each in answer["predictions"]])
        right = np.allclose(scores, self._service.scores[positions], rtol=0, atol=self.tolerance)
        return Answer(began, seconds, "ok" if right else "wrong score")

    @property
    def tolerance(self) -> float:
        """XGBoost predicts in float32; a joint score equals the joined model's in every bit."""
        return 1e-6 if self._service.name == "xgboost" else 0.0

    def close(self) -> None:
        self._connection.close()


def load(service: Service, clients: int, rows: int, more: Callable[[], bool]) -> list[Answer]:
    """Clients that send requests as long as `more` is true, each after the answer to the last."""
    found: list[Answer] = []
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        client = Client(service, rows, seed)
        try:
            while more():
                found.append(client.ask())
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            client.close()

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return found


def times(requests: int) -> Callable[[], bool]:
    """True so many times, from any thread."""
    left = itertools.count()
    return lambda: next(left) < requests


# --- measurements ---------------------------------------------------------------------------------------------


def measure(service: Service, clients: int, rows: int, requests: int) -> dict[str, float]:
    cpu, began = service.cpu_seconds(), time.perf_counter()
    answers = load(service, clients, rows, times(requests))
    wall = time.perf_counter() - began
    outcomes = Counter(answer.outcome for answer in answers)
    if outcomes != {"ok": requests}:
        sys.exit(f"{service.name}: {dict(outcomes)}")
    milliseconds = [1e3 * answer.seconds for answer in answers]
    return {
        "p50_ms": float(np.percentile(milliseconds, 50)),
        "p99_ms": float(np.percentile(milliseconds, 99)),
        "rows_per_second": requests * rows / wall,
        "cpu_ms_per_request": 1e3 * (service.cpu_seconds() - cpu) / requests,
    }


def speed(services: Sequence[Service], options: argparse.Namespace) -> list[dict[str, Any]]:
    cells = {
        "single": (1, 1, options.requests),
        "batch": (options.clients, options.rows, max(50, options.requests // 10)),
    }
    found: list[dict[str, Any]] = []
    for load_name, (clients, rows, requests) in cells.items():
        repeats: dict[str, list[dict[str, float]]] = {service.name: [] for service in services}
        for _ in range(options.repeats):
            for service in services:
                repeats[service.name].append(measure(service, clients, rows, requests))
        for name, values in repeats.items():
            middle = sorted(values, key=lambda value: value["p50_ms"])[len(values) // 2]
            shape = {"service": name, "load": load_name, "clients": clients, "rows": rows, "requests": requests}
            found.append(shape | middle)
            note(json.dumps(found[-1]))
    return found


def memory(service: Service, clients: int, requests: int) -> dict[str, Any]:
    """Resident memory before, and after each part of the requests."""
    part = max(1, requests // SAMPLES)
    samples = [service.megabytes()]
    for _ in range(SAMPLES):
        outcomes = Counter(answer.outcome for answer in load(service, clients, 1, times(part)))
        if outcomes != {"ok": part}:
            sys.exit(f"{service.name}: {dict(outcomes)}")
        samples.append(service.megabytes())
        note(json.dumps(samples[-1]))
    totals = [sum(sample.values()) for sample in samples]
    half = totals[len(totals) // 2 :]
    return {
        "requests": part * SAMPLES,
        "mb": {name: [round(sample[name], 1) for sample in samples] for name in samples[0]},
        "mb_total_at_start": totals[0],
        "mb_total_at_half": half[0],
        "mb_total_at_end": totals[-1],
        "mb_per_1000_requests_second_half": float(np.polyfit(np.arange(len(half)), half, 1)[0]) / part * 1000,
    }


def kill(own: Town, service: Service, clients: int, seconds: float) -> dict[str, Any]:
    """What clients see while the shop is killed and started again."""
    started = time.perf_counter()
    times_of: dict[str, float] = {}

    def strike() -> None:
        time.sleep(seconds / 3)
        times_of["killed"] = time.perf_counter()
        own.processes["shop"].kill()
        own.processes["shop"].wait()
        time.sleep(DOWN_SECONDS)
        own.serve("shop")
        times_of["listening"] = time.perf_counter()
        service.processes["shop"] = own.processes["shop"]

    striking = threading.Thread(target=strike)
    striking.start()
    answers = load(service, clients, 1, lambda: time.perf_counter() - started < seconds)
    striking.join()
    outcomes = Counter(answer.outcome for answer in answers)
    failed = [answer for answer in answers if answer.outcome != "ok"]
    last = max((answer.began + answer.seconds for answer in failed), default=times_of["killed"])
    return {
        "clients": clients,
        "outcomes": dict(outcomes),
        "seconds_down": times_of["listening"] - times_of["killed"],
        "seconds_until_last_error_after_listening": last - times_of["listening"],
        "longest_answer_seconds": max(answer.seconds for answer in answers),
        "answered_ok_after_restart": sum(answer.outcome == "ok" and answer.began > last for answer in answers),
    }


def table_of(cells: list[dict[str, Any]]) -> str:
    head = ("service", "clients", "rows in a request", "p50, ms", "p99, ms", "rows/s", "CPU ms/request")
    figures = ("p50_ms", "p99_ms", "rows_per_second", "cpu_ms_per_request")
    names = {"veilboost": "VeilBoost, three parties", "xgboost": "XGBoost behind FastAPI"}
    rows = [
        (
            names[cell["service"]],
            str(cell["clients"]),
            str(cell["rows"]),
            *(f"{cell[figure]:.3g}" for figure in figures),
        )
        for cell in cells
    ]
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="of `single`; `batch` has a tenth of them")
    parser.add_argument("--clients", type=int, default=8, help="clients of `batch`, --memory and --kill")
    parser.add_argument("--rows", type=int, default=100, help="rows in a request of `batch`")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each")
    parser.add_argument("--table", type=int, default=100_000, help="rows of each party's table")
    parser.add_argument("--memory", type=int, nargs="?", const=100_000, metavar="REQUESTS", help="watch the memory")
    parser.add_argument("--kill", type=float, nargs="?", const=30.0, metavar="SECONDS", help="kill the shop under load")
    parser.add_argument("--markdown", type=Path, help="write the table into this page")
    options = parser.parse_args()
    result: dict[str, Any] = {"settings": {"table": options.table, "columns": COLUMNS, **TRAINING}}
    with town(options.table) as own:
        ours = own.deploy()
        services = [ours, own.xgboost()]
        for service in services:
            load(service, 1, 1, times(20))  # loads what is loaded when it is first used
        result["cells"] = speed(services, options)
        if options.memory:
            result["memory"] = memory(ours, options.clients, options.memory)
        if options.kill:
            result["kill"] = kill(own, ours, options.clients, options.kill)
    if options.markdown:
        where = machine()
        text = f"Measured on {today()}, {where['cores']} cores of {where['cpu']}.\n\n{table_of(result['cells'])}"
        replace_block(options.markdown, "serve", text)
    report({"benchmark": "serve", **result})


if __name__ == "__main__":
    main()
