"""The published sets and general forms that facefeed recognises.

In: a folder or a table. Out: a `Listing`.
Must not know: each other, and what is done with a listing.
"""
