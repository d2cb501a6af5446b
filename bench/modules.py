"""How many modules of the package execute a function in two everyday commands.

    python bench/modules.py

What runs while modules are imported does not count: a module whose functions run is one that a reader of that path
must look at.
`train` counts the driver and a daemon together, over TLS, without making certificates.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from against_worker import COMMAND, over_tls
from common import note, report

TRACER = """
import atexit, os, sys, threading
seen = set()
def look(frame, event, arg):
    if event == "call" and frame.f_code.co_flags & 2 and frame.f_code.co_name[0] != "<":  # 2: has locals of its own
        name = frame.f_globals.get("__name__") or ""
        if name.startswith("veilboost") and name not in seen:
            caller = frame.f_back
            while caller is not None and caller.f_code.co_name != "<module>":
                caller = caller.f_back
            if caller is None or caller.f_globals.get("__name__") == "__main__":
                seen.add(name)
def write_modules():
    sys.setprofile(None)
    with open(os.environ["VEILBOOST_MODULES"], "a") as file:
        file.writelines(name + "\\n" for name in list(seen))
atexit.register(write_modules)
threading.setprofile(look)
sys.setprofile(look)
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(TRACER)
        modules_file = folder / "modules.txt"
        os.environ |= {"PYTHONPATH": str(folder), "VEILBOOST_MODULES": str(modules_file)}
        rng = np.random.default_rng(0)
        table = {f"x{at}": rng.normal(size=400) for at in range(6)}
        label = (sum(table.values()) > 0).astype(np.int64)
        pq.write_table(pa.table({"id": np.arange(400), **table, "label": label}), folder / "all.parquet")
        words = ["--data", "all.parquet", "--id", "id", "--label", "label", "--protocol", "lattice", "--trees", "3"]
        subprocess.run([COMMAND, "simulate", *words, "--json"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        simulate = sorted(set(modules_file.read_text().split()))
        daemon, train = over_tls(folder, folder / "all.parquet")
        modules_file.unlink()  # of the commands that made certificates
        train(3)
        daemon.terminate()
        daemon.wait()
        trained = sorted(set(modules_file.read_text().split()))
        note(f"simulate --protocol lattice: {len(simulate)} modules; train over TLS: {len(trained)}")
        report({"simulate": simulate, "train": trained})


if __name__ == "__main__":
    main()
