"""Predict the cost of a job: its work in units, and the cost of a unit on this machine."""
