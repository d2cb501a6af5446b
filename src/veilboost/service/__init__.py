"""Prediction for those who ask: a finished run opened, rows checked, scores written, and all of it over HTTP.

Only `app` and `server` need the optional part `serve`; the rest is shared with the command line.
"""
