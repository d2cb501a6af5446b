"""A bank, a shop and a telecom predict loan defaults together.

The three have different columns about partly the same customers, each in its own order. Rows are matched by
`customer_id`. The example prints the AUC of the bank alone, with one partner and with both, on the same test
customers, and each party's share of the model's gain.

    python examples/bank_shop_telecom.py
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.metrics import roc_auc_score

from veilboost import VerticalClassifier, make_demo_data
from veilboost.model.explain import importance, importance_by_party


def main() -> None:
    data = make_demo_data(6000, random_state=1)
    bank = data["bank"]
    # Prediction needs customers that all parties know; training leaves the others out by itself.
    for partner in ("shop", "telecom"):
        bank = bank.filter(pc.is_in(bank["customer_id"], value_set=data[partner]["customer_id"].combine_chunks()))
    train, test = split(bank)
    truth = test["default"].to_numpy()
    print(f"{data['bank'].num_rows} customers of the bank, {bank.num_rows} of them known to all three")
    print(f"{train.num_rows} for training, {test.num_rows} for testing\n")

    for partners in ((), ("shop",), ("telecom",), ("shop", "telecom")):
        tables = {name: data[name] for name in partners}
        model = VerticalClassifier(id="customer_id", n_estimators=60, max_depth=4, learning_rate=0.1)
        model.fit({"bank": train, **tables}, "default")
        risk = model.predict_proba({"bank": test, **tables})[:, 1]
        print(f"{' + '.join(('bank', *partners)):24} AUC {roc_auc_score(truth, risk):.4f}")

    print("\nshare of the gain, all three together")
    for party, share in importance_by_party(model.joined_, "total_gain"):
        print(f"  {party:10} {share:6.1%}")
    print("\nthe five most important columns")
    for party, column, share in importance(model.joined_, "total_gain")[:5]:
        print(f"  {party:10} {column:22} {share:6.1%}")


def split(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Three quarters for training, one for testing."""
    order = np.random.default_rng(0).permutation(table.num_rows)
    cut = 3 * len(order) // 4
    return table.take(order[:cut]), table.take(order[cut:])


if __name__ == "__main__":
    main()
