"""`paillier`: gradients under additive encryption, summed by the passive parties (SecureBoost, SecureBoost+)."""
