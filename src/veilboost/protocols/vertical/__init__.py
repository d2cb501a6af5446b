"""What two or more protocols share."""
