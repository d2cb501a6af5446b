"""`masked`: MaskedXGBoost. Gradients hidden by noise that mostly lies in the null space of the splitting vectors."""
