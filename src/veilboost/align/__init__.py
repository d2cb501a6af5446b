"""Entity alignment by private set intersection (PSI): find the rows that all parties have in common."""
