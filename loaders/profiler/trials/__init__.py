"""Trials: other settings of the loader under the same step, which explain a verdict or improve it.

In: a loader, a step, a verdict. Out: measured trials and sweeps.
Must not know: consoles, pages.
"""
