"""`facefeed verify`: checks that a dataset holds exactly what its manifest records, undamaged.

In: OUT. Out: findings, each with its remedy, and an exit code.
Must not know: Dask, decoders, detectors.
"""
