"""Measures again what `docs/results.md` shows: benchmarks one after the other, what each prints stored, the page made.

    python bench/everything.py [NAME ...] [--data DIR] [--out DIR] [--environments DIR] [--list]

Without names all of them, on a machine that has nothing else to do: hours. A failure is reported, and its old result
stays. The papers' tables and figures are made by `python -m papers` and taken by `bench/results.py --take`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import DEFAULT_DATA, note
from peers.environments import ENVIRONMENTS, NotInstalled, interpreter
from results import FOLDER, PAGE, page

BENCH = Path(__file__).parent
# By name what its command takes beside --data; {fedtree} and the like are the peers' interpreters.
BENCHES: dict[str, tuple[str, ...]] = {
    "plain": ("--data", "{data}", "--fedtree", "{fedtree}"),
    "quality": ("--data", "{data}"),
    "wire": ("--data", "{data}", "--xgboost", "{central}"),
    "encryption": (
        "--data", "{data}", "--identity", "--heu", "{heu}", "--fedtree", "{fedtree}", "--secretflow", "{secretflow}",
        "--xgboost", "{central}",
    ),
    "paillier_units": ("--data", "{data}"),
    "rows": ("--out", "{folder}"),
    "scale": ("--out", "{folder}"),
    "plan": (),
    "wan": (),
    "serve": (),
    "shap": ("--data", "{data}"),
    "gradient_bits": ("--data", "{data}"),
    "masked": ("--data", "{data}"),
    "smm": ("--data", "{data}"),
    "smm_attacks": (),
    "attacks": ("--data", "{data}"),
    "align": (),
    "ore": (),
    "elxgb": ("--data", "{data}"),
    "peers/table": ("--data", "{data}", "--environments", "{environments}", "--out", "{results}"),
}  # fmt: skip


def command(name: str, places: dict[str, str]) -> list[str]:
    """The benchmark's command; an option whose interpreter is not there is left out."""
    given: list[str] = []
    for word in BENCHES[name]:
        if word.startswith("{"):
            place = places.get(word.strip("{}"))
            if place is None:
                given.pop()
            else:
                given.append(place)
        else:
            given.append(word)
    return [sys.executable, str(BENCH / f"{name}.py"), *given]


def peers(names: list[str], folder: Path) -> dict[str, str]:
    """The interpreters that these benchmarks ask for, as far as they can be had."""
    found: dict[str, str] = {}
    for peer in ENVIRONMENTS:
        if any(f"{{{peer}}}" in BENCHES[name] for name in names):
            try:
                found[peer] = interpreter(peer, folder)
            except NotInstalled as reason:
                note(f"without {peer}: {reason}")
    return found


def run(name: str, places: dict[str, str], out: Path) -> bool:
    """Whether the benchmark ended well; if so what it printed is stored."""
    began = time.perf_counter()
    done = subprocess.run(command(name, places), stdout=subprocess.PIPE, text=True, check=False)
    took = time.perf_counter() - began
    try:
        result = json.loads(done.stdout) if done.returncode == 0 else None
    except ValueError:
        result = None
    note(f"{name}: {'stored' if result is not None else 'failed'} after {took:.0f} s")
    if result is not None and "/" not in name:  # which stores its own
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    return result is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all by default")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="folder of the parquet data sets")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where results go")
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "veilboost-peers")
    parser.add_argument("--list", action="store_true", help="name them, and run nothing")
    choice = parser.parse_args()
    unknown = [name for name in choice.names if name not in BENCHES]
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}: choose of {', '.join(BENCHES)}")
    names = choice.names or list(BENCHES)
    if choice.list:
        print("\n".join(names))
        return
    with tempfile.TemporaryDirectory() as folder:
        places = {
            "data": str(choice.data),
            "folder": folder,
            "environments": str(choice.environments),
            "results": str(choice.out),
            **peers(names, choice.environments),
        }
        failed = [name for name in names if not run(name, places, choice.out)]
    if choice.out == FOLDER:
        PAGE.write_text(page())
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
