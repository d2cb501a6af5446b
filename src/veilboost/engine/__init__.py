"""Execution engines: they run a party's own computation in this process, or over shards of rows on many machines."""
