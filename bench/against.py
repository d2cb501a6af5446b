"""Whether this checkout is slower than another commit: CPU seconds per tree of the key benches, side by side.

    python bench/against.py COMMIT [--rounds 7] [--benches plain lattice ...] [--data FILE] [--json]

`plain`, `lattice`, `sealed` and `secagg` train in one process, `tls` is `lattice` with two parties as processes over
mutual TLS on loopback; CPU seconds are those of all parties, of the trees after the first. The other commit is built in
a temporary worktree, which takes a few minutes. It borrows the dependencies of this interpreter, which must have this
checkout installed. Both checkouts run in turn, in fresh processes, so that other load on the machine affects both.
`ratio` is the median over rounds of here / there; its interval holds the true median with the probability that is
shown, whatever the distribution of the noise. Data: default_credit, or made-up rows where it is not there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from common import DEFAULT_DATA, machine, note, today

ROOT = Path(__file__).resolve().parents[1]
WORKER = ROOT / "bench" / "against_worker.py"
TREES = {"plain": 400, "lattice": 8, "tls": 8, "sealed": 8, "secagg": 200}  # of one measurement
FEWEST_ROUNDS = 6  # with fewer, no interval holds the median with a probability of 95 %


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True, text=True).stdout.strip()


@contextmanager
def built(commit: str) -> Iterator[str]:
    """The interpreter of an environment with that commit installed; it is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="against-") as name:
        folder = Path(name)
        tree, venv = folder / "tree", folder / "venv"
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
            packages = next(venv.glob("lib/python*/site-packages"))
            # A path in a .pth file lends the packages, but not the editable install of this checkout.
            (packages / "dependencies.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
            python = str(venv / "bin" / "python")
            pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--ignore-installed", str(tree)], check=True)
            yield python
        finally:
            git("worktree", "remove", "--force", str(tree))


def measured(python: str, bench: str, data: Path) -> float:
    words = [python, str(WORKER), bench, str(data), str(TREES[bench])]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=one_thread)
    if done.returncode:
        sys.exit(f"{bench} failed with {python}:\n{done.stderr}")
    return float(done.stdout)


def interval_of_median(values: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest pair of order statistics that holds the median with at least 95 %, and that probability.

    Each value is above the median with a chance of one half, so how many are is binomial.
    """
    ordered, count = sorted(values), len(values)

    def coverage(cut: int) -> float:
        return 1 - 2 * sum(math.comb(count, k) for k in range(cut + 1)) / 2**count

    cut = max(cut for cut in range((count + 1) // 2) if cut == 0 or coverage(cut) >= 0.95)
    return ordered[cut], ordered[count - 1 - cut], coverage(cut)


def compared(here: Sequence[float], there: Sequence[float]) -> dict[str, Any]:
    ratios = [ours / theirs for ours, theirs in zip(here, there, strict=True)]
    low, high, probability = interval_of_median(ratios)
    verdict = "slower" if low > 1 else "faster" if high < 1 else "no difference shown"
    return {
        "here": statistics.median(here),
        "there": statistics.median(there),
        "ratio": statistics.median(ratios),
        "interval": [low, high],
        "probability": probability,
        "verdict": verdict,
        "all": {"here": list(here), "there": list(there)},
    }


def made_up(file: Path, rows: int = 24_000, columns: int = 23) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(columns, rows)).astype(np.float32)
    label = (x[0] + x[1] * x[-1] + rng.normal(size=rows) > 0).astype(np.int64)
    table = {"id": np.arange(rows)} | {f"x{k}": values for k, values in enumerate(x)} | {"label": label}
    pq.write_table(pa.table(table), file)
    return file


def table_of(result: dict[str, Any]) -> str:
    lines = [f"{'bench':8} {'here':>10} {'there':>10} {'ratio':>7}  interval"]
    for bench, found in result["benches"].items():
        low, high = found["interval"]
        lines.append(
            f"{bench:8} {found['here']:10.4f} {found['there']:10.4f} {found['ratio']:7.3f}  "
            f"[{low:.3f}, {high:.3f}] at {found['probability']:.1%}: {found['verdict']}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument(
        "--rounds", type=int, default=7, help=f"measurements of each checkout, at least {FEWEST_ROUNDS}"
    )
    parser.add_argument("--benches", nargs="+", choices=list(TREES), default=list(TREES))
    parser.add_argument("--data", type=Path, help="parquet file with the columns id and label (0 or 1) and features")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    if options.rounds < FEWEST_ROUNDS:
        parser.error(f"--rounds must be at least {FEWEST_ROUNDS}")
    commit = git("rev-parse", "--short", f"{options.commit}^{{commit}}")
    here: dict[str, list[float]] = {bench: [] for bench in options.benches}
    there: dict[str, list[float]] = {bench: [] for bench in options.benches}
    with tempfile.TemporaryDirectory() as folder, built(commit) as other:
        data = options.data or DEFAULT_DATA / "default_credit.parquet"
        if options.data is None and not data.exists():
            data = made_up(Path(folder) / "made_up.parquet")
        checkouts = [(sys.executable, here), (other, there)]
        for number in range(options.rounds):
            for bench in options.benches:
                for python, found in checkouts if number % 2 == 0 else reversed(checkouts):
                    found[bench].append(measured(python, bench, data))
                note(f"round {number + 1} {bench}: {here[bench][-1]:.4f} here, {there[bench][-1]:.4f} there")
    result = {
        "machine": machine(),
        "measured": today(),
        "commit": commit,
        "data": data.stem,
        "unit": "CPU seconds of all parties per tree",
        "benches": {bench: compared(here[bench], there[bench]) for bench in options.benches},
    }
    print(json.dumps(result, indent=2) if options.json else table_of(result))


if __name__ == "__main__":
    main()
