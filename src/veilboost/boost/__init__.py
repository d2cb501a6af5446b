"""Gradient-boosted trees without parties or cryptography."""
