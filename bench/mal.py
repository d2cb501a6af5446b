"""MAL beside its paper: utility by buckets and epsilon, time beside XGBoost of depth 1, and many participants.

    python bench/mal.py --data DIR [--only utility time scale exact] [--draws 5] [--page docs/explanation/mal.md]

Utility: AUC on test rows, mean and standard deviation over several draws of who holds which row, of noise and of masks,
ten participants. Figure 5 and Table 2 of the paper stand beside ours; the paper's SUSY is a larger draw, and it does
not state its learning rate (here 0.3). Time: processor seconds of all parties together in one process, one thread, no
network; beside it the paper's network, 20 Mbit/s and 100 ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from common import arguments, as_matrix, hold_out, load, note, report
from papers.mal.efficiency import LINE
from papers.mal.efficiency import PUBLISHED as TABLE_3
from papers.mal.federboost import susy_like
from papers.mal.setting import SETS, deal
from papers.mal.setting import auc_of as score
from papers.mal.setting import job as config_of
from papers.mal.utility import PUBLISHED as FIGURE_5
from papers.rows import picked
from papers.target import PAPER_NAMES as TITLES
from veilboost.boost.metrics import metric_named
from veilboost.config import TrainingConfig
from veilboost.data.table import PartyTable
from veilboost.model.joined import JoinedModel, join
from veilboost.party.simulation import SERVER, Simulation, simulate_training

BUCKETS = (4, 8, 12, 16, 18, 20, 24, 28, 32)
EPSILONS = (1, 2, 3, 4, 5, 6, 7, 8)
MARKS = ("<!-- tables of bench/mal.py -->", "<!-- end of tables -->")
PHASES = {"prepare": ("EncryptedExtremes", "GlobalExtremes"), "train": ("MaskedRows", "TrainedModel")}
PAPER_RATIO = {"susy40k": "1.27", "diabetes": "6.9", "codrna": "1.13"}  # its computation alone, without network


def split(folder, name: str) -> tuple[PartyTable, PartyTable]:
    table = load(folder, name)
    if name == "codrna" and (folder / "codrna_test.parquet").exists():
        return table, load(folder, "codrna_test")
    train, test = hold_out(table.rows)
    return table.take(train), table.take(test)


def published(name: str, trees: int) -> dict[str, Any]:
    """The paper: best AUC of Figure 5 with its number of buckets, XGBoost's, and Table 2 without and with epsilon 4."""
    row = picked(FIGURE_5, data=name, trees=trees)[0]
    table_2 = [row["table_2"], row["table_2_dp"]]
    return {"mal_best": row["best"], "q": row["best_buckets"], "xgboost": row["xgboost"], "table2": table_2}


def first_trees(run: Simulation, trees: int) -> JoinedModel:
    """The model after so many trees: boosting only adds."""
    part, records = run.outcome.share, run.outcome.share.records
    kept = {
        field.name: getattr(records, field.name)[records.tree < trees]
        for field in fields(records)
        if field.name != "left_sets"
    }
    skeleton = replace(part.skeleton, trees=part.skeleton.trees[:trees])
    return join({part.party: replace(part, records=replace(records, **kept), skeleton=skeleton)})


def depth_one(table: PartyTable, trees: int, buckets: int) -> xgboost.Booster:
    data = xgboost.QuantileDMatrix(as_matrix(table.columns), table.label, max_bin=buckets, nthread=1)
    parameters = {
        "objective": "binary:logistic",
        "tree_method": "hist",
        "max_depth": 1,
        "max_bin": buckets,
        "nthread": 1,
    }
    return xgboost.train(parameters, data, trees)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


def drawn(train: PartyTable, test: PartyTable, counts: Sequence[int], draws: int, buckets: int, epsilon: float,
          guard: str) -> dict[int, list[float]]:  # fmt: skip
    """AUC by trees, in every draw: who holds which row, noise and masks are drawn anew each time."""
    found: dict[int, list[float]] = {count: [] for count in counts}
    for draw in range(draws):
        config = config_of(max(counts), buckets, epsilon, guard)
        run = simulate_training(deal(train, 10, draw), SERVER, "mal", config)
        for count in counts:
            found[count].append(score(first_trees(run, count), test))
    return found


