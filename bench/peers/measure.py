"""What the scripts of this folder share. They run in the peers' interpreters: nothing but NumPy is there for sure."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def given() -> tuple[Any, Any, dict[str, Any]]:
    """TRAIN.npz, TEST.npz (each with x and y) and PARAMETERS.json, as the command line names them.

    The parameters' `task` is binary, multiclass (y is a class from 0, of `classes`) or regression; `categorical` lists
    the columns of x that are codes of categories.
    """
    with open(sys.argv[3]) as file:
        return np.load(sys.argv[1]), np.load(sys.argv[2]), json.load(file)


def print_result(result: dict[str, Any]) -> None:
    """Print the line that the caller reads."""
    print("RESULT " + json.dumps(result), flush=True)


METRICS = {"binary": "AUC", "multiclass": "accuracy", "regression": "R2"}  # of a task; larger is better in all


def quality(parameters: dict[str, Any], label: np.ndarray, score: np.ndarray) -> float:
    """Of scores of test rows: a number for each row, or for several classes one for each class."""
    task = parameters.get("task", "binary")
    score = np.asarray(score, dtype=np.float64)
    if task == "multiclass":
        return float((score.reshape(len(label), -1).argmax(axis=1) == label).mean())
    if task == "regression":
        return float(1.0 - ((label - score.ravel()) ** 2).sum() / ((label - label.mean()) ** 2).sum())
    return auc(label, score.ravel())


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """The share of pairs in the right order; equal scores count half."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = np.asarray(label) > 0.5
    ones, zeros = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def xgboost_objective(parameters: dict[str, Any]) -> dict[str, Any]:
    """XGBoost's parameters for the task."""
    task = parameters.get("task", "binary")
    if task == "multiclass":
        return {"objective": "multi:softprob", "num_class": parameters["classes"]}
    return {"objective": "binary:logistic" if task == "binary" else "reg:squarederror"}


def categorical(parameters: dict[str, Any]) -> list[int]:
    """Which columns are codes of categories."""
    return parameters.get("categorical", [])


def peak_megabytes() -> float:
    """Peak memory of this process alone; `getrusage` starts from the parent's."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))


def loopback_bytes() -> int:
    """What the loopback has carried, headers counted. Of these programs alone only in a network of their own."""
    with open("/proc/net/dev") as file:
        fields = next(line for line in file if line.strip().startswith("lo:")).split(":")[1].split()
    return int(fields[8])


def processor_seconds(pid: int) -> float:
    """Of another process."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_difference(fit: Callable[[int], Any], parameters: dict[str, Any]) -> tuple[dict[str, float], Any, Any]:
    """Seconds per tree of `fit(trees)`, and both models: what both fits share (reading, dividing, binning) cancels."""
    few, many = parameters.get("few_trees", 5), parameters["trees"]

    def timed(trees: int) -> tuple[float, float, Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        model = fit(trees)
        return time.perf_counter() - wall, time.process_time() - cpu, model

    if parameters.get("warm_up", True):
        timed(few)  # loads what is loaded when it is first used
    repeats = parameters.get("repeats", 1)
    short, long = [timed(few) for _ in range(repeats)], [timed(many) for _ in range(repeats)]

    def per_tree(at: int) -> float:
        return (min(run[at] for run in long) - min(run[at] for run in short)) / (many - few)

    fit_seconds = min(run[0] for run in long)
    cost = {"seconds_per_tree": per_tree(0), "cpu_seconds_per_tree": per_tree(1), "fit_seconds": fit_seconds}
    return cost, short[-1][2], long[-1][2]
