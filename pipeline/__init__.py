"""Videos to Parquet, offline: sources, decoding, faces, rows, commit, and the Dask job that drives them.

    source -> plan -> unit -> (decode -> detect -> crop) -> file -> receipt -> index -> manifest

| module | what it holds |
|---|---|
| errors, schema, manifest, index, pages | the contract with readers, all that `facefeed.loaders` knows of this room |
| sources/, components, leaks, splits, plan, changes, damage, estimate, dryrun/ | the work and its cost |
| video/, faces/, originals, pairs, encode, rows, inputs | one input's way from a file to rows |
| commit, work, lease, ledger, finish | exactly once, whatever dies when |
| request, cluster, stage, progress, run | the Dask job |
| cli, report, unfinished, verify, verdict, inspect/ | the commands |

Importing this package imports none of it.
"""
