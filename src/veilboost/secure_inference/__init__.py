"""Secure inference (ELXGB section 6.3): an encrypted model at the active party, a user's encrypted row, and a CSP that
decides each node's direction without knowing where it leads."""
