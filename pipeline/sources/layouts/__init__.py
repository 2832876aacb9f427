"""The layouts that ship with facefeed: published sets, tables and plain folders.

In: a folder or a table. Out: a `Listing`.
Must not know: each other, and what is done with a listing. Only `nearby`, which looks for published sets around what a
layout reads, takes from `celebdf` where the root of that set is.
"""
