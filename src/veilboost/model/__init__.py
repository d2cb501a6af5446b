"""Trained models: each party's model share, and operations on all shares together."""
