"""Videos to Parquet, offline: list, plan, decode, detect, crop, publish, and the Dask job that drives it.

    source -> entries -> splits -> plan -> unit -> frames -> faces -> rows -> file -> receipt -> manifest + index

In: a folder or a table of videos and images, or its address in a store. Out: a dataset that `facefeed.loaders` streams.
Must not know: loaders, train, Lightning.

| room | what it holds |
|---|---|
| sources/, splits/, planning/ | which inputs there are, their splits, the units they make, what changed |
| stored_source/ | a source in an object store: listed like a folder, fetched file by file |
| video/, faces/, manipulation/, rows/ | one input's way from a file to rows |
| execution/ | runs units on workers: scheduler, cluster, unit worker, decode pool, progress |
| commit/, dataset/, verify/ | exactly once, whatever dies when; the contract with readers, and its check |
| dryrun/, inspect/, baselines/ | what a run will take; what a dataset holds; decoding on the fly, to compare with |
| added_columns/ | columns computed for a finished dataset from its stored crops |
| compaction/ | copies the rows of many small files into few large ones |
| export/ | writes a dataset in the forms that other training code reads |
| models/ | brings weights that facefeed does not ship into the user's cache |
| page/ | the kit of all HTML pages |
| precompute, report, __main__, cli, command_group | the whole job, its console reports, the commands, their errors |
| row_progress | progress of commands that go through a dataset's rows |
| errors, console, files, lock, machine, interrupts, user_file | shared by all of them |

Importing this package imports none of it.
"""
