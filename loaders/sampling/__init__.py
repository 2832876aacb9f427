"""The order of an epoch and the part of each rank, as pure functions of numbers that are the same on every machine.

In: row numbers, their labels and videos, a seed, rank and epoch. Out: batch requests: the row numbers of each batch.
Must not know: pixels, processes, devices.
"""
