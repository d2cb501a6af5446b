"""The quality of scores against known labels: metrics, curves, tables, segments, stability, intervals."""
