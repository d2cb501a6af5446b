"""Predictions over HTTP. Needs the optional extra `serve`."""
