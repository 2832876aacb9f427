"""Finished datasets in object stores, read through a local cache.

In: an address that fsspec knows, such as ``s3://bucket/faces``. Out: a local folder with its manifest and its index,
and byte ranges of its files.
Must not know: loaders, Dask, or what is in the files.
"""
