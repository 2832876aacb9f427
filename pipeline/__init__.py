"""Videos to Parquet, offline: sources, decoding, faces, rows, commit, and the Dask job that drives them.

    source -> plan -> unit -> (decode -> detect -> crop) -> file -> receipt -> index -> manifest

| module | what it holds |
|---|---|
| errors, schema, manifest, index, pages | the contract with readers, all that `facefeed.loaders` knows of this room |
| sources/, splits, plan, changes, estimate | what there is to do |
| video/, faces/, encode, rows | one input's way from a file to rows |
| commit, work, lease, ledger, finish | exactly once, whatever dies when |
| cluster, stage, progress, run | the Dask job |
| cli, report, verify | the commands |

Importing this package imports none of it.
"""
