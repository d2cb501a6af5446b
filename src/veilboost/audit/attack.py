"""Attacks, which are functions of one party's view, and their findings: a value compared with a baseline."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from veilboost.audit.view import Truth, View
from veilboost.types import AnyArray, BoolArray, PartyName
from veilboost.wire.message import Message

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Outcome:
    """The result of an attack: its metric, the baseline of a guess without the view, and a sentence for readers.

    A larger value is better for the attacker; 1 is complete success. `low` and `high` are the 95 % confidence interval
    of the value. The attack succeeds if `low` reaches `bar`, by default halfway from the baseline to 1.
    """

    metric: str
    value: float
    baseline: float
    low: float
    high: float
    sentence: str
    bar: float | None = None

    @property
    def threshold(self) -> float:
        return self.baseline + (1.0 - self.baseline) / 2 if self.bar is None else self.bar

    @property
    def succeeded(self) -> bool:
        return self.low >= self.threshold


@dataclass(frozen=True)
class Finding:
    """An outcome with its context: the attack, the adversary, the victim, the attacked data and the protocol."""

    attack: str
    protocol: str
    adversary: str
    adversary_role: str
    victim: str
    victim_role: str
    data: str
    outcome: Outcome
    seconds: float
    runs: int = 1

    @property
    def succeeded(self) -> bool:
        return self.outcome.succeeded

    @property
    def above_chance(self) -> bool:
        """Whether the view helps at all."""
        return self.outcome.low > self.outcome.baseline

    @property
    def verdict(self) -> str:
        return "succeeded" if self.succeeded else "better than chance" if self.above_chance else "resisted"

    def to_dict(self) -> dict[str, Any]:
        own = {key: value for key, value in asdict(self).items() if key != "outcome"}
        result = {key: value for key, value in asdict(self.outcome).items() if key != "bar"}
        return own | result | {"threshold": self.outcome.threshold, "verdict": self.verdict}


# --- making outcomes ------------------------------------------------------------------------------------


def share_right(metric: str, hits: BoolArray, baseline: float, sentence: str, clusters: int | None = None) -> Outcome:
    """The share of correct guesses, with Wilson's interval; `clusters` is the sample size of dependent guesses."""
    value, count = float(np.mean(hits)), clusters or hits.size
    return Outcome(metric, value, baseline, *wilson(value, count), sentence)


def balanced_accuracy(truth: AnyArray, guess: AnyArray, sentence: str) -> Outcome:
    """The mean recall over classes; a blind guess gives 1 / classes.

    `{value}` and `{majority}` in the sentence are replaced by the value and the share of the most common class.
    """
    classes, counts = np.unique(truth, return_counts=True)
    shares = np.array([np.count_nonzero(guess[truth == each] == each) for each in classes]) / counts
    value = float(shares.mean())
    # The error of a mean of independent shares; half a case is added to each to keep it above zero at 0 and 1.
    smooth = (shares * counts + 0.5) / (counts + 1.0)
    error = Z95 * math.sqrt(float((smooth * (1 - smooth) / counts).sum())) / len(classes)
    words = sentence.format(value=value, majority=float(counts.max() / counts.sum()))
    low, high = max(value - error, 0.0), min(value + error, 1.0)
    return Outcome("balanced accuracy", value, 1.0 / len(classes), low, high, words)


def wilson(share: float, count: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of `count` independent trials."""
    if count <= 0:
        return 0.0, 1.0
    z2 = Z95 * Z95 / count
    centre = (share + z2 / 2) / (1 + z2)
    half = Z95 / (1 + z2) * math.sqrt(max(share * (1 - share), 0.0) / count + z2 / (4 * count))
    # At 0 and 1 the bound is exact; rounding must not look like a finding.
    return max(centre - half, 0.0) if share > 0 else 0.0, min(centre + half, 1.0) if share < 1 else 1.0


def over_runs(findings: Sequence[Finding]) -> Finding:
    """Combine the findings of one attack in several runs: means, and Student's interval of the value."""
    first = findings[0]
    if len(findings) == 1:
        return first
    from scipy.stats import t  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

    values = np.array([finding.outcome.value for finding in findings])
    half = float(t.ppf(0.975, len(values) - 1)) * float(values.std(ddof=1)) / math.sqrt(len(values))  # pyright: ignore
    mean = float(values.mean())
    outcome = replace(
        first.outcome,
        value=mean,
        baseline=float(np.mean([finding.outcome.baseline for finding in findings])),
        low=max(mean - half, 0.0),
        high=min(mean + half, 1.0),
        bar=float(np.mean([finding.outcome.threshold for finding in findings])),
    )
    return replace(first, outcome=outcome, seconds=sum(f.seconds for f in findings), runs=len(findings))


# --- attacks ------------------------------------------------------------------------------------------------------

Run = Callable[[View, Truth, PartyName, np.random.Generator], Outcome | None]


@dataclass(frozen=True)
class Attack:
    """An attack from one role's view on another role's data.

    An attack uses only what an attacker has: messages, model shares and the declarations in a protocol's `messages` and
    `options`. It never calls the code of a role.

    Attributes
    ----------
    key : str
        Names the attack in the evidence of a protocol's spec.
    name : str
        The name in reports.
    adversary, victim : str
        Roles.
    data : str
        The attacked data.
    messages : tuple of message classes
        The attack needs at least one of these in the view; () means that it applies to every view of the role.
    run : callable
        Attacks one victim. Returns None if the run holds nothing that the attack could use.
    """

    key: str
    name: str
    adversary: str
    victim: str
    data: str
    messages: tuple[type[Message], ...]
    run: Run

    def applies(self, view: View) -> bool:
        if view.role != self.adversary:
            return False
        return not self.messages or any(isinstance(seen.message, tuple(self.messages)) for seen in view.messages)


def declare(
    name: str, adversary: str, victim: str, data: str, messages: tuple[type[Message], ...] = ()
) -> Callable[[Run], Attack]:
    """Decorator that makes a function an attack; the function's name is its key."""
    return lambda run: Attack(run.__name__, name, adversary, victim, data, messages, run)
