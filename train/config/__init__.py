"""What a training run is: frozen options, recipes, changes by name, and what this machine can do of them.

In: a recipe's name and `--set` texts. Out: a `Config`.
Must not know: Lightning's Trainer, runs.
"""
