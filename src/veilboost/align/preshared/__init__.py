"""`preshared`: rows that parties agreed on before, only checked to be in the same order."""
