"""What training leaves behind: each party's part, and what can be done with all parts together."""
