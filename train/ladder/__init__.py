"""`facefeed ladder`: measures the speed-up of each lever on this machine, in interleaved rounds.

In: OUT, a recipe, levers. Out: a table, JSON, a page.
Must not know: runs and their folders.
"""
