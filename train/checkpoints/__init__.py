"""Checkpoints as plain data: numbers, text and tensors; nothing in one is ever executed.

In: a file. Out: its values; the training videos and random generators that it records.
Must not know: runs, models.
"""
