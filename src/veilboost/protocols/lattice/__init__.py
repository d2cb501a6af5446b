"""`lattice`: exact sums under packed ring-LWE encryption."""
