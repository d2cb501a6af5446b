"""Participants of `secagg` with dropouts, as processes over mutual TLS, that are killed while the job trains.

    python tests/drill/dropouts.py [--moments 20] [--trees 6] [--deaf]

Five participants, of which two may be lost. One is killed at each moment: when the server sends it the message of that
number. One is killed and started again, soon or after many trees; so is one whose owner meanwhile allows no return. Two
are killed at once; then as many are left as the job needs. With `--deaf`, one is stopped, and keeps its connections
(this takes a minute). Prints one JSON object for each case: what was recorded, and whether everybody who is left has
the same finished model.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from participants import HUB, write_party

from forked import Process
from veilboost.model.joined import join
from veilboost.party import horizontal
from veilboost.party.certs import init_authority
from veilboost.party.coordinator import Coordinator
from veilboost.party.federation import coordinate
from veilboost.party.job import load_job
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.protocols.secagg.messages import RosterRequest
from veilboost.wire.message import Message

NAMES = [f"p{at:02d}" for at in range(5)]


@dataclass
class Case:
    """`kills`: the message to a participant, from the first roster on, at which it is killed.

    `back`: the number of rounds, counted from then on, after which it is started again. `may_return`: whether its
    policy lets it join again.
    """

    name: str
    kills: dict[str, int]
    back: int | None = None
    may_return: bool = True
    trees: int | None = None  # of its job, if not as many as of the others
    signal: int = signal.SIGKILL
    killed: set[str] = field(default_factory=set)


class Village:
    """The files of all parties, and the processes of the participants."""

    def __init__(self, folder: Path, trees: int) -> None:
        self.folder, self.trees = folder, trees
        init_authority(folder)
        for at, name in enumerate((HUB, *NAMES)):
            write_party(folder, name, [HUB, *NAMES], at)
        hub = folder / f"{HUB}.toml"
        hub.write_text(hub.read_text().replace("wait_seconds = 120", "wait_seconds = 1"))
        self.daemons = {name: self.process(name) for name in NAMES}
        self.address = {name: self.line(name)["address"] for name in NAMES}
        for name in NAMES:  # a restarted one listens there again
            file = folder / f"{name}.toml"
            file.write_text(file.read_text().replace("127.0.0.1:0", self.address[name]))

    def process(self, name: str) -> Process:
        return Process("party", "serve", "--config", f"{name}.toml", "--json", folder=self.folder)

    def line(self, name: str) -> dict[str, Any]:
        return json.loads(self.daemons[name].stdout.readline())

    def start(self, name: str) -> None:
        self.daemons[name] = self.process(name)
        self.line(name)

    def allow(self, name: str, returns: bool) -> None:
        """Set whether the owner lets the participant begin a start again."""
        file, rule = self.folder / f"{name}.toml", "[policy]\nmax_rewinds = 0\n"
        text = file.read_text().replace(rule, "[policy]\n")
        file.write_text(text if returns else text.replace("[policy]\n", rule))

    def strike(self, name: str, number: int) -> None:
        self.daemons[name].send_signal(number)
        if number == signal.SIGKILL:
            self.daemons[name].wait(10)

    def trees_of(self, case: Case) -> int:
        return self.trees if case.trees is None else case.trees

    def run(self, case: Case) -> dict[str, Any]:
        for name, daemon in self.daemons.items():
            if daemon.poll() is not None:
                self.allow(name, True)
                self.start(name)
        parties = "".join(f'[parties.{name}]\naddress = "{where}"\n' for name, where in self.address.items())
        path = self.folder / "job.toml"
        path.write_text(
            f'name = "{case.name}"\nprotocol = "secagg"\n[parties.{HUB}]\nrole = "server"\n{parties}'
            f'[training]\nobjective = "binary"\nn_estimators = {self.trees_of(case)}\nmax_depth = 3\nmax_bin = 16\n'
            "[training.options]\ndropouts = 2\n"
        )
        began, horizontal.FIRST_PAUSE = time.perf_counter(), 0.0  # it looks before every tree
        with coordinate(load_party(self.folder / f"{HUB}.toml"), load_job(path)) as driver:
            self.arm(driver, case)
            run, outcome = driver.train()
        for name in case.killed if case.back is None else ():  # also those that were stopped only
            self.strike(name, signal.SIGKILL)
        return self.verdict(case, run, outcome) | {"seconds": round(time.perf_counter() - began, 2)}

    def arm(self, driver: Coordinator, case: Case) -> None:
        """Kill participants when the server sends them a message, and start them again after a round."""
        make = driver._caller

        def caller(name: str, **options: Any) -> Any:
            made = make(name, **options)
            send, sent = made.send, [0]

            def counted(message: Message) -> Callable[[], Message]:
                sent[0] += sent[0] > 0 or isinstance(message, RosterRequest)
                if case.kills.get(name) == sent[0] and name not in case.killed:
                    case.killed.add(name)
                    self.strike(name, case.signal)
                return send(message)

            made.send = counted
            return made

        driver._caller = caller  # type: ignore[method-assign]
        rounds = [0]

        def after_round(_: object) -> None:
            if case.killed:
                rounds[0] += 1
            if case.back is not None and rounds[0] == case.back:
                for name in case.killed:
                    self.allow(name, case.may_return)
                    self.start(name)

        object.__setattr__(driver.watch, "round", after_round)

    def verdict(self, case: Case, run: RunFolder, outcome: Any) -> dict[str, Any]:
        """Whether the model is finished, the same everywhere, and the changes are recorded."""
        left = [name for name in NAMES if name not in outcome.dropped]
        shares = [RunFolder(self.folder / f"runs-{name}" / case.name).load_share() for name in (HUB, *left)]
        models = {join({share.party: share}).sha256() for share in shares}
        recorded = [str(each) for each in run.membership]
        lost = {each.party for each in run.membership if each.event == "lost"}
        returned = {each.party for each in run.membership if each.event == "returned"}
        good = (
            len(models) == 1
            and len(outcome.share.skeleton.trees) == self.trees_of(case)
            and run.status["state"] == "finished"
            and lost == case.killed
            and set(outcome.dropped) == lost - returned
            and returned == (case.killed if case.back is not None and case.may_return else set())
            and (case.may_return or all("max_rewinds" in reason for reason in outcome.dropped.values()))
        )
        told = {"recorded": recorded, "left": len(left), "dropped": dict(outcome.dropped)}
        return {"case": case.name, "good": good, **told}

    def close(self) -> None:
        for daemon in self.daemons.values():
            daemon.kill()


def cases(moments: int, trees: int, deaf: bool) -> list[Case]:
    """A tree takes four messages: its roster, and one for each level. The last one is the model."""
    last = 4 * trees + 1
    steps = [1 + (last - 1) * at // max(moments - 1, 1) for at in range(moments)]
    return [
        *(Case(f"kill-{at}", {NAMES[at % 5]: step}) for at, step in enumerate(steps)),
        Case("returns", {"p01": 6}, back=2),
        Case("returns-late", {"p01": 6}, back=14, trees=18),  # it missed more levels than one packet holds
        Case("may-not-return", {"p02": 6}, back=2, may_return=False),
        Case("two", {"p00": 7, "p03": 7}),
        *([Case("deaf", {"p01": 6}, signal=signal.SIGSTOP)] if deaf else []),
    ]


def drill(folder: Path, moments: int, trees: int, deaf: bool) -> list[dict[str, Any]]:
    village = Village(folder, trees)
    try:
        return [village.run(case) for case in cases(moments, trees, deaf)]
    finally:
        village.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--trees", type=int, default=6)
    parser.add_argument("--deaf", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dropouts-") as folder:
        found = drill(Path(folder), options.moments, options.trees, options.deaf)
    print("\n".join(map(json.dumps, found)))
    raise SystemExit(0 if all(each["good"] for each in found) else 1)


if __name__ == "__main__":
    main()
