"""The audit: attacks a run with exactly what each party saw, and says who learned what."""
