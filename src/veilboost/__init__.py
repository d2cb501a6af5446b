"""VeilBoost: gradient-boosted trees across organisations that may not show each other their data."""
