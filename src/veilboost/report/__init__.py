"""Charts and HTML reports of runs and reproductions, readable without other tools."""
