"""`masked`: MaskedXGBoost. Gradients are masked by noise mostly in the null space of the split vectors."""
