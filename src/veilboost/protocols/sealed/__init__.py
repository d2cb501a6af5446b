"""`sealed`: noise is added to sums under encryption, and splits and leaves are differentially private."""
