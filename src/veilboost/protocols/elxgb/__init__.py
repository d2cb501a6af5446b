"""`elxgb`: the first tree under encryption, later trees on noisy gradients (ELXGB)."""
