"""`facefeed ladder`: what each lever is worth on this machine, measured in interleaved rounds.

In: OUT, a recipe, levers. Out: a table, JSON, a page.
Must not know: runs and their folders.
"""
