"""The dataset format: the contract between precompute and its readers. Columns, manifest, index, image byte ranges.

In: OUT. Out: schema, receipts, manifest, a memory-mapped index, the image codec.
Must not know: how a row was made, Dask, decoders.
"""
