"""Paillier's additive encryption (EUROCRYPT 1999), arranged for sums of many small numbers."""
