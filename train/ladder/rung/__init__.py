"""The process of one rung: a Trainer, a loader and a stopwatch.

In: a request in a JSON file. Out: an answer in another.
Must not know: the ladder's order and statistics.
"""
