"""A table of inputs, CSV or Parquet.

In: the table, and its file of classes. Out: a `Listing`.
Must not know: other layouts, and what is done with a listing.
"""
