"""Kill the processes of a deployed model at every file operation and message, and see whether it scores the same after.

    python tests/drill/deployments.py [--per 20] [--out FILE]
    python tests/drill/deployments.py --cell plain:kill-file:deploy:37

A bank and a shop have trained. The bank runs `deploy`, `predict`, `serve` with one request over HTTP, `deployments
rekey` and `undeploy`; the daemon of the shop answers. A cell kills one of these commands, or the daemon, and an
operator starts it again. "Same model" is a story without an error, "resumed" one in which a command was killed and
given again, "coded" one with a coded error before that. Anything else is bad: another score, a score that is not in the
trail or the ledger of the shop, a deployment that lives on, a secret or a temporary file of it left, a traceback, no
end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import preload

if __name__ == "__main__":
    preload.with_shim()

import pyarrow.parquet as pq
from cells import Cell, Outcome, places, summary
from town import BOUND, JOB, NONE, Fault, Process, Town

from drill import ATTEMPTS, KILLED, Bad, commit_here, key, read, spaced
from veilboost.errors import VeilBoostError
from veilboost.party.deployment_folder import DeploymentFolder

for _name in ("fastapi", "uvicorn.protocols.http.h11_impl", "veilboost.service.app", "veilboost.service.server"):
    import_module(_name)
CONFIG = ("--config", "bank.toml")
COMMANDS = {
    "deploy": ("deploy", f"runs-bank/{JOB}", *CONFIG),
    "predict": ("predict", "--model", f"runs-bank/{JOB}", *CONFIG, "--data", "new.parquet", "--out", "scores.csv"),
    "serve": ("serve", f"runs-bank/{JOB}", *CONFIG, "--listen", "127.0.0.1:0", "--quiet"),
    "rekey": ("deployments", "rekey", JOB, *CONFIG),
    "undeploy": ("undeploy", *CONFIG),
}
KINDS = ("kill-file", "kill-message")
ROWS = 5  # that are scored
OWNERS = ("bank", "shop")


class Story:
    """The commands of one deployment, from a trained model on."""

    def __init__(self, folder: Path) -> None:
        self.town = town = Town(folder / "plain", "plain", shorter=True)
        town.serve("shop")
        driver = town.train()
        self._wait(driver)
        if driver.code != 0:
            raise RuntimeError(f"the job fails: {driver.err}")
        town.daemons.pop("shop").kill()
        self._rows = self._write_rows()
        self._trained = {name: town.folder.parent / f"trained-{name}" for name in OWNERS}
        for name, kept in self._trained.items():
            shutil.copytree(town.folder / f"runs-{name}", kept)
        undisturbed = Outcome(Cell("plain", "", "", 0))
        self.expected: tuple[str, str] | None = None
        self.expected = self._tell(undisturbed)
        self.released = town.released()
        self._events = {name: process.events for name, process in self._struck.items()}

    def _write_rows(self) -> list[dict[str, object]]:
        """Write rows to score as `new.parquet`, and return them; in a fork, because pyarrow starts threads."""
        file = self.town.folder / "new.json"
        if os.fork() == 0:
            table = pq.read_table(self.town.folder / "bank.parquet").slice(0, ROWS).drop_columns(["late"])
            pq.write_table(table, self.town.folder / "new.parquet")
            file.write_text(json.dumps(table.to_pylist()))
            os._exit(0)
        os.wait()
        return json.loads(file.read_text())

    def cells(self, per: int) -> Iterator[Cell]:
        for kind in KINDS:
            for name, events in self._events.items():
                messages = sum(what == "message" for what, _ in events)
                numbers = places(events) if kind == "kill-file" else range(1, messages + 1)
                yield from (Cell("plain", kind, name, number) for number in spaced(numbers, per))

    # --- one cell -----------------------------------------------------------------------------------------

    def run(self, cell: Cell) -> Outcome:
        outcome, began = Outcome(cell), time.monotonic()
        try:
            found = self._tell(outcome)
            self._check(outcome, found)
            outcome.verdict = "coded" if outcome.codes else outcome.verdict or "same model"
        except (Bad, TimeoutError) as bad:
            outcome.verdict, outcome.why = "bad", str(bad)
        except VeilBoostError as error:  # a ledger or a deployment that cannot be read
            outcome.verdict, outcome.why = "bad", f"after the story: {error}"
        process = self._struck.get(cell.party)
        lines = [] if process is None else process.files if cell.fault.at else process.messages
        outcome.struck = lines[cell.number - 1].partition(" ")[2] if len(lines) >= cell.number else ""
        if not outcome.struck and outcome.verdict != "bad":
            outcome.verdict = "not reached"
        outcome.seconds = time.monotonic() - began
        return outcome

    def _tell(self, outcome: Outcome) -> tuple[str, str]:
        """The whole story, with the fault of the cell. The scores of `predict` and of `serve`."""
        town, cell = self.town, outcome.cell
        town.clear()
        (town.folder / "scores.csv").unlink(missing_ok=True)
        for name, kept in self._trained.items():
            shutil.copytree(kept, town.folder / f"runs-{name}", dirs_exist_ok=True)
        self._struck: dict[str, Process] = {}
        town.serve("shop", faults={"shop": cell.fault} if cell.party == "shop" else {})
        self._struck["shop"] = town.daemons["shop"]
        try:
            self._command("deploy", outcome)
            self._command("predict", outcome)
            served = self._serve(outcome)
            self._command("rekey", outcome)
            for each in self._to_end():  # also what a killed command left
                self._command("undeploy", outcome, each.id)
        finally:
            for daemon in town.daemons.values():
                daemon.kill()
        return (town.folder / "scores.csv").read_text(), served

    def _command(self, name: str, outcome: Outcome, *more: str) -> None:
        """Give a command, and again until it succeeds or has nothing to do any more."""
        for _ in range(ATTEMPTS):
            process = self._start(name, outcome, *more)
            self._wait(process)
            if process.code == 0 and "not reached" not in process.out:
                return
            if process.code != 0:
                self._failed(process, outcome)
        raise Bad(f"{name} does not succeed: {process.err.strip()[-300:]}")

    def _serve(self, outcome: Outcome) -> str:
        """Start `serve`, ask for scores until it answers, and stop it. What it answers."""
        end = time.monotonic() + BOUND
        process = self._start("serve", outcome)
        while time.monotonic() < end:
            self._look(process)
            if process.ended:
                self._failed(process, outcome)
                process = self._start("serve", outcome)
            elif found := re.search(r"serving \S+ on (\S+)\n", process.err):
                answer = self._ask(found[1], outcome)
                if answer is not None:
                    os.kill(process.pid, signal.SIGTERM)
                    self._wait(process)
                    if process.code not in (0, -signal.SIGKILL):
                        raise Bad(f"serve ends with {process.code}: {process.err.strip()[-300:]}")
                    return answer
            time.sleep(0.02)
        process.kill()
        raise Bad(f"serve does not answer: {process.err.strip()[-300:]}")

    def _ask(self, where: str, outcome: Outcome) -> str | None:
        """The scores of the rows; None if the service or the shop is not there."""
        body = json.dumps({"rows": self._rows}).encode()
        request = urllib.request.Request(f"{where}/v1/predict", body, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=BOUND) as answer:  # noqa: S310
                return json.dumps(json.load(answer)["predictions"])
        except urllib.error.HTTPError as error:
            code = json.loads(error.read())["code"]
            if error.code != 503:
                raise Bad(f"the service answers {error.code}, {code}") from error
            outcome.codes.append(code)
        except OSError:  # it was killed
            pass
        return None

    # --- processes ----------------------------------------------------------------------------------------

    def _start(self, name: str, outcome: Outcome, *more: str) -> Process:
        """A command, struck if it is the first of the cell's name."""
        first, cell = name not in self._struck, outcome.cell
        fault: Fault = cell.fault if first and name == cell.party else NONE
        process = self.town.command("bank", *COMMANDS[name], *more, fault=fault)
        self._struck.setdefault(name, process)
        return process

    def _wait(self, process: Process) -> None:
        end = time.monotonic() + BOUND
        while not process.ended:
            if time.monotonic() > end:
                process.kill()
                raise Bad(f"a command did not end within {BOUND:g} s: {process.err.strip()[-300:]}")
            self._look(process)
            time.sleep(0.005)
        self._look(process)

    def _look(self, process: Process) -> None:
        """Start the daemon again if it was killed. Raises if a process reports what it must not."""
        daemon = self.town.daemons["shop"]
        for each in (process, daemon):
            if found := re.search(r"Traceback|VB-1707.*", each.err):
                raise Bad(f"an unexpected error at {each.party}: {each.err[found.start() :][:300].strip()}")
        if daemon.ended:
            self.town.serve("shop")

    def _failed(self, process: Process, outcome: Outcome) -> None:
        """A command was killed, or ended with a coded error. Raises if it ended otherwise."""
        if process.code in KILLED:
            outcome.verdict = "resumed"
        elif found := re.search(r"^(VB-\d{4}): .+; .+", process.err, re.MULTILINE):
            outcome.codes.append(found[1])
        else:
            raise Bad(f"a command ends with {process.code} and no coded error: {process.err.strip()[-300:]}")

    # --- what is left -------------------------------------------------------------------------------------

    def _deployments(self, name: str) -> list[DeploymentFolder]:
        folders = sorted((self.town.folder / f"runs-{name}" / "deployments").glob("*"))
        return [folder for folder in map(DeploymentFolder, folders) if folder.exists]

    def _live(self, name: str) -> list[DeploymentFolder]:
        return [each for each in self._deployments(name) if each.status.now == "live"]

    def _to_end(self) -> list[DeploymentFolder]:
        """The deployments of the bank that live, or of whose end the shop was not told."""
        return [each for each in self._deployments("bank") if each.status.now == "live" or each.status.untold]

    def _check(self, outcome: Outcome, found: tuple[str, str]) -> None:
        if found != self.expected:
            raise Bad("other scores")
        if self._live("shop"):
            raise Bad("a deployment lives on at the shop")
        for name in OWNERS:
            if any(each.has_secrets for each in self._deployments(name)):
                raise Bad(f"a deployment has ended, and its secrets are left at {name}")
        trail = [entry for each in self._deployments("shop") for entry in each.read_trail()]
        if sum(entry["rows"] for entry in trail if entry["what"] == "scored") < 2 * ROWS:
            raise Bad(f"scores are not in the trail of the shop: {trail}")
        for name, events in self.town.released().items():
            if not events >= self.released[name]:
                raise Bad(f"the ledger of {name} has forgotten {len(self.released[name] - events)} releases")
        outcome.left = self.town.left_files()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per", type=int, default=0, help="cells of one kind at one process; 0: all")
    parser.add_argument("--cell", nargs="+", default=[])
    parser.add_argument("--out", type=Path, help="append all outcomes, a line of JSON each")
    given = parser.parse_args()
    cells = [Cell(*text.split(":")[:3], int(text.split(":")[3])) for text in given.cell]
    outcomes, commit = [], commit_here()
    done = {key(each) for each in read(given.out) if each["commit"] == commit} if given.out else set[str]()
    with tempfile.TemporaryDirectory(prefix="deployments-") as folder:
        story = Story(Path(folder))
        for cell in cells or story.cells(given.per):
            if str(cell) in done:
                continue
            found = story.run(cell)
            told = (found.verdict, f"{found.seconds:.1f} s", str(cell), found.struck, *found.codes, found.why)
            print(" | ".join(filter(None, told)), file=sys.stderr, flush=True)
            outcomes.append(asdict(found) | {"commit": commit})
            if given.out:
                with given.out.open("a") as out:
                    out.write(json.dumps(outcomes[-1]) + "\n")
        story.town.clear()
    print(summary(outcomes, "party", "deployments.py"))
    return 1 if any(each["verdict"] == "bad" for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
