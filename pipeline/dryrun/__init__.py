"""`precompute --dry-run`: surveys the source and forecasts the run's time and size; writes no rows.

    listing + plan -> survey
    a few inputs, for some seconds each, on the job's own workers -> probe -> forecast (time and size, with ranges)

In: SRC, OUT, the options of a run. Out: a forecast of time and size with ranges, and the run's exit code.
Must not know: how rows are published.

The forecast is saved in the user's cache, so that the run can compare itself with it.
"""
