"""Code that the roles of horizontal protocols share."""
