"""Findings on a dataset: errors, warnings and what is ok, each with a remedy.

In: statistics and outcomes. Out: a sorted list of `Finding`.
Must not know: pages, terminals, images.
"""
