"""Predictions over HTTP. Needs the optional part `serve`."""
