"""Where a party's own arithmetic runs: in this process, or over shards of rows on many machines."""
