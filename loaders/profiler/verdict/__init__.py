"""From a recording to a judgement: how much of the time the step waited, how sure that is, and what would help.

In: recordings. Out: `Verdict`, `Profile`, advice, the exit code of a gate.
Must not know: terminals, pages.
"""
