"""The process of one rung: a real Trainer, a real loader, and a clock.

In: a question in a JSON file. Out: an answer in another.
Must not know: the ladder's order and statistics.
"""
