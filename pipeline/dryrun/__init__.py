"""`precompute --dry-run`: what there is to do, and how long and how large it will be; makes no row.

    listing + plan -> survey (what was found)
    a few inputs, for some seconds each, on the job's own workers -> probe -> forecast (time and disk, with ranges)

The forecast is kept in the user's cache, so that the run itself can say how good it was.
"""
