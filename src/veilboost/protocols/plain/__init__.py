"""`plain`: the reference that protects nobody and that every exact protocol must equal."""