def utility(folder, counts: Sequence[int], draws: int, sets: Sequence[str]) -> list[dict]:
    """Figure 5 and Table 2: AUC by buckets without noise, and by epsilon at the best number of buckets."""
    rows = []
    for name in sets:
        train, test = split(folder, name)
        central = {
            count: 100 * metric_named("auc").function(
                test.label,
                depth_one(train, count, 256).predict(xgboost.DMatrix(as_matrix(test.columns))).astype(np.float64),
                None,
            )
            for count in counts
        }  # fmt: skip
        for guard in ("merge", "allow") if name == "diabetes" else ("merge",):
            by_buckets = {q: drawn(train, test, counts, draws, q, 0.0, guard) for q in BUCKETS}
            best = {count: max(BUCKETS, key=lambda q: np.mean(by_buckets[q][count])) for count in counts}
            noisy = {
                (q, e): drawn(train, test, counts, draws, q, float(e), guard)
                for q in set(best.values())
                for e in EPSILONS
            }
            for count in counts:
                rows.append(
                    {
                        "set": name, "trees": count, "guard": guard, "draws": draws,
                        "xgboost_depth_1": central[count],
                        "by_buckets": {q: spread(by_buckets[q][count]) for q in BUCKETS},
                        "best_buckets": best[count],
                        "by_epsilon_at_best": {e: spread(noisy[best[count], e][count]) for e in EPSILONS},
                        "paper": published(name, count),
                    }
                )  # fmt: skip
                note(f"{name} T={count} {guard}: {rows[-1]}")
    return rows


def processor_seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Of all threads of this process: what else the machine does is not counted."""
    began = time.process_time()
    result = run()
    return time.process_time() - began, result


def timing(folder, repeats: int) -> list[dict]:
    """Table 3: computation of all parties together beside XGBoost's, and a participant's bytes on the paper's line."""
    rows = []
    for name in SETS:
        train, _ = split(folder, name)
        parts, config = deal(train, 10), config_of(500, 18, 4.0)
        simulate_training(parts, SERVER, "mal", config_of(2, 18, 4.0))  # loads what is loaded when first used
        ours, theirs = [], []
        for _ in range(repeats):  # in turn, so that what else the machine does falls on both alike
            ours.append(processor_seconds(partial(simulate_training, parts, SERVER, "mal", config)))
            theirs.append(processor_seconds(partial(depth_one, train, 500, 18))[0])
        seconds, run = min(ours, key=lambda pair: pair[0])
        entries = run.transcripts["p0"].entries
        bytes_of = {phase: sum(e.size for e in entries if e.message in kinds) for phase, kinds in PHASES.items()}
        rows.append(
            {
                "set": name, "rows": train.rows, "trees": 500, "cpu_seconds": seconds,
                "xgboost_cpu_seconds": min(theirs), "ratio": seconds / min(theirs),
                "train_wall_seconds": sum(result.seconds for result in run.outcome.history),
                **{f"{phase}_bytes_per_participant": size for phase, size in bytes_of.items()},
                **{f"line_{phase}_seconds": LINE.seconds(1, size) for phase, size in bytes_of.items()},
                "line_seconds_of_all_messages": LINE.replay(entries),
                "server_rounds": run.rounds, "messages": run.messages, "paper": picked(TABLE_3, data=name)[0],
            }
        )  # fmt: skip
        note(f"{name}: {rows[-1]}")
    return rows


def scale(repeats: int) -> dict:
    """32 participants, 193333 rows of SUSY's shape, 60 trees (the paper: 5.23 s with network; FederBoost 3103 s)."""
    parts = deal(susy_like(193_333), 32)
    config = config_of(60, 18, 4.0)
    runs = [processor_seconds(partial(simulate_training, parts, SERVER, "mal", config)) for _ in range(repeats)]
    seconds, run = min(runs, key=lambda pair: pair[0])
    note(f"32 participants: {seconds:.2f} processor seconds")
    return {"cpu_seconds": seconds, "bytes": run.bytes_sent, "paper_seconds_with_network": 5.23}


def exact(folder) -> list[dict]:
    """Without noise and guard the model is that of `plain` on pooled rows, however they are partitioned."""
    rows = []
    for name in SETS:
        train, _ = split(folder, name)
        config = config_of(100, 18, 0.0, "allow")
        plain = TrainingConfig(objective="binary", n_estimators=100, max_bin=18, max_depth=1, binning="width")
        expected = join(simulate_training({"all": train}, "all", "plain", plain).shares).sha256()
        for participants in (1, 10, 32):
            began = time.perf_counter()
            run = simulate_training(deal(train, participants), SERVER, "mal", config)
            same = run.model.sha256() == expected
            rows.append(
                {"set": name, "participants": participants, "same": same, "seconds": time.perf_counter() - began}
            )
        note(f"{name}: {[row['same'] for row in rows[-3:]]}")
    return rows


