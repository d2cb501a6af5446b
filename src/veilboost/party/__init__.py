"""Roles put to work: one party's session, and all parties in one process."""
