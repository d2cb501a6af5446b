"""Packed ring-LWE encryption of sums: exact, additive and fast."""
