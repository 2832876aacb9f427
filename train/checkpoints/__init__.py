"""Checkpoints read as plain data (numbers, text and tensors), never executed, and their way into place.

In: a file. Out: its contents, and a copy of them in host memory; hashes of the training videos, how their crops were
stored, and states of random number generators.
Must not know: runs, models.
"""
