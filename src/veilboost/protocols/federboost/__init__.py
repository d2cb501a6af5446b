"""`federboost`: buckets leave their owner once, each under randomized response; all trees grow at the active party."""
