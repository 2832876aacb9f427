"""One training run, from its config to its metrics; the same command resumes it.

In: a `Config` and OUT. Out: a folder with checkpoints, logs and results.
Must not know: the ladder, Slurm's scripts.

| module | what it holds |
|---|---|
| runner | `train`: the whole run, from its config to its result |
| folder | the run's folder: config, checkpoints, logs, result, lock |
| launch | whether this process is the first rank, before there is a process group |
| checkpointer | `last.ckpt` to resume from, `best.ckpt` by a metric: when they are written |
| checkpoint_io, background_writer | reading and writing their files; a write in a thread while training goes on |
| signals, graceful_stop | signals, deferred to the end of a step; the ranks' agreement to save and to stop |
| library_errors | errors of torch and the operating system as those with an exit code |
| throughput | images, seconds and stall over all sessions |
| result | `Result`: what is stored as result.json |
| progress, tables | progress on standard error; closing tables of `train` and `evaluate` |
"""
