"""`facefeed verify`: checks that a dataset holds exactly what its manifest records, undamaged.

In: OUT. Out: findings, each with its remedy, and an exit code.
Must not know: decoders, detectors.

| module | what it holds |
|---|---|
| check | `verify`: all checks in order |
| ordered, workers | `OrderedMap`: piece by piece, on this thread or on the workers of a Dask cluster |
| unit_check | the check of one unit: its file and its receipt |
| index_check | compares the index with the files |
| added_columns | the checks of added columns |
| findings | `Finding` with its remedy, `VerifyResult` |
| rebuild | writes the index again from the files |
| unfinished | `UnfinishedRun`: how much of the dataset exists, and what finishes it |
"""
