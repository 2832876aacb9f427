"""Whether the device waits for data, why, what would help, and how sure that is. README.md beside this is the guide.

    loader + step -> recording -> three estimators -> verdict -> trials, advice -> terminal, JSON, page

In: any iterable of batches and any callable step. Out: a `Profile`.
Must not know: Lightning, Dask, how a row was made.

| room | what it holds |
|---|---|
| estimate/ | bounds for dependent series; the DataLoader's queue, replayed (estimator C) |
| measure/ | what the loop and the makers of its batches saw at their clocks (estimator A) |
| verdict/ | FED, MARGINAL, STARVED or INCONCLUSIVE, and why; what would help; a build's gate |
| trials/ | the same step on the same loader with something changed; sweeps |
| report/ | the terminal, JSON, a trace for Perfetto, the page |
| selftest/ | delays of known length, and whether they are recovered |
| profile | `profile(loader, step)` |
| request, rank_processes, cli | the command `facefeed profile`, also over several ranks |
"""
