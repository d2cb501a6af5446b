"""`python -m veilboost` is the command `veilboost`."""

from veilboost.cli.main import run

run()
