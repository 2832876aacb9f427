"""Checkpoints read as plain data (numbers, text and tensors), never executed.

In: a file. Out: its contents; hashes of the training videos and states of random number generators.
Must not know: runs, models.
"""
