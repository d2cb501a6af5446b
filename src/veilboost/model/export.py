"""Export a joined model as an XGBoost model file, in the JSON format of XGBoost 3.2.

The file gives the same predictions as the model, up to float32 sums. It contains the columns, thresholds and categories
of all parties, so export a model only if all owners consent.

Rows for the exported model are numbers: the columns in the order of `feature_names`, NaN for missing, and for
a categorical column the code of the category. The codes are in the model's attributes:

`veilboost.categories`
    JSON; for each categorical column the list of its categories. A category's code is its position in the list.
    Pass a category that is not listed as NaN: XGBoost sends an unknown code left, VeilBoost treats it as missing.
`veilboost.columns`
    JSON; the columns' original names, by feature. `feature_names` has `_` for characters that XGBoost refuses.
`veilboost.classes`
    JSON; the classes' names, by class number, or null.
`veilboost.sha256`
    The hash of the model that was exported.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from veilboost.boost.grower import LEAF
from veilboost.boost.loss import MEAN_FLOOR
from veilboost.boost.objective import LOSSES, BinaryLogistic, MulticlassSoftmax, sigmoid
from veilboost.boost.regression import (
    AbsoluteError,
    LogLink,
    Poisson,
    PseudoHuber,
    QuantileError,
    Tweedie,
)
from veilboost.errors import NotExportable
from veilboost.model.joined import JoinedModel, JoinedTree
from veilboost.types import AnyArray, Float64Array

_XGBOOST_VERSION = (3, 2, 0)  # the version whose format this is
_NO_PARENT = 2_147_483_647  # XGBoost's mark of a root
_NUMERIC_SPLIT, _CATEGORICAL_SPLIT = 0, 1
_REFUSED_IN_NAMES = "[]<"
_LARGEST_BASE_ERROR = 1e-6

_KNOWN = {objective.name: objective for objective in LOSSES}


def export_xgboost(joined: JoinedModel, path: str | os.PathLike[str]) -> None:
    """Write a model file for `xgboost.Booster(model_file=path)`.

    The file predicts what the model predicts, up to float32 sums. It holds the columns, thresholds and categories of
    all parties: write it only if all owners consent.

    Parameters
    ----------
    joined : JoinedModel
        The shares of all parties, combined by `join`.
    path : str or path-like
        The file to write; its name should end in `.json`.

    Raises
    ------
    NotExportable
        If XGBoost has no objective for the model, or cannot hold its base score.

    Examples
    --------
    >>> from veilboost import export_xgboost, join, load_model
    >>> export_xgboost(join(load_model("model")), "model.json")  # doctest: +SKIP
    """
    # XGBoost's reader takes UTF-8 and leaves JSON's backslash-u escapes as they stand.
    text = json.dumps(to_xgboost_json(joined), allow_nan=False, ensure_ascii=False)
    Path(path).write_text(text, encoding="utf-8")


def to_xgboost_json(joined: JoinedModel) -> dict[str, Any]:
    """The content of the file that `export_xgboost` writes, with the same exceptions.

    Parameters
    ----------
    joined : JoinedModel
        The shares of all parties, combined by `join`.

    Returns
    -------
    dict
        XGBoost's JSON model.
    """
    if joined.skeleton.objective not in _KNOWN:
        raise NotExportable(f"XGBoost has no objective for {joined.skeleton.objective!r}")
    classes = joined.skeleton.trees_per_round
    scores, shifts = _base_scores(joined.skeleton.objective, joined.skeleton.base_margin)
    rounds = len(joined.trees) // classes
    trees = [
        # The trees of the first round, one per class, compensate for what the base scores cannot express.
        _tree(joined, number, shift=float(shifts[number]) if number < classes else 0.0)
        for number in range(len(joined.trees))
    ]
    return {
        "version": list(_XGBOOST_VERSION),
        "learner": {
            "attributes": _attributes(joined),
            "feature_names": _feature_names(joined),
            "feature_types": _feature_types(joined),
            "gradient_booster": {
                "name": "gbtree",
                "model": {
                    # XGBoost's own store of category names; empty, because rows contain codes.
                    "cats": {"enc": [], "feature_segments": [], "sorted_idx": []},
                    "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
                    "iteration_indptr": [classes * done for done in range(rounds + 1)],
                    "tree_info": [number % classes for number in range(len(trees))],  # the class of each tree
                    "trees": trees,
                },
            },
            "learner_model_param": {
                "base_score": "[" + ",".join(repr(score) for score in scores.tolist()) + "]",
                "boost_from_average": "0",  # the base score is given and must not be estimated again
                "num_class": str(classes if classes > 1 else 0),
                "num_feature": str(len(joined.columns)),
                "num_target": "1",
            },
            "objective": _objective(joined),
        },
    }


def _objective(joined: JoinedModel) -> dict[str, Any]:
    """XGBoost's name of the loss with its parameters."""
    name, config = joined.skeleton.objective, joined.skeleton.config
    parameters: dict[str, dict[str, Any]] = {
        MulticlassSoftmax.name: {"softmax_multiclass_param": {"num_class": str(joined.skeleton.trees_per_round)}},
        AbsoluteError.name: {},
        QuantileError.name: {"quantile_loss_param": {"quantile_alpha": f"[{config.quantile_alpha!r}]"}},
        PseudoHuber.name: {"pseudo_huber_param": {"huber_slope": repr(config.huber_slope)}},
        Poisson.name: {"poisson_regression_param": {"max_delta_step": repr(config.max_delta_step)}},
        Tweedie.name: {"tweedie_regression_param": {"tweedie_variance_power": repr(config.tweedie_variance_power)}},
    }
    of_most = {"reg_loss_param": {"scale_pos_weight": repr(config.scale_pos_weight)}}
    return {"name": _KNOWN[name].xgboost_name, **parameters.get(name, of_most)}


