"""`lattice`: exact sums under packed ring-LWE encryption. Its sides are in `common`: other protocols build on them."""
