"""Plots and pages: what runs and reproductions gave, for people to read without any other tool."""
