"""The estimators' docstrings: the parameters of boosting are documented once, in `veilboost.config`."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from typing import Any

from veilboost.config import TrainingConfig
from veilboost.fields import info_of

_WIDTH = 100

_ATTRIBUTES = """    shares_ : dict of party name to ModelShare
        The model share of each party; in a horizontal model, the full model of the server.
    joined_ : JoinedModel
        The shares of all parties combined, with columns and thresholds.
    model_sha256_ : str
        SHA-256 hash of the joined model.
    best_iteration_ : int
        The last boosting round that the model keeps, counted from 0.
    feature_importances_ : ndarray of shape (n_features_in_,)
        Each column's share of the total gain.
    best_iteration : int
        XGBoost's name of `best_iteration_`.
    best_score : float
        The last metric on the last evaluation set, after the best round.
    evals_result_ : dict of set name to dict of metric name to list of float
        The learning curves that `evals_result` returns; empty without `eval_set`.
    simulation_ : Simulation
        The training run: messages, bytes, rounds and the transcript of each party. A loaded estimator has none.
    n_features_in_ : int
        Number of columns seen during `fit`.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns seen during `fit`, if they have names.
"""


def completed(text: str | None, parameters: type, attributes: str = "") -> str:
    """Insert the sections Parameters and Attributes before the section See Also of an estimator's docstring.

    Parameters
    ----------
    text : str
        The docstring of the class.
    parameters : type
        A dataclass whose docstring is the start of the section Parameters. Its fields that are those of
        `TrainingConfig`, and that it does not document, follow.
    attributes : str
        Entries for the section Attributes in addition to the common ones.
    """
    about, mark, rest = inspect.cleandoc(text or "").partition("See Also\n")
    own = inspect.cleandoc(parameters.__doc__ or "")
    names = {item.name for item in dataclasses.fields(parameters)}
    boosting = [
        _entry(item)
        for item in dataclasses.fields(TrainingConfig)
        if item.name in names and f"\n{item.name} : " not in own
    ]
    fitted = inspect.cleandoc(attributes + _ATTRIBUTES)
    return "\n".join((about + own, *boosting, "", "Attributes", "----------", fitted, "", mark + rest))


def _entry(item: dataclasses.Field[Any]) -> str:
    """One parameter of boosting in NumPy style, from its declaration."""
    info = info_of(item)
    kind = str(item.type).replace(" | ", " or ")
    limits = ""
    if info.choices:
        kind = "{" + ", ".join(repr(choice) for choice in info.choices) + "}"
    elif info.range_text() != "any" and kind != "bool":
        limits = f" Range: {info.range_text()}."
    text = f"{info.help[0].upper()}{info.help[1:].removesuffix('.')}.{limits}"
    body = textwrap.fill(text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return f"{item.name} : {kind}, default={item.default!r}\n{body}"
