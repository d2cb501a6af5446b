"""The protocols, one package each. All exchange messages level by level."""
