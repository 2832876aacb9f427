"""`facefeed export`: writes a finished dataset in the form that other training code reads.

    index -> parts -> rows -> files of a part, staged -> published -> receipt -> check

In: OUT. Out: DEST, a folder in one of four forms, with `SHA256SUMS` and a receipt.
Must not know: Dask, decoders, detectors, loaders.

| module | contents |
|---|---|
| request | which form, which split, how large a shard |
| rows, naming | what a form reads of OUT; safe and unique names of videos |
| forms/ | one module for each form: which files a part has, and how they are written |
| receipt, destination | what DEST holds; claims it, publishes parts, finishes |
| check | whether DEST holds what its receipt says |
| run, report, cli | the whole job, its console report and `--json`, the command |
"""
