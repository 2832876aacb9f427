"""`precompute --dry-run`: what there is to do, and how long and how large it will be; makes no row.

    listing + plan -> survey
    a few inputs, for some seconds each, on the job's own workers -> probe -> forecast (time and disk, with ranges)

In: a listing, a plan, the job's options. Out: a forecast of time and disk with ranges, and the run's exit code.
Must not know: how rows are published.

The forecast is kept in the user's cache, so that the run itself can say how good it was.
"""
