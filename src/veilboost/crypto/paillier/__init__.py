"""Paillier's additive encryption (EUROCRYPT 1999), optimised for sums of many small numbers."""
