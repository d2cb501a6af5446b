"""Who is measured, with what protection, in which interpreter, by which script. Two parties everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BINARY, MULTICLASS, REGRESSION = TASKS = ("binary", "multiclass", "regression")
EPSILON = 10.0  # of those that add noise
KEY_BITS = 2048  # of those that have a choice


@dataclass(frozen=True)
class System:
    """One row of the table. `environment` is None for ours; a slow one trains the few trees only."""

    name: str
    protection: str
    script: str
    environment: str | None = None
    setting: str = "vertical"
    runs_as: str = "one process"
    key: str = ""
    writes: tuple[str, ...] = ()  # whose lines in the script a user writes
    tasks: tuple[str, ...] = TASKS
    categories: bool = True  # as such; otherwise their codes are numbers
    slow: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def title(self) -> str:
        return f"{self.name} ({self.setting}, {self.protection}, {self.runs_as})"

    @property
    def apart(self) -> bool:
        """Whether the parties are processes, which a line can be between."""
        return self.runs_as != "one process"


def _ours(
    protocol: str, protection: str, key: str = "", slow: bool = False, tasks: tuple[str, ...] = TASKS, **options: Any
) -> System:
    setting = "horizontal" if protocol == "secagg" else "vertical"
    return System(
        f"VeilBoost `{protocol}`",
        protection,
        "ours_fit.py",
        setting=setting,
        key=key,
        writes=(setting,),
        tasks=tasks,
        slow=slow,
        parameters={"protocol": protocol, "options": options},
    )


def _ours_over_tls(protocol: str, protection: str, key: str = "") -> System:
    return System(
        f"VeilBoost `{protocol}`",
        protection,
        "ours_tls.py",
        runs_as="two processes, TLS",
        key=key,
        parameters={"protocol": protocol, "options": {}},
    )


def _fedtree(setting: str, privacy: str, protection: str, key: str = "", slow: bool = False) -> System:
    return System(
        "FedTree 1.0.5",
        protection,
        "fedtree_fit.py",
        "fedtree",
        setting,
        key=key,
        categories=False,
        slow=slow,
        parameters={"privacy": privacy, "epsilon": EPSILON},
    )


def _central(library: str, name: str) -> System:
    parameters = {"library": library}
    return System(
        name, "none: columns pooled", "central_fit.py", "central", "central", writes=(library,), parameters=parameters
    )


def _federated(setting: str) -> System:
    return System(
        "XGBoost 3.2 federated",
        "none: gradients and model in the clear" if setting == "vertical" else "none: sums in the clear",
        "xgboost_federated.py",
        "central",
        setting,
        "two processes and a server",
    )


def _secretflow(system: str, name: str, protection: str, key: str) -> System:
    return System(
        f"SecretFlow 1.14 {name}",
        protection,
        "secretflow_fit.py",
        "secretflow",
        runs_as="two processes",
        key=key,
        writes=("either", system),
        tasks=(BINARY, REGRESSION),
        categories=False,
        slow=True,
        parameters={"system": system, "key_bits": KEY_BITS},
    )


RING = "ring-LWE, 128 bits"
SYSTEMS = (
    _central("xgboost", "XGBoost 3.2"),
    _central("lightgbm", "LightGBM 4"),
    _central("sklearn", "scikit-learn 1"),
    _federated("vertical"),
    _fedtree("vertical", "none", "none"),
    _fedtree("vertical", "dp", f"its DP, epsilon {EPSILON:g}"),
    _fedtree("vertical", "he", "gradients encrypted", "Paillier 512, fixed", slow=True),
    _secretflow("sgb", "SGB", "gradients encrypted", f"Okamoto-Uchiyama {KEY_BITS}"),
    _secretflow("ss_xgb", "SS-XGB", "all but owners of splits secret-shared; triples from the first party", "SEMI2K"),
    System(
        "sf-heu 0.5.2b0, a tree's exchanges alone",
        "gradients encrypted",
        "heu_ou.py",
        "heu",
        key=f"Okamoto-Uchiyama {KEY_BITS}",
        tasks=(BINARY,),
    ),
    _ours("plain", "none"),
    _ours_over_tls("plain", "none"),
    _ours("lattice", "gradients encrypted", RING),
    _ours_over_tls("lattice", "gradients encrypted", RING),
    _ours("paillier", "gradients encrypted", f"Paillier {KEY_BITS}", slow=True, key_bits=KEY_BITS),
    _ours(
        "sealed",
        f"gradients encrypted, label DP of the whole model, epsilon {EPSILON:g}",
        RING,
        tasks=(BINARY, MULTICLASS),
        eps=EPSILON,
    ),
    _federated("horizontal"),
    _fedtree("horizontal", "none", "none"),
    _fedtree("horizontal", "sa", "its secure aggregation"),
    _ours("secagg", "sums under pairwise masks", "X25519, ChaCha20"),
)
