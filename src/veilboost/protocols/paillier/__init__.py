"""`paillier`: passive parties sum gradients under additive encryption (SecureBoost, SecureBoost+)."""
