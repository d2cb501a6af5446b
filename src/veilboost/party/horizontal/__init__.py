"""A horizontal job at its parties: a server, and participants with rows of their own."""
