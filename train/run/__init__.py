"""One training run, from its config to its metrics; the same command resumes it.

In: a `Config` and OUT. Out: a folder with checkpoints, logs and results.
Must not know: the ladder, Slurm's scripts.
"""
