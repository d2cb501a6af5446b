"""`mal`: masked aggregation learning. Horizontal, in two rounds."""
