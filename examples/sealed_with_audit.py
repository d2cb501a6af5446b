"""Train with `lattice` and with `sealed`, then attack both runs with everything that each party received.

`lattice` encrypts gradients and gives the exact model. `sealed` also bounds what anyone learns of a label, by
differential privacy with the budget `eps` for the whole job. Neither hides the left/right assignments of winning
splits, and the audit shows it. The audit needs the tables of all parties to score its guesses: use it on a simulation,
or on a trial that all owners agreed to.

    python examples/sealed_with_audit.py
"""

from veilboost import load_table, make_demo_data
from veilboost.align.clear import align_by_id
from veilboost.audit.attacks import audit
from veilboost.audit.sources import views_of_simulation
from veilboost.config import TrainingConfig
from veilboost.party.simulation import simulate_training

PROTOCOLS = {"lattice": {}, "sealed": {"eps": 1.0}}


def main() -> None:
    demo = make_demo_data(1500)
    own = {
        name: load_table(demo[name], id="customer_id", label="default" if name == "bank" else None)
        for name in ("bank", "shop")
    }
    tables = align_by_id(own)
    for protocol, options in PROTOCOLS.items():
        config = TrainingConfig(
            objective="binary", categories="ordinal", n_estimators=5, max_depth=3, max_bin=16, options=options
        )
        # The audit replays the messages, so the run keeps their contents.
        run = simulate_training(tables, "bank", protocol, config, record="payload")
        print(f"{protocol}: {len(run.model.skeleton.trees)} trees, {run.bytes_sent / 1e6:.1f} MB sent")
        for found in audit(*views_of_simulation(run, tables)):
            result = found.outcome
            print(
                f"  {found.adversary} attacks {found.victim}: {found.attack}: {found.verdict} "
                f"({result.metric} {result.value:.2f}, without the run {result.baseline:.2f})"
            )


if __name__ == "__main__":
    main()