def _base_scores(objective: str, margin: Float64Array) -> tuple[AnyArray, Float64Array]:
    """The float32 base scores for XGBoost, and the margin error to compensate.

    XGBoost stores predictions, not margins, and converts them back in float32. Near a probability of 1 that is
    too coarse: 0.999999 as float32 is a margin off by 0.07.
    """
    if objective == BinaryLogistic.name:
        score = np.clip(sigmoid(margin), MEAN_FLOOR, 1 - MEAN_FLOOR).astype(np.float32)  # XGBoost's limits
        odds_against = np.float32(1) / score - np.float32(1)  # in float32, as XGBoost computes it
        understood = -np.log(odds_against)
    elif issubclass(_KNOWN[objective], LogLink):
        limits = np.finfo(np.float32)
        score = np.clip(np.exp(np.minimum(margin, 100)), limits.tiny, limits.max).astype(np.float32)
        understood = np.log(score)
    elif (np.abs(margin) > np.finfo(np.float32).max).any():
        raise NotExportable("the base score is too large for XGBoost's float32")
    else:
        return margin.astype(np.float32), np.zeros_like(margin)
    lacking = margin - understood.astype(np.float64)
    return score, np.where(np.abs(lacking) > _LARGEST_BASE_ERROR, lacking, 0.0)


def _tree(joined: JoinedModel, number: int, shift: float) -> dict[str, Any]:
    """One tree; `shift` is added to all its leaves. Node numbers are unchanged."""
    tree = joined.trees[number]
    leaf = tree.left == LEAF
    weight = np.where(leaf, tree.weight + shift if shift else tree.weight, 0).astype(np.float32)
    by_set = tree.set_of >= 0
    parents = np.full(tree.nodes, _NO_PARENT, dtype=np.int64)
    parents[tree.left[tree.inner]] = tree.inner
    parents[tree.right[tree.inner]] = tree.inner
    return {
        "id": number,
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(len(joined.columns)),
            "num_nodes": str(tree.nodes),
            "size_leaf_vector": "1",
        },
        "left_children": tree.left.tolist(),
        "right_children": tree.right.tolist(),
        "parents": parents.tolist(),
        "split_indices": np.where(leaf, 0, tree.feature).tolist(),
        # XGBoost stores a leaf's value in place of a threshold; x < threshold goes left in both systems.
        "split_conditions": _floats(np.where(leaf, weight, tree.threshold)),
        "default_left": tree.default_left.astype(int).tolist(),
        "split_type": np.where(by_set, _CATEGORICAL_SPLIT, _NUMERIC_SPLIT).tolist(),
        **_category_splits(joined, tree, np.flatnonzero(by_set)),
        "base_weights": _floats(weight),
        "loss_changes": _floats(np.where(leaf, 0, tree.gain)),
        "sum_hessian": _floats(tree.cover),
    }


def _category_splits(joined: JoinedModel, tree: JoinedTree, nodes: AnyArray) -> dict[str, list[int]]:
    """The nodes that split by categories, each with a segment of `categories`: the codes that go right."""
    right: list[int] = []
    sizes: list[int] = []
    for node in nodes.tolist():
        known = len(joined.columns[tree.feature[node]].categories or ())
        left = set(joined.left_categories(tree, node) or ())
        # XGBoost needs at least one; if only missing values go right, use a code that no row has.
        listed = [code for code in range(known) if code not in left] or [known]
        right.extend(listed)
        sizes.append(len(listed))
    return {
        "categories": right,
        "categories_nodes": nodes.tolist(),
        "categories_segments": (np.cumsum(sizes, dtype=np.int64) - sizes).astype(np.int64).tolist(),
        "categories_sizes": sizes,
    }


def _feature_types(joined: JoinedModel) -> list[str]:
    """`c` for categorical columns; ordinal codes are numbers to XGBoost."""
    ordinal = joined.skeleton.config.categories == "ordinal"
    return ["float" if ordinal or info.categories is None else "c" for info in joined.columns]


def _feature_names(joined: JoinedModel) -> list[str]:
    """Unique names that XGBoost accepts."""
    names: list[str] = []
    taken: set[str] = set()
    for info in joined.columns:
        name = plain = "".join(
            "_" if letter in _REFUSED_IN_NAMES or not letter.isprintable() else letter for letter in info.name
        )
        copies = 1
        while name in taken:
            copies += 1
            name = f"{plain}_{copies}"
        names.append(name)
        taken.add(name)
    return names


def _attributes(joined: JoinedModel) -> dict[str, str]:
    names = _feature_names(joined)
    categories = {
        name: info.categories for name, info in zip(names, joined.columns, strict=True) if info.categories is not None
    }
    return {
        "veilboost.categories": json.dumps(categories),
        "veilboost.columns": json.dumps([info.name for info in joined.columns]),
        "veilboost.classes": json.dumps(joined.skeleton.classes),
        "veilboost.sha256": joined.sha256(),
    }


def _floats(values: AnyArray) -> list[float]:
    """Float32 values as JSON numbers that parse to the same value; JSON has neither NaN nor infinity."""
    return np.nan_to_num(values.astype(np.float32)).astype(np.float64).tolist()
