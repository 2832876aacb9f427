"""Pure computation: confidence bounds for autocorrelated series, their rounding, and torch's DataLoader as a queue.

In: arrays of seconds. Out: waits, bounds.
Must not know: clocks, loaders, processes.
"""
