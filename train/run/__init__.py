"""One run, from its config to its figures; started again it goes on where it stopped.

In: a `Config` and OUT. Out: a folder with checkpoints, logs and results.
Must not know: the ladder, Slurm's scripts.
"""
