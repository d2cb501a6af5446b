"""What a protocol promises, as data."""
