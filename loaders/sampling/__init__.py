"""Which rows come when, as pure functions of numbers that are the same on every machine.

In: row numbers, their labels and videos, a seed, rank and epoch. Out: batches of row numbers.
Must not know: pixels, processes, devices.
"""
