"""Builds the rows of one input from its frames.

In: one `Entry`, a decoder, a detector. Out: record batches of the schema, and the input's outcome.
Must not know: the cluster, how files are published.
"""
