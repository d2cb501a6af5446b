"""The tables and figures of the four papers, measured again beside the published numbers.

A `Target` is one table or figure. It is made of cells (one method on one data set with one seed), each stored as soon
as it is measured, so that a run that was stopped goes on where it was.
"""
