"""Run the roles: one party's session, and all parties in one process."""
