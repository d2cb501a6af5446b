"""`sealed`: exact sums stay encrypted until noise is in them, splits and leaves are chosen privately."""
