"""A small table: training time, CPU time and bytes of `veilboost demo`, with three parties as processes over TLS.

    python bench/demo.py [--against COMMIT] [--repeats 6] [--layouts auto runs] [--line wan] [--json]

2,457 rows, 60 trees of depth 5, two passive parties, one thread each. `seconds` are those of the stage in which trees
are grown, `cpu_seconds` those of all three processes in the whole job, `mb_sent` what the bank sends to both others,
`mb_received` what it receives from them. With `--line` the connections of the bank go through the proxy of `line.py`.
`--against` builds another commit and measures both in turn, so that other load on the machine affects both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from against import ROOT, built, git
from blocks import table
from common import machine, note, today
from line import LINES

WORKER = ROOT / "bench" / "demo_worker.py"
FIGURES = ("seconds", "cpu_seconds", "mb_sent", "mb_received")


def measured(python: str, layout: str, line: str) -> dict[str, Any]:
    words = [python, str(WORKER), layout, line]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=one_thread)
    if done.returncode:
        sys.exit(f"the demo failed with {python}:\n{done.stderr}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="measure this commit in turn with the checkout")
    parser.add_argument("--repeats", type=int, default=6, help="measurements of each; the median counts")
    parser.add_argument("--layouts", nargs="+", default=["auto"], help="layouts of the checkout")
    parser.add_argument("--line", choices=["none", *LINES], default="none")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    with ExitStack() as stack:
        here = git("rev-parse", "--short", "HEAD")
        kinds = [(here, layout, sys.executable) for layout in options.layouts]
        if options.against:
            commit = git("rev-parse", "--short", f"{options.against}^{{commit}}")
            kinds.append((commit, "auto", stack.enter_context(built(commit))))
        found: dict[tuple[str, str], list[dict[str, Any]]] = {kind[:2]: [] for kind in kinds}
        for repeat in range(options.repeats):
            for commit, layout, python in kinds if repeat % 2 == 0 else reversed(kinds):
                found[commit, layout].append(measured(python, layout, options.line))
                note(f"{commit} {layout}: {json.dumps(found[commit, layout][-1])}")
    rows = [
        {"commit": commit, "layout": layout}
        | {figure: statistics.median(value[figure] for value in values) for figure in FIGURES}
        for (commit, layout), values in found.items()
    ]
    if options.json:
        print(json.dumps({"machine": machine(), "measured": today(), "line": options.line, "rows": rows}, indent=2))
    else:
        shown = [(row["commit"], row["layout"], *(f"{row[figure]:.3g}" for figure in FIGURES)) for row in rows]
        print(table(("commit", "layout", "s, training", "CPU s, job", "MB sent", "MB received"), shown))


if __name__ == "__main__":
    main()
