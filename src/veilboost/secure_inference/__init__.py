"""Secure inference (ELXGB section 6.3).

The active party has an encrypted model, a user sends an encrypted row, and a CSP decides the direction at each node
without knowing which node it is.
"""
