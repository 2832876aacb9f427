"""Checks of a listing: what its metadata lacks, and which leaks between splits could not be noticed.

In: a `Listing`. Out: warnings, link coverage, a refusal where nothing has a label.
Must not know: layouts, files on disk.
"""
