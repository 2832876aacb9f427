"""Detection of NaN and infinity in loss, gradients and running statistics.

In: a module and its optimizer while they train. Out: counts, and `NonFiniteError`.
Must not know: other levers, runs.
"""
