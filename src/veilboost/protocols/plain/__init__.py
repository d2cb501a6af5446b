"""`plain`: the reference, which protects nothing and whose model every exact protocol reproduces."""
