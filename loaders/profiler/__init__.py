"""Profiles a loader: whether the device waits for data, why, what would help, with confidence bounds.

    loader + step -> recording -> three estimators -> verdict -> trials, advice -> console, JSON, page

In: any iterable of batches and any callable step. Out: a `Profile`.
Must not know: Lightning, Dask, how a row was made.

    wait          time before a step in which its device has nothing to work on; `wait_share`, "waiting": of all time
    starved step  a step whose wait is over `starved_threshold_seconds`: 1 % of the median step, and above clock noise
    starvation    waiting that is surely over 2 % of the time: the verdict STARVED

| room | what it holds |
|---|---|
| estimate/ | names of the estimators; bounds for autocorrelated series; the DataLoader as a queue (`Estimator.MODEL`) |
| measure/ | the measured loop and the timing of its batches (`Estimator.LIVE`) |
| verdict/ | FED, MARGINAL, STARVED or INCONCLUSIVE, and why; advice; a build's gate |
| trials/ | the same step on variants of the loader; sweeps |
| report/ | console, JSON, Perfetto trace, page |
| selftest/ | injects known delays and checks that they are recovered |
| profile | `profile(loader, step)` |
| request, rank_processes, cli | the command `facefeed profile`, also over several ranks |
"""
