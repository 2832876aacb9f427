"""Configuration of a training run: frozen options, recipes, overrides by name, adaptation to the GPUs.

In: a recipe's name and `--set` texts. Out: a `Config`.
Must not know: Lightning's Trainer, runs.
"""
