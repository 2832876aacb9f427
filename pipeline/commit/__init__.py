"""Commit protocol: the bytes of a unit become part of the dataset exactly once, whichever process dies at any time.

In: a unit's Parquet file, written below `_tmp`. Out: published files, receipts, index and manifest.
Must not know: videos, faces, Dask.
"""
