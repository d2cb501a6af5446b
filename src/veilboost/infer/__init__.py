"""Joint prediction by parties that each know only their own splits and columns."""
