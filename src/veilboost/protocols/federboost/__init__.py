"""`federboost`: passive parties send randomized buckets once, and the active party grows all trees alone."""
