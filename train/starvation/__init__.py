"""`StarvationMonitor`: how long a Trainer's steps wait for data, reported while it trains.

In: Lightning's hooks. Out: logged metrics and a warning.
Must not know: recipes, runs.
"""
