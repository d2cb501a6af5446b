"""Runs on this machine: a problem, a federation trained on it, its baselines, and one summary of it all."""
