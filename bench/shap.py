"""Contributions of joint models between parties over TLS, next to XGBoost's `pred_contribs` on the exported model.

    python bench/shap.py [--data DIR] [--trees 20] [--rows 1000]

Real data with categories and missing values (adult), several classes (dry_bean) and a regression
(california_housing), with two and three parties as processes over mutual TLS on loopback. The shop shows the names of
its columns, the telecom only its sum. `largest` is the largest difference of a contribution, or of a sum, divided by
the largest contribution if that is above 1 (XGBoost computes with 32 bits); `margin` is the largest difference between
a margin and the sum of its contributions.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import xgboost as xgb

from common import arguments, note, report
from settings import write_settings
from veilboost.model.export import to_xgboost_json
from veilboost.model.joined import join
from veilboost.party.predicting import LivePredictor, load_rows
from veilboost.party.runs import RunFolder
from veilboost.party.settings import load_party
from veilboost.types import PartyName

SETS = {"adult": "binary", "dry_bean": "multiclass", "california_housing": "regression"}
PARTIES: tuple[PartyName, ...] = ("bank", "shop", "telecom")
LEVELS = {"bank": "none", "shop": "names", "telecom": "party"}
COMMAND = str(Path(sys.executable).parent / "veilboost")


def run(folder: Path, *words: str) -> None:
    subprocess.run([COMMAND, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def serve(folder: Path, party: PartyName, stack: ExitStack) -> str:
    """Start a daemon, which is stopped at the end; its address."""
    words = [COMMAND, "party", "serve", "--config", f"{party}.toml", "--json"]
    daemon = stack.enter_context(
        subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    )
    stack.callback(daemon.terminate)
    assert daemon.stdout is not None
    return json.loads(daemon.stdout.readline())["address"]


def measured(data: Path, objective: str, parties: tuple[PartyName, ...], trees: int, rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="shap-") as name, ExitStack() as stack:
        folder = Path(name)
        run(folder, "certs", "init", "--folder", "certs")
        table = pq.read_table(data)
        features = [column for column in table.column_names if column not in ("id", "label")]
        owned = {party: features[at :: len(parties)] for at, party in enumerate(parties)}
        for party in parties:
            run(folder, "certs", "issue", party, "--folder", "certs")
            pq.write_table(
                table.select(["id", *owned[party], *(["label"] if party == "bank" else [])]),
                folder / f"{party}.parquet",
            )
            write_settings(folder, party, parties, ["plain"], threads=None, explanations=LEVELS[party])
        addresses = {party: serve(folder, party, stack) for party in parties[1:]}
        peers = "".join(f'[parties.{party}]\naddress = "{address}"\n' for party, address in addresses.items())
        (folder / "job.toml").write_text(
            f'name = "job"\nprotocol = "plain"\nalignment = "ecdh"\n[parties.bank]\nrole = "active"\n{peers}'
            f'[training]\nobjective = "{objective}"\nn_estimators = {trees}\nmax_depth = 6\n'
        )
        run(folder, "train", "job.toml", "--config", "bank.toml")
        predictor = LivePredictor(load_party(folder / "bank.toml"), RunFolder(folder / "runs-bank" / "job"))
        pq.write_table(table.slice(0, rows).select(["id", *owned["bank"]]), folder / "new.parquet")
        _, found = predictor.explain(predictor.load(folder / "new.parquet"))
        shares = {party: RunFolder(folder / f"runs-{party}" / "job").load_share() for party in parties}
        model = join(shares)
        pq.write_table(table.slice(0, rows), folder / "pooled.parquet")
        columns = load_rows(folder / "pooled.parquet", "id", model.columns).columns
        booster = xgb.Booster(model_file=bytearray(json.dumps(to_xgboost_json(model)).encode()))
        encoded = np.stack([values for share in model.shares for values in share.encode(columns)], axis=1)
        theirs = booster.predict(xgb.DMatrix(encoded, feature_names=booster.feature_names), pred_contribs=True)
        theirs = (theirs if theirs.ndim == 3 else theirs[:, None]).transpose(0, 2, 1)[:, :-1]
        ours = found.values if found.values.ndim == 3 else found.values[..., None]
        names = [info.name for info in model.columns]
        sums = {
            feature: theirs[:, [names.index(each) for each in (owned.get(feature) or [feature])]].sum(axis=1)
            for feature in found.feature_names
        }
        differences = [np.abs(ours[:, at] - sums[feature]).max() for at, feature in enumerate(found.feature_names)]
        base = np.broadcast_to(np.asarray(found.base_values).reshape(-1, ours.shape[2]), ours[:, 0].shape)
        margins = np.abs(ours.sum(axis=1) + base - model.margins(columns).T)
        scale = max(1.0, float(np.abs(theirs).max()))
        return {
            "largest": float(max(differences)) / scale,
            "margin": float(margins.max()),
            "features": len(differences),
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1000)
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name, objective in SETS.items():
        for parties in (PARTIES[:2], PARTIES):
            result = measured(given.data / f"{name}.parquet", objective, parties, given.trees, given.rows)
            found.append({"data": name, "objective": objective, "parties": len(parties), **result})
            note(json.dumps(found[-1]))
    report({"trees": given.trees, "rows": given.rows, "results": found})


if __name__ == "__main__":
    main()
