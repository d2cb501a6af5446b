"""What training leaves behind: each party's share, and what can be done with all shares together."""
