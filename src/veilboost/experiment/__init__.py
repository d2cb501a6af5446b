"""Experiments on this machine: a problem, a simulated federation, its baselines, and a summary."""
