"""What `bench/encryption.py` is to show, from its figures: ratios with their limits, and the table of the page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from blocks import replace_block, table
from common import machine

MEGABYTES = 75.0
PROTOTYPE = "prototype"


def claims(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry per claim whose figures were measured. `least` and `most` are limits; `met` says whether it holds."""
    ours = result["lattice"]["auto"]
    cpu, wall = ours["cpu_seconds_per_tree"], ours["seconds_per_tree_two_threads"]
    found: list[dict[str, Any]] = []

    def claim(name: str, value: float, *, least: float | None = None, most: float | None = None) -> None:
        met = (least is None or value >= least) and (most is None or value <= most)
        found.append({"name": name, "value": value, "least": least, "most": most, "met": met})

    claim("megabytes per tree, both directions", ours["megabytes_per_tree"], most=MEGABYTES)
    if paillier := result.get("paillier"):
        spent = paillier["cpu_seconds_per_tree"]
        claim("`paillier` / `lattice`, CPU", spent / cpu, least=25)
        claim("`paillier` / sum of its unit costs, CPU", spent / paillier["sum_of_units"]["all"], most=1.5)
    if prototype := result.get("prototype_cpu_seconds_per_tree"):
        claim(f"`lattice` / {PROTOTYPE}'s exchanges, CPU", cpu / prototype, most=1)
        kernel = result["kernel_cpu_ms"]
        claim(f"kernel / {PROTOTYPE}'s kernel, CPU", kernel["auto"]["all"] / kernel["prototype"]["all"], most=1)
    for key, name, least in (
        ("heu_ou", "sf-heu OU, exchanges only / `lattice`, CPU", 10),
        ("fedtree_he", "FedTree, Paillier 512 / `lattice`, CPU", 75),
    ):
        if peer := result.get(key):
            claim(name, peer["cpu_seconds_per_tree"] / cpu, least=least)
    if peer := result.get("secretflow_sgb"):
        tls = result["lattice_tls"]["threads_2"]["seconds_per_tree_tls"]
        claim("SecretFlow SGB OU / `lattice` over TLS, wall", peer["seconds_per_tree"] / tls, least=40)
    if peer := result.get("xgboost_federated"):
        claim("`lattice` / XGBoost federated unencrypted, wall", wall / peer["seconds_per_tree"], most=5)
        for threads, tls in result["lattice_tls"].items():
            name = f"`lattice` over TLS ({threads.replace('_', ' ')}) / XGBoost federated unencrypted, wall"
            claim(name, tls["seconds_per_tree_tls"] / peer["seconds_per_tree"], most=5)
    same = [tls["same_model"] for tls in result["lattice_tls"].values()]
    claim("models over TLS equal to those in one process, of those compared", sum(same), least=len(same))
    if identity := result.get("identity"):
        same = [entry[protocol] for entry in identity.values() for protocol in ("lattice", "paillier")]
        claim("models equal to `plain`'s, of those compared", sum(same), least=len(same))
    return found


def systems(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Rows of the table: who, protected how, wall and CPU seconds, megabytes."""

    def shown(value: float | None) -> str:
        return "" if value is None else f"{value:.3g}"

    rows = []
    for engine, ours in result["lattice"].items():
        if engine != "engines":
            name = f"`lattice`, one process ({'fastest engine' if engine == 'auto' else engine})"
            figures = (ours["seconds_per_tree_two_threads"], ours["cpu_seconds_per_tree"], ours["megabytes_per_tree"])
            rows.append((name, "ring-LWE, 128 bits", *map(shown, figures)))
    for threads, tls in result["lattice_tls"].items():
        name = f"`lattice`, two processes over TLS ({threads.replace('_', ' ')} each)"
        rows.append((name, "ring-LWE, 128 bits", shown(tls["seconds_per_tree_tls"]), "", ""))
    if ours := result.get("paillier"):
        figures = (None, ours["cpu_seconds_per_tree"], ours["megabytes_per_tree"])
        rows.append(("`paillier`, one process", f"Paillier {ours['key_bits']}", *map(shown, figures)))
    for key, name, protection in (
        ("heu_ou", "sf-heu 0.5.2b0, the exchanges alone", "Okamoto-Uchiyama 2048"),
        ("fedtree_he", "FedTree 1.0.5 vertical, one process", "Paillier 512"),
        ("secretflow_sgb", "SecretFlow 1.14 SGB, two processes", "Okamoto-Uchiyama 2048"),
        ("xgboost_federated", "XGBoost 3.2 federated, two processes", "none"),
    ):
        if peer := result.get(key):
            rows.append(
                (name, protection, shown(peer["seconds_per_tree"]), shown(peer.get("cpu_seconds_per_tree")), "")
            )
    return rows


def markdown(result: Mapping[str, Any], page: Path) -> None:
    """Both tables into the page."""
    here, settings = machine(), result["settings"]
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, {here['cores']} cores of {here['cpu']}, engines "
        f"{', '.join(result['lattice']['engines'])}; {settings['rows']} rows, depth {settings['depth']}.",
        "",
        table(("system", "encryption", "seconds per tree", "CPU seconds per tree", "MB per tree"), systems(result)),
        "",
        table(
            ("ratio", "measured", "aim", "met"),
            [
                (
                    claim["name"],
                    f"{claim['value']:.3g}",
                    f"at least {claim['least']:g}" if claim["least"] is not None else f"at most {claim['most']:g}",
                    "yes" if claim["met"] else "**no**",
                )
                for claim in result["claims"]
                if PROTOTYPE not in claim["name"]  # nobody who reads the page has it
            ],
        ),
    ]
    replace_block(page, "encryption", "\n".join(lines))
