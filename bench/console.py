"""The web console with many runs: time of each page, and CPU of a console that is open while a job runs.

    python bench/console.py [--runs 1000] [--repeats 20] [--seconds 60] [--rate 200]

A demo trains one job; its run folder at the bank is copied RUNS times, and its ledger entries are booked for each copy.
There are as many decided proposals. Their signatures are verified, and only the first is valid.
The console is a process of its own. A client logs in and requests every page REPEATS times: `cpu_ms` is the CPU time of
the whole process for each request, with the threads that sum up the ledger and dial peers. Then one more run grows for
SECONDS: RATE messages a second, and a round every quarter of a second, while a client does what a browser with the
page of that job does: it reads the stream of events, and loads the page after each. The CPU time of the console process
in that time, as a share of one core, bounds what an open console takes from a job.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from against_worker import process_seconds
from common import note, report
from veilboost.console.users import FILE, Users
from veilboost.errors import ApprovalPending
from veilboost.party.approvals import APPROVALS, PROPOSAL, decide, list_proposals, require_approval
from veilboost.party.identity import PeerIdentity
from veilboost.party.job import Job, load_job
from veilboost.party.policy import TrainRequest
from veilboost.party.proposals import training_subject
from veilboost.party.runs import RunFolder
from veilboost.party.settings import PartySettings, load_party
from veilboost.privacy.ledger import Ledger
from veilboost.types import Role

COMMAND = str(Path(sys.executable).parent / "veilboost")
PASSWORD = "a password of the bench"  # noqa: S105
PAGES = ("inbox", "jobs", "jobs?page=10", "jobs?state=failed", "ledger", "peers", "tables", "models", "policy")
ROUND_SECONDS = 0.25


def make_party(folder: Path, runs: int) -> tuple[Path, PartySettings, RunFolder]:
    """The bank of a demo with many copies of its run."""
    command = [COMMAND, "demo", "--protocol", "plain", "--folder", str(folder / "demo")]
    subprocess.run(command, check=True, capture_output=True)
    config = next((folder / "demo").glob("**/bank*/party.toml"), None) or next((folder / "demo").glob("**/bank.toml"))
    settings = load_party(config)
    trained = next(RunFolder(path.parent) for path in settings.runs.glob("*/status.json"))
    book = Ledger(settings.ledger_file)
    events = book.events()[:10]
    for number in range(runs):
        copy = settings.runs / f"run-{number}"
        shutil.copytree(trained.path, copy)
        RunFolder(copy).note(state="failed" if number % 3 == 0 else "finished")
        if events:
            book.append(f"run-{number}/0", *events)
    make_proposals(settings, load_job(trained.path / "job.toml"), runs)
    Users(settings.runs / FILE).add("bench", "approver", PASSWORD)
    return config, settings, trained


def make_proposals(settings: PartySettings, job: Job, number: int) -> None:
    """Hold and decide a proposal of this job as the shop would, and copy it."""
    asked = replace(settings, policy=replace(settings.policy, approval="ask"))
    request = TrainRequest({}, job.spec, Role.PASSIVE, "main", (), job.training.n_estimators, job.training.max_depth)
    subject = replace(training_subject(asked, job, request, [f"column_{at}" for at in range(20)], 5000), role="passive")
    peer = PeerIdentity("shop", "ab" * 32, datetime(2100, 1, 1, tzinfo=UTC), 1)
    with suppress(ApprovalPending):
        require_approval(asked, peer, "digest", lambda: subject)
    (held,) = list_proposals(settings)
    decide(settings, held.id, True, by="bench", reason="as agreed")
    first = settings.runs / APPROVALS / held.id
    for at in range(number - 1):
        copy = first.with_name(f"{at:016x}-1")
        shutil.copytree(first, copy)
        (copy / PROPOSAL).write_text((first / PROPOSAL).read_text().replace(held.id, copy.name))


class Client:
    """One browser without a screen."""

    def __init__(self, address: str) -> None:
        self._address, self._cookie = address, ""
        form = urlencode({"name": "bench", "password": PASSWORD})
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("POST", "/login", form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        assert answer.status == 303, answer.read()
        self._cookie = str(answer.getheader("Set-Cookie")).partition(";")[0]
        connection.close()

    def seconds(self, page: str) -> float:
        began, connection = time.perf_counter(), http.client.HTTPConnection(self._address, timeout=60)
        connection.request("GET", f"/{page}", headers={"Cookie": self._cookie, "Accept": "text/html"})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status == 200, content
        return time.perf_counter() - began

    def watch(self, page: str, stop: threading.Event) -> int:
        """Load the page after each event; gives how often."""
        stream = http.client.HTTPConnection(self._address, timeout=60)
        stream.request("GET", f"/events?job={page.rpartition('/')[2]}", headers={"Cookie": self._cookie})
        answer, loaded = stream.getresponse(), 0
        while not stop.is_set():
            if answer.fp.readline().startswith(b"data:"):
                self.seconds(page)
                loaded += 1
        stream.close()
        return loaded


@contextmanager
def console(config: Path) -> Iterator[tuple[str, int]]:
    command = [COMMAND, "console", "--config", str(config), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://(\S+)", process.stderr.readline())
            assert found is not None
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1], process.pid
        finally:
            process.terminate()


def grow(run: RunFolder, pattern: list[str], rate: int, stop: threading.Event) -> None:
    """Append messages and rounds to a run, as a job does."""
    file, number = run.path / "transcript" / "transcript.jsonl", 0
    with file.open("a") as transcript, (run.path / "metrics.jsonl").open("a") as metrics:
        while not stop.wait(ROUND_SECONDS):
            for at in range(round(rate * ROUND_SECONDS)):
                transcript.write(json.dumps({**json.loads(pattern[at % len(pattern)]), "when": time.time()}) + "\n")
            transcript.flush()
            result = {"number": number, "seconds": ROUND_SECONDS, "validation": 1 - 1 / (number + 2), "metric": "auc"}
            metrics.write(json.dumps(result) + "\n")
            metrics.flush()
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        note(f"making {given.runs} runs")
        config, settings, trained = make_party(Path(folder), given.runs)
        with console(config) as (address, pid):
            client, pages = Client(address), dict[str, dict[str, float]]()
            proposal = max(settings.runs.glob(f"{APPROVALS}/*")).name
            for page in (*PAGES, f"jobs/{trained.path.name}", f"inbox/{proposal}"):
                before = process_seconds(pid)
                times = [1000 * client.seconds(page) for _ in range(given.repeats)]
                cpu = 1000 * (process_seconds(pid) - before) / given.repeats
                told = {
                    "first_ms": times[0],
                    "median_ms": statistics.median(times),
                    "worst_ms": max(times),
                    "cpu_ms": cpu,
                }
                note(f"{page}: {', '.join(f'{name} {value:.0f}' for name, value in told.items())}")
                pages[page] = told
            running = RunFolder(settings.runs / "running")
            shutil.copytree(trained.path, running.path)
            (running.path / "metrics.jsonl").write_text("")
            running.note(state="training", pid=os.getpid())
            pattern = (running.path / "transcript" / "transcript.jsonl").read_text().splitlines()
            stop = threading.Event()
            threading.Thread(target=grow, args=(running, pattern, given.rate, stop), daemon=True).start()
            loads = list[int]()
            watcher = threading.Thread(target=lambda: loads.append(client.watch("jobs/running", stop)), daemon=True)
            idle = process_seconds(pid)
            time.sleep(5)
            idle, before, began = process_seconds(pid) - idle, process_seconds(pid), time.monotonic()
            watcher.start()
            time.sleep(given.seconds)
            share = (process_seconds(pid) - before) / (time.monotonic() - began)
            stop.set()
            watcher.join(10)
        report(
            {"runs": given.runs, "pages": pages, "cpu_share_open": share, "cpu_share_closed": idle / 5, "loads": loads}
        )
        note(f"an open page takes {100 * share:.2f} % of a core")


if __name__ == "__main__":
    main()
