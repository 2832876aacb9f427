"""Checkpoints read as plain data (numbers, text and tensors), never executed.

In: a file. Out: its contents; hashes of the training videos, how their crops were stored, and states of random number
generators.
Must not know: runs, models.
"""
