"""A vertical job at its parties: alignment, then trees over columns in different hands."""
