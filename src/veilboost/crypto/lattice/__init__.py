"""Packed ring-LWE encryption of sums: exact, additive, and fast enough not to be noticed.

`parameters` holds every size and why it is safe, `keys` is what protocols use, `engine` chooses who computes: the C++
kernel (`native/lattice`) or its NumPy twin.
"""
