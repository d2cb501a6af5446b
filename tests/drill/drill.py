"""Strike every process of a short job at every file operation, message and byte, and see how the job ends.

    python tests/drill/drill.py [--protocols plain lattice] [--kinds kill-file drop] [--per 20] [--out FILE]
    python tests/drill/drill.py --cell plain:kill-file:shop:37

A cell is protocol:kind:party:number. Its job must end with the model of the undisturbed run: by itself ("same model"),
after `train --resume` ("resumed"), or by what a coded error advises, each command within its bound ("coded"). Anything
else is bad: another model, a share or a release lost, a key left behind, a traceback, an unexpected error, no end.
`--per` limits the numbers of one kind at one party to so many, evenly spaced; 0 takes every one. `kill-file` strikes at
the numbers that can differ (`places`); `--every` takes all. `--out` gets a line of JSON for each cell; a cell that it
has from the same commit is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import preload

if __name__ == "__main__":
    preload.with_shim()

import proxy
from cells import DAEMONS_ONLY, KINDS, MOST_BYTES, Cell, Outcome, places, summary
from town import BOUND, LIMITS, NONE, Process, Town

from veilboost.errors import ModelError, VeilBoostError
from veilboost.protocols.registry import all_protocols

LASTING = ("deaf", "lie", "clock-ahead", "clock-back", "expired", "descriptors", "memory")
KILLED = (-signal.SIGKILL, -signal.SIGTERM, 130, 143)
# A process without memory or descriptors may end in any way, as if the system had killed it; the job must recover.
STARVED = ("descriptors", "memory")
STARVED_ENDS = (-signal.SIGABRT, -signal.SIGSEGV, 1, 127)
ATTEMPTS = 5  # commands of an operator who follows the advice of errors
# Their jobs have three trees, so that old checkpoints are removed, and align by PSI. Those of all other protocols are
# shorter: both are the same code in all vertical protocols.
LONGER = ("plain", "lattice", "secagg", "mal")
THOROUGH = ("plain", "secagg")  # one of each setting; see `places`


class Bad(Exception):
    """What must not happen."""


class Drill:
    """The cells of one protocol."""

    def __init__(self, protocol: str, folder: Path, every: bool = False, engine: str = "local") -> None:
        self.town = Town(folder / protocol, protocol, shorter=protocol not in LONGER, engine=engine)
        self._every = every
        self.driver = self.town.driver
        self._log = folder / "proxy.log"
        self._undisturbed()

    def _undisturbed(self) -> None:
        """One run without a fault: its model, its releases, and how much there is to strike at."""
        town = self.town
        town.serve(*town.others)
        driver = town.train()
        if self._attend(driver, None) != 0:
            raise RuntimeError(f"the undisturbed job of {town.protocol} fails: {driver.err}")
        self.model, self.released = town.model(), town.released()
        processes = {self.driver: driver, **town.daemons}
        self._events = {name: process.events for name, process in processes.items()}
        self._files = {name: len(process.files) for name, process in processes.items()}
        self._messages = {name: len(process.messages) for name, process in processes.items()}
        self._sent = {
            name: sum("send REQUEST" in line or "send ANSWER" in line for line in process.messages)
            for name, process in processes.items()
        }

    def cells(self, kinds: Sequence[str], parties: Sequence[str], per: int) -> Iterator[Cell]:
        """The cells of these kinds; no parties: all."""
        for kind in kinds:
            for name in parties or self.town.everyone:
                if name in self.town.everyone:
                    numbers = spaced(self._numbers(kind, name), per)
                    yield from (Cell(self.town.protocol, kind, name, number) for number in numbers)

    def _numbers(self, kind: str, name: str) -> Sequence[int]:
        """Where this kind can strike a party; nowhere if it cannot."""
        town, counted = self.town, KINDS[kind]
        if (kind in DAEMONS_ONLY) if name == self.driver else (kind == "two-drivers"):
            return ()
        if kind == "rolled-back" and (town.protocol == "mal" or name in town.helpers):
            return ()  # mal has no checkpoint, a helper no run
        if kind == "kill-file" and not self._every:
            return places(self._events[name], town.protocol in THOROUGH)
        if counted == "files":
            return range(1, self._files[name] + 1)
        if counted == "messages":
            return range(1, self._messages[self.driver if kind == "rolled-back" else name] + 1)
        if counted == "sent":
            return range(1, self._sent[name] + 1)
        if counted == "bytes":
            last = self._bytes(name)
            return range(1, last + 1, max(1, last // MOST_BYTES))
        return counted

    @cache  # noqa: B019 - a drill lives as long as the program
    def _bytes(self, name: str) -> int:
        """The bytes between the driver and a party in a job without a fault."""
        self.town.clear()
        self.town.serve(*self.town.others)
        with self._proxy(name, "none", 0):
            self._attend(self.town.train(proxied=name), None)
        return int(self._log.read_text())

    # --- one cell ---------------------------------------------------------------------------------------

    def run(self, cell: Cell) -> Outcome:
        outcome, began = Outcome(cell), time.monotonic()
        self._struck: Process | None = None
        self._rolled = ""
        self.town.clear(cell.party)
        try:
            with ExitStack() as stack:
                self._job(cell, outcome, stack)
            self._check(outcome)
            if not outcome.verdict:
                outcome.verdict = "coded" if outcome.codes else "same model"
        except (Bad, TimeoutError) as bad:
            outcome.verdict, outcome.why = "bad", str(bad)
        except VeilBoostError as error:  # a share or a ledger that cannot be read
            outcome.verdict, outcome.why = "bad", f"after the job: {error}"
        outcome.struck = self._what_was_struck(cell)
        if not outcome.struck and outcome.verdict != "bad":
            outcome.verdict = "not reached"
        outcome.seconds = time.monotonic() - began
        self.town.clear(*([] if outcome.verdict == "bad" else [cell.party]))  # no later cell may have this fault too
        return outcome

    def _job(self, cell: Cell, outcome: Outcome, stack: ExitStack) -> None:
        town, kind = self.town, cell.kind
        if kind in {"disk-full", "read-only"}:
            (town.folder / "fault").touch()
        faults = {} if cell.party == self.driver or kind == "rolled-back" else {cell.party: cell.fault}
        town.serve(*(name for name in town.others if name not in town.daemons), faults=faults)
        self._struck = town.daemons.get(cell.party)
        proxied = cell.party if kind in proxy.KINDS else None
        if proxied is not None:
            stack.enter_context(self._proxy(proxied, kind, cell.number))
        own = NONE if faults else cell.fault
        if kind == "two-daemons":
            self._second_daemon(cell.party)
        stack.callback(self._check_synced, cell)
        if kind == "rolled-back":
            self._roll_back(cell)
            self._operate(cell, outcome, town.train(resume=True), None)
            return
        driver = town.train(fault=own, proxied=proxied)
        if not faults and proxied is None:
            self._struck = driver
        if kind == "two-drivers":
            self._second_driver(driver, cell)
        self._operate(cell, outcome, driver, proxied)

    def _operate(self, cell: Cell, outcome: Outcome, driver: Process, proxied: str | None) -> None:
        """What an operator does until the job is finished: start what was killed, follow the advice of errors."""
        town, resume = self.town, False
        for attempt in range(ATTEMPTS):
            code = self._attend(driver, cell)
            if code == 0:
                if attempt and not outcome.codes:
                    outcome.verdict = "resumed"
                return
            line = driver.err.strip().splitlines()[-1] if driver.err.strip() else ""
            if code in KILLED or (cell.kind in STARVED and code in STARVED_ENDS):
                resume = True
            elif found := re.match(r"(VB-\d{4}): .+; .+", line):
                outcome.codes.append(found[1])
                if found[1] == "VB-1401" and cell.kind not in ("lie", *STARVED):
                    raise Bad(f"a fault that changes no message is taken for one that does: {line}")
                if "is finished, and its model is in" in line:
                    return
                resume = self._advised(line, resume)
            else:
                raise Bad(f"the driver ends with {code} and no coded error: {line[-300:]}")
            (town.folder / "fault").unlink(missing_ok=True)  # the disk has room again
            if attempt == 0 and cell.kind in LASTING and cell.party in town.daemons:
                town.daemons[cell.party].kill()  # its owner starts it again, with a right clock, more memory ...
            driver = town.train(resume=resume, proxied=proxied)
        driver.kill()
        raise Bad(f"not finished by following the advice of {' '.join(outcome.codes)}; the last: {line}")

    def _advised(self, line: str, resume: bool) -> bool:
        """Do what an error advises. Whether the next start resumes; `resume`: whether the last one did."""
        if "VB-1701" in line:  # another job has the table: try again when it has been released
            time.sleep(LIMITS.wait_seconds)
            return resume
        if "change name in the job file" in line:
            self.town.job += "-again"
            return False
        return not re.search(r"without --resume|start the job again|VB-1706", line)

    def _attend(self, driver: Process, cell: Cell | None) -> int | None:
        """Wait for a driver, and start daemons again that were killed. The exit code."""
        town, end = self.town, time.monotonic() + BOUND
        while not driver.ended:
            if time.monotonic() > end:
                driver.kill()
                raise Bad(f"the driver did not end within {BOUND:g} s: {driver.err.strip()[-200:]}")
            for name, daemon in list(town.daemons.items()):
                if daemon.ended:
                    self._look_at(daemon, cell)
                    town.serve(name)
            time.sleep(0.005)
        for daemon in town.daemons.values():
            self._look_at(daemon, cell)
        if "Traceback" in driver.err and not (cell and cell.kind in STARVED):
            raise Bad(f"a traceback of the driver: {driver.err.strip()[-300:]}")
        return driver.code

    def _look_at(self, daemon: Process, cell: Cell | None) -> None:
        if cell and cell.kind in STARVED:
            return
        found = re.search(r"Traceback|VB-1707.*", daemon.err)
        if found:
            raise Bad(f"an unexpected error at {daemon.party}: {daemon.err[found.start() :][:300].strip()}")
        if daemon.ended and daemon.code not in (*KILLED, 0) and "VB-" not in daemon.err:
            raise Bad(f"the daemon of {daemon.party} ended with {daemon.code}: {daemon.err.strip()[-300:]}")

    def _check(self, outcome: Outcome) -> None:
        town, cell = self.town, outcome.cell
        dropped = town.run(self.driver).status.get("dropped")
        if dropped:
            outcome.codes.append("dropped")
        elif cell.kind == "lie":  # of the right form, it may lead to any model
            same = False
            with suppress(ModelError):
                same = town.model() == self.model
            outcome.verdict = outcome.verdict if same or outcome.codes else "other model"
            return
        elif town.model() != self.model:
            raise Bad("another model")
        finished = {name: town.run(name).status.get("state") == "finished" for name in town.owners}
        if town.spec.setting == "vertical" and not all(finished.values()):
            raise Bad(f"not finished at {', '.join(name for name, value in finished.items() if not value)}")
        for name, events in town.released().items():
            if not dropped and not events >= self.released[name]:
                raise Bad(f"the ledger of {name} has forgotten {len(self.released[name] - events)} releases")
        outcome.left = town.left_files()
        # A participant that is killed after its last contribution is not needed for the model, and gets none.
        without = [name for name, has in finished.items() if not has and name not in (dropped or {})]
        outcome.left += [f"no model at {name}" for name in without]
        keys = [path for path in town.left_files() if path.endswith("job.key") and finished[path.split("/")[0][5:]]]
        if keys:
            raise Bad(f"the job is finished and its key is left: {', '.join(keys)}")

    def _check_synced(self, cell: Cell) -> None:
        """Nothing can cut the power here: what a file is renamed to must have been written to the disk before."""
        if cell.kind != "power-loss" or self._struck is None:
            return
        lines = [line.split(" ", 2)[1:] for line in self._struck.files]
        for at, (what, path) in enumerate(lines):
            if what == "mkdir" and "/" in path and ["fsync", str(Path(path).parent)] not in lines[at : at + 2]:
                raise Bad(f"{path} was made, and the folder above it may not be on the disk yet")
            if what == "rename":
                new, _, old = path.partition(" <- ")
                wrote = [n for n, (did, file) in enumerate(lines[:at]) if did == "write" and file == old]
                synced = [n for n, (did, file) in enumerate(lines[:at]) if did == "fsync" and file == old]
                if wrote and (not synced or synced[-1] < wrote[-1]):
                    raise Bad(f"{new} takes the place of a file that may not be on the disk yet")
                if ["fsync", str(Path(new).parent)] not in lines[at : at + 4]:
                    raise Bad(f"{new} has its name, and its folder may not be on the disk yet")

    def _what_was_struck(self, cell: Cell) -> str:
        process, number = self._struck, cell.number
        lines = [] if process is None else process.files if cell.fault.at else process.messages
        if cell.kind in proxy.KINDS:
            return f"byte {number}" if int(self._log.read_text() or 0) >= number else ""
        if cell.kind == "rolled-back":
            return self._rolled
        if cell.kind == "lie":
            return next((f"lie {about}" for what, about in process.events if what == "lie"), "") if process else ""
        if cell.fault.at or cell.fault.message:
            return lines[number - 1].partition(" ")[2] if len(lines) >= number else ""
        return cell.kind

    # --- faults that take more than one process ---------------------------------------------------------

    def _proxy(self, name: str, kind: str, at: int) -> ExitStack:
        ports, pid = self.town.ports, os.fork()
        if pid == 0:
            proxy.run(ports["proxy"], ports[name], kind, at, self._log)
        stack = ExitStack()
        stack.callback(lambda: (os.kill(pid, signal.SIGKILL), os.waitpid(pid, 0)))
        return stack

    def _second_daemon(self, name: str) -> None:
        """A daemon with the folders of another one must be refused at once."""
        town = self.town
        town.write_settings(name, "second.toml", listen="127.0.0.1:0")
        second = town.command(name, "party", "serve", "--config", "second.toml", "--json")
        end = time.monotonic() + BOUND
        while not second.ended and "\n" not in second.out and time.monotonic() < end:
            time.sleep(0.005)
        served = not second.ended
        second.kill()
        if served:
            raise Bad(f"two daemons serve the folders of {name}")
        if not re.match(r"VB-\d{4}: ", second.err.strip().splitlines()[-1]):
            raise Bad(f"the second daemon ends without a code: {second.err[-300:]}")

    def _second_driver(self, first: Process, cell: Cell) -> None:
        """A driver of the same job, half-way through the first one; it is refused, or both are killed and resumed."""
        while not first.ended and len(first.messages) < cell.number // 2:
            time.sleep(0.002)
        second = self.town.train(fault=cell.fault)
        self._attend(second, cell)
        line = second.err.strip().splitlines()[-1:]
        if second.code not in (0, -signal.SIGKILL) and not (line and re.match(r"VB-\d{4}: ", line[0])):
            raise Bad(f"the second driver ends with {second.code}: {second.err[-300:]}")

    def _roll_back(self, cell: Cell) -> None:
        """The run folder of one party becomes that of an earlier time."""
        town, run = self.town, self.town.run(self.driver)
        folder, kept = town.run(cell.party).path, town.folder / f"kept-{cell.party}"
        self._attend(town.train(fault=cell.fault), cell)
        rounds = run.rounds
        if folder.exists():
            shutil.copytree(folder, kept, ignore=shutil.ignore_patterns(".*.partial"))  # a daemon may be writing
        driver = town.train(resume=True)
        while not driver.ended and run.rounds <= rounds:
            time.sleep(0.002)
        driver.kill()
        if rounds < run.rounds and run.status.get("state") != "finished":
            self._rolled = f"{run.rounds} rounds, then {rounds}"
        for name in town.others:
            town.daemons[name].kill()
        if folder.exists():
            shutil.rmtree(folder)
        if kept.exists():
            kept.rename(folder)
        town.serve(*town.others)


def spaced(numbers: Sequence[int], per: int) -> list[int]:
    """At most `per` of the numbers, evenly spaced; 0: all."""
    if not per or len(numbers) <= per:
        return list(numbers)
    return [numbers[int((at + 0.5) * len(numbers) / per)] for at in range(per)]


def read(file: Path) -> list[dict[str, Any]]:
    """The outcomes in a file; of a cell that was tried again, the last."""
    lines = file.read_text().splitlines() if file.exists() else []
    return list({key(each): each for each in map(json.loads, lines)}.values())


def key(outcome: dict[str, Any]) -> str:
    return str(Cell(**outcome["cell"]))


def commit_here() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*"]
    folder = Path(__file__).parent
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocols", nargs="+", default=list(all_protocols()))
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--parties", nargs="+", default=[], help="strike only these; by default all")
    parser.add_argument("--per", type=int, default=0)
    parser.add_argument("--cell", nargs="+", default=[])
    parser.add_argument("--every", action="store_true", help="kill before every file operation")
    parser.add_argument("--engine", default="local", help="the engine of the parties with tables")
    parser.add_argument("--out", type=Path, help="append all outcomes, a line of JSON each")
    parser.add_argument("--read", type=Path, nargs="+", default=[], help="run nothing; print the tables of these files")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no further cell after this time")
    given = parser.parse_args()
    cells = [Cell(*text.split(":")[:3], int(text.split(":")[3])) for text in given.cell]
    outcomes = [each for file in given.read for each in read(file)]
    commit = commit_here()
    done = {key(each) for each in read(given.out) if each["commit"] == commit} if given.out else set[str]()
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory(prefix="drill-") as folder:
        asked = list(dict.fromkeys(cell.protocol for cell in cells)) if cells else given.protocols
        for protocol in [] if given.read else asked:
            drill = Drill(protocol, Path(folder), given.every, given.engine)
            own = [cell for cell in cells if cell.protocol == protocol]
            for cell in own or drill.cells(given.kinds, given.parties, given.per):
                if time.monotonic() > end:
                    break
                if str(cell) in done:
                    continue
                found = drill.run(cell)
                told = (found.verdict, f"{found.seconds:.1f} s", str(cell), found.struck, *found.codes, found.why)
                print(" | ".join(filter(None, told)), file=sys.stderr, flush=True)
                outcomes.append(asdict(found) | {"commit": commit})
                if given.out:
                    with given.out.open("a") as out:
                        out.write(json.dumps(outcomes[-1]) + "\n")
            drill.town.clear()
    command = "drill.py" if given.engine == "local" else f"drill.py --engine {given.engine}"
    print(summary(outcomes, command=command))
    return 1 if any(each["verdict"] == "bad" for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