def one(values: dict[str, float]) -> str:
    return f"{values['mean']:.1f} ({values['sd']:.1f})"


def tables(done: dict) -> str:
    """What was measured, as docs/explanation/mal.md shows it."""
    lines: list[str] = []
    if "utility" in done:
        lines += [
            f"| data, trees | XGBoost depth 1 | {' | '.join(f'q = {q}' for q in BUCKETS)} | "
            "paper's best (q), its XGBoost |",
            "|" + "---|" * (len(BUCKETS) + 3),
        ]
        for row in done["utility"]:
            paper = row["paper"]
            cells = [one(row["by_buckets"][q]) for q in BUCKETS]
            reported = f"{paper['mal_best']} ({paper['q']}), {paper['xgboost']}" if row["guard"] == "merge" else ""
            lines.append("| " + " | ".join([titled(row), f"{row['xgboost_depth_1']:.1f}", *cells, reported]) + " |")
        lines += [
            "",
            "With noise, at the best q:",
            "",
            "| data, trees | q | " + " | ".join(f"eps = {e}" for e in EPSILONS) + " | paper at 4 (without) |",
            "|" + "---|" * (len(EPSILONS) + 3),
        ]
        for row in done["utility"]:
            without, at_four = row["paper"]["table2"]
            cells = [one(row["by_epsilon_at_best"][e]) for e in EPSILONS]
            reported = f"{at_four} ({without})" if row["guard"] == "merge" else ""
            lines.append("| " + " | ".join([titled(row), str(row["best_buckets"]), *cells, reported]) + " |")
        lines.append("")
    if "time" in done:
        lines += [
            "Time:",
            "",
            "| data | `mal`, s | XGBoost, s | ratio | paper's ratio | extremes, kB | rows and model, kB | "
            "in transit, s | paper's kB |",
            "|" + "---|" * 9,
        ]
        for row in done["time"]:
            paper = row["paper"]
            sent = [row["line_prepare_seconds"], row["line_train_seconds"]]
            cells = [
                TITLES[row["set"]], f"{row['cpu_seconds']:.2f}", f"{row['xgboost_cpu_seconds']:.2f}",
                f"{row['ratio']:.2f}", PAPER_RATIO[row["set"]], f"{row['prepare_bytes_per_participant'] / 1e3:.0f}",
                f"{row['train_bytes_per_participant'] / 1e3:.0f}", " + ".join(f"{each:.2f}" for each in sent),
                f"{paper['prep_kb']}, {paper['train_kb']}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    if "scale" in done:
        lines += [f"32 participants, 193333 rows, 60 trees: {done['scale']['cpu_seconds']:.2f} s of computation.", ""]
    return "\n".join(lines)


def titled(row: dict) -> str:
    return f"{TITLES[row['set']]}, {row['trees']}{', unmasked' if row['guard'] == 'allow' else ''}"


def write_page(page: Path, text: str) -> None:
    """Put the tables where the page has its marks."""
    content = page.read_text(encoding="utf-8")
    before, rest = content.split(MARKS[0], 1)
    page.write_text(before + MARKS[0] + "\n\n" + text + "\n" + MARKS[1] + rest.split(MARKS[1], 1)[1], encoding="utf-8")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--trees", type=int, nargs="*", default=[500, 1000])
    parser.add_argument("--draws", type=int, default=5, help="how often rows are partitioned, and noise drawn, again")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS, help="data sets of the utility tables")
    parser.add_argument("--only", nargs="*", default=["exact", "time", "scale", "utility"])
    parser.add_argument("--page", type=Path, help="also write the tables into this page, between its marks")
    options = parser.parse_args()
    done: dict = {}
    if "exact" in options.only:
        done["exact"] = exact(options.data)
    if "time" in options.only:
        done["time"] = timing(options.data, options.repeats)
    if "scale" in options.only:
        done["scale"] = scale(options.repeats)
    if "utility" in options.only:
        done["utility"] = utility(options.data, options.trees, options.draws, options.sets)
    note(tables(done))
    if options.page is not None:
        write_page(options.page, tables(done))
    report(done)


if __name__ == "__main__":
    main()
