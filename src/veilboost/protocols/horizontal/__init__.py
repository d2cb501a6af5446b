"""What the roles of horizontal protocols share."""
