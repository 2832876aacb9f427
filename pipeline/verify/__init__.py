"""`facefeed verify`: everything that the manifest promises is there, complete, and once.

In: OUT. Out: findings, each with its remedy, and an exit code.
Must not know: Dask, decoders, detectors.
"""
