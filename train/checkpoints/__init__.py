"""Checkpoints read as plain data (numbers, text and tensors), never executed, and their way into place.

In: a file, or a folder of shards. Out: its contents; of those to save a copy in host memory, and its file, shards or
parts; hashes of the training videos, how their crops were stored, and states of random number generators.
Must not know: runs, models.
"""
