"""What a protocol promises, what it released, and what that costs."""
