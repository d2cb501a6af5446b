"""Train across three parties, then use the model in XGBoost.

If all owners agree to join their model shares, the model becomes an ordinary XGBoost file. Every row takes the same
branches in the exported model.

    python examples/export_to_xgboost.py
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

from veilboost import VerticalRegressor


def main() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X = X.mask(np.random.default_rng(0).random(X.shape) < 0.05)  # make some values missing
    model = VerticalRegressor(parties=3, n_estimators=50, max_depth=3, learning_rate=0.1).fit(X, y)
    print(f"trained across {len(model.shares_)} parties: R2 {model.score(X, y):.3f} on {len(X)} patients")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.export_xgboost(path)
        print(f"exported: {path.name}, {path.stat().st_size / 1024:.0f} kB")
        try:
            import xgboost
        except ImportError:
            print("xgboost is not installed, so the comparison is skipped (pip install 'veilboost[compare]')")
            return
        booster = xgboost.Booster(model_file=path)
        theirs = booster.predict(xgboost.DMatrix(X))

    ours = model.predict(X)
    print(f"largest relative difference of predictions: {np.abs(theirs / ours - 1).max():.1e}")


if __name__ == "__main__":
    main()
