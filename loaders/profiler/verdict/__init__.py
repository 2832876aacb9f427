"""From recordings to verdicts: the share of time that steps wait, its bounds, its causes, and what would help.

In: recordings. Out: `Verdict`, `Profile`, advice, the exit code of a gate.
Must not know: consoles, pages.
"""
