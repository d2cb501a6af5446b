"""The targets of mal."""

from veilboost.reproduce.target import Target

TARGETS: tuple[Target, ...] = ()
