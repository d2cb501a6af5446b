"""Rows of the same people find each other."""
