"""The audit: attacks each party's view of a run and reports what it reveals about the other parties."""
