"""`secagg`: horizontal training on histograms that are summed under pairwise masks (secure aggregation)."""
