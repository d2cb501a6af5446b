"""Privacy: a protocol's claims, its releases, and their cost."""
