"""How the bytes of a unit become part of a dataset exactly once, whatever dies when.

In: a unit's Parquet file, written below `_tmp`. Out: published files, receipts, index and manifest.
Must not know: videos, faces, Dask.
"""
