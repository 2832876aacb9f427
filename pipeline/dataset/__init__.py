"""The contract between precompute and its readers: columns, manifest, index, and where image bytes lie.

In: OUT. Out: schema, receipts, manifest, a memory-mapped index, the image codec; all that other rooms may import.
Must not know: how a row was made, Dask, decoders.
"""
